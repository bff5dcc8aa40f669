"""Times in the time zone of whoever looks at them.

``times.js`` tells the zone of the browser in a cookie; what is rendered from the next request on is in that zone. Days
that somebody filters by begin and end there too. Without a cookie, or with one that names no zone, the installation's
own zone stays (``TOOLFLOW_TIME_ZONE``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.decorators import sync_only_middleware

COOKIE = "toolflow_time_zone"
"""Holds a name such as ``Europe/Berlin``."""


@sync_only_middleware
def show_local_times(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that activates the viewer's zone while a request is answered.

    It is synchronous, and stands last, on purpose: Django then calls all middleware around it synchronously too. Under
    ASGI that saves a hop between threads for each of them, and with that 2 ms of each request.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        zone = find_time_zone(request.COOKIES.get(COOKIE, ""))
        if zone is None:
            return get_response(request)
        with timezone.override(zone):
            return get_response(request)

    return answer


def find_time_zone(name: str) -> ZoneInfo | None:
    """The time zone of that name; None if there is none."""
    return ZoneInfo(name) if name in _known_names() else None


@cache
def _known_names() -> frozenset[str]:
    """All names there are: a name is a path of a file, and a cookie may hold anything."""
    return frozenset(available_timezones())
