"""What happens to every request and answer of the site: id, log line, headers, probes, times and static files.

All of it is synchronous: ``toolflow_site.request_handler`` goes through the whole middleware in one call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.core.exceptions import BadRequest
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from whitenoise.middleware import WhiteNoiseMiddleware

from runs.health import show_alive, show_ready
from runs.metrics import show_metrics
from runs.observability import find_web_meter
from runs.observability.log_events import HEADER, META_KEY, choose_request_id, current_request, log_event
from runs.tracing import trace_request
from toolflow_site.errors import build_error_page, build_problem
from toolflow_site.sign_in import OLD_PASSWORD_FORMS, check_old_password

GetResponse = Callable[[HttpRequest], HttpResponseBase]

PROBE_VIEWS = {"/healthz": show_alive, "/readyz": show_ready, "/metrics": show_metrics}
PROBES = tuple(PROBE_VIEWS)
"""Paths that load balancers, orchestrators and scrapers ask: by address, without TLS and without a session."""
MAX_PATH_LENGTH = 500
"""Characters of a path in a log line."""
TIME_ZONE_COOKIE = "toolflow_time_zone"
"""Holds the name of the browser's time zone, such as ``Europe/Berlin``; written by ``times.js``."""

_list_time_zones = cache(available_timezones)
"""All names there are: a name is a path of a file, and a cookie may hold anything."""
_UNUSED_FEATURES = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation",
    "gyroscope", "hid", "magnetometer", "microphone", "midi", "payment", "picture-in-picture",
    "publickey-credentials-get", "screen-wake-lock", "serial", "usb", "xr-spatial-tracking",
)  # fmt: skip
HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    # For browsers that don't know the policy's “frame-ancestors”.
    "X-Frame-Options": "DENY",
    # Addresses hold what runs were searched for: other sites don't learn them.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in _UNUSED_FEATURES),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # What a user may see now is for no other user, and not for later.
    "Cache-Control": "private, no-store",
}
"""Headers of every answer, unless a view sets others. The content security policy comes from ``django-csp``."""

logger = logging.getLogger(__name__)


class BodyRefusedError(Exception):
    """The body of a request is refused with ``status``; ``sentence`` says why."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def identify_requests(get_response: GetResponse) -> GetResponse:
    """Middleware that is outside of all else: gives each request an id, its answer headers, and logs both.

    It answers probes and refused bodies itself. A streamed answer is logged when it begins, and query strings never.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        return _answer_directly(request) or get_response(request)

    respond_safely: Any = convert_exception_to_response(respond)

    def answer(request: HttpRequest) -> HttpResponseBase:
        request_id = request.META[META_KEY] = choose_request_id(request.headers.get(HEADER))
        token = current_request.set(request)
        began_at = time.perf_counter()
        try:
            response: HttpResponseBase = respond_safely(request)
            response[HEADER] = request_id
            _add_headers(request, response)
            _log(request, response, time.perf_counter() - began_at)
            return response
        finally:
            current_request.reset(token)

    return answer


def _answer_directly(request: HttpRequest) -> HttpResponseBase | None:
    refusal: BodyRefusedError | None = getattr(request, "scope", {}).get("toolflow.refusal")
    if refusal is not None:
        response = build_problem(refusal.status, refusal.sentence)
        response["Connection"] = "close"
        if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
            response["Retry-After"] = "5"
        return response
    probe = PROBE_VIEWS.get(request.path_info)
    return probe(request) if probe else None


def _add_headers(request: HttpRequest, response: HttpResponseBase) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    # Django's own middleware sets it, too, but not on what is answered outside of it.
    if settings.SECURE_HSTS_SECONDS and request.is_secure():
        subdomains = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
        value = f"max-age={settings.SECURE_HSTS_SECONDS}{subdomains}"
        response.headers.setdefault("Strict-Transport-Security", value)


def _log(request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
    """Count, log and trace an answer."""
    method, status = request.method or "", response.status_code
    is_probe = request.path_info in PROBES
    match = request.resolver_match
    route = request.path_info if is_probe else f"/{match.route}" if match is not None else None
    if (meter := find_web_meter()) is not None:
        # How long a client waits for its run says nothing of the website.
        has_waited = "Preference-Applied" in response
        meter.note_request(route=route, method=method, status=status, seconds=None if has_waited else seconds)
    if method == "POST":
        trace_request(
            headers=request.headers,
            request_id=response[HEADER],
            name=f"POST {route or '/'}",
            status=status,
            seconds=seconds,
        )
    logged = settings.TOOLFLOW_ACCESS_LOG
    if logged == "none" or (logged == "without-probes" and is_probe):
        return
    path = request.path[:MAX_PATH_LENGTH]
    log_event(
        logger,
        logging.INFO,
        "request.answered",
        f"{method} {path} {status}",
        method=method,
        path=path,
        status=status,
        seconds=round(seconds, 4),
        user=_find_user_name(request),
    )


def _find_user_name(request: HttpRequest) -> str | None:
    """The name of the user, if it is known already: no query is made for a log line."""
    # The API sets the user itself. On pages it is lazy, and what was fetched is beside it.
    user = vars(request).get("user")
    if isinstance(user, SimpleLazyObject):
        user = vars(request).get("_cached_user")
    return None if user is None else user.get_username() or None


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # the package ships no types
    """WhiteNoise, which answers with whole files: under ASGI Django warns of the iterators that it gives otherwise."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """Answer with a file, a part of it, or that the client has it already."""
        answer = static_file.get_response(request.method, request.META)
        content = b""
        if answer.file is not None:
            with answer.file as file:
                content = file.read()
        response = HttpResponse(content, status=int(answer.status))
        # WhiteNoise gives it, where there is one.
        del response["Content-Type"]
        for name, value in answer.headers:
            response[name] = value
        return response


class PageMiddleware:
    """Middleware that is inside of all else: the viewer's time zone, the page for wrong methods, and two guards."""

    sync_capable, async_capable = True, False

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a request with times in the viewer's zone, if the cookie names one."""
        charset = (request.content_params or {}).get("charset", "utf-8")
        if request.content_type == "multipart/form-data" and charset.lower() not in ("utf-8", "utf8", "us-ascii"):
            # Django takes any codec of Python here, and fails over those that are none of text (``hex``).
            raise BadRequest("A form is not UTF-8")
        name = request.COOKIES.get(TIME_ZONE_COOKIE, "")
        with timezone.override(ZoneInfo(name) if name in _list_time_zones() else None):
            response = self._get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and not response.content:
            # Django knows no handler for them.
            is_of_form = request.method not in ("GET", "HEAD")
            page = build_error_page(HTTPStatus.METHOD_NOT_ALLOWED, is_of_form=is_of_form)
            response.headers["Content-Type"] = page.headers["Content-Type"]
            response.content = page.content
        return response

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: object) -> HttpResponse | None:
        """Check the old password where a new one is set."""
        match = request.resolver_match
        if request.method == "POST" and match is not None and match.view_name in OLD_PASSWORD_FORMS:
            return check_old_password(request)
        return None
