"""The page for addresses that only take forms and were opened, or only show something and were sent a form."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.template.loader import render_to_string
from django.utils.decorators import sync_only_middleware


@sync_only_middleware
def explain_refused_methods(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that writes a page into answers with the status 405 that have none.

    Django knows no handler for them. It is synchronous like all around it: see ``viewer_time_zone``.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and not response.content:
            is_sent = request.method not in ("GET", "HEAD")
            response.headers["Content-Type"] = "text/html; charset=utf-8"
            response.content = render_to_string("405.html", {"is_sent": is_sent}).encode()
        return response

    return answer
