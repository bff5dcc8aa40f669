"""What is known of each request to the website and the API: its id, a line in the log, and its part in the metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.functional import SimpleLazyObject

from runs.logs.events import log_event
from runs.measuring import find_web_meter
from runs.request_id import HEADER, META_KEY, choose_request_id, reset_request_id, set_request_id
from runs.tracing import trace_request

logger = logging.getLogger(__name__)

PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Addresses that machines ask all the time. They may be answered before anybody looks where an address leads."""
MOST_PATH = 500
"""Characters of a path that stand in a line."""


def note_requests(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware, the outermost: gives each request an id, and tells of it once its answer is known.

    Of a streamed answer that is when it begins. What a client asked behind the “?” is not told: it may be anything.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        request_id = choose_request_id(request.headers.get(HEADER))
        request.META[META_KEY] = request_id
        token = set_request_id(request_id)
        began_at = time.perf_counter()
        try:
            response = get_response(request)
            response[HEADER] = request_id
            seconds = time.perf_counter() - began_at
            _tell(request, response.status_code, seconds, has_waited="Preference-Applied" in response)
            if request.method == "POST":
                route = request.resolver_match.route if request.resolver_match is not None else ""
                trace_request(
                    headers=request.headers,
                    request_id=request_id,
                    name=f"POST /{route}",
                    status=response.status_code,
                    seconds=seconds,
                )
        finally:
            reset_request_id(token)
        return response

    return answer


def note_refusal(*, method: str, path: str, status: int) -> None:
    """Tell of a request that was refused before anybody looked where it leads, under the id that is current."""
    _note(method=method, path=path, status=status, seconds=0.0)


def _tell(request: HttpRequest, status: int, seconds: float, *, has_waited: bool) -> None:
    is_probe = request.path_info in PROBES
    match = request.resolver_match
    _note(
        method=request.method or "",
        path=request.path,
        status=status,
        seconds=seconds,
        route=request.path_info if is_probe else f"/{match.route}" if match is not None else None,
        is_probe=is_probe,
        has_waited=has_waited,
        find_user=lambda: _find_user(request),
    )


def _note(
    *,
    method: str,
    path: str,
    status: int,
    seconds: float,
    route: str | None = None,
    is_probe: bool = False,
    has_waited: bool = False,
    find_user: Callable[[], str | None] = lambda: None,
) -> None:
    if (meter := find_web_meter()) is not None:
        # How long a client let its run take says nothing of the website.
        meter.note_request(route=route, method=method, status=status, seconds=None if has_waited else seconds)
    told = settings.TOOLFLOW_ACCESS_LOG
    if told == "none" or (told == "without-probes" and is_probe):
        return
    path = path[:MOST_PATH]
    log_event(
        logger,
        logging.INFO,
        "request.answered",
        f"{method} {path} {status}",
        method=method,
        path=path,
        status=status,
        seconds=round(seconds, 4),
        user=find_user(),
    )


def _find_user(request: HttpRequest) -> str | None:
    """The name of whoever asks, if that was found out on the way; to tell of it, nobody is looked up."""
    # The API puts a user here as soon as it knows one. On pages there is a promise to look, and what was found beside.
    user = request.__dict__.get("user")
    if isinstance(user, SimpleLazyObject):
        user = getattr(request, "_cached_user", None)
    return None if user is None else user.get_username() or None
