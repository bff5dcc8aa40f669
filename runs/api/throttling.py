"""How many requests somebody may make in a minute, and the headers that say so.

Requests are counted by token, by user for those who are signed in on the pages, and by address for strangers, in the
cache “throttling”. With Redis all web servers count together; without it each process counts for itself, so that
several processes allow as many times as much. A cache that can't be reached refuses nobody.

The headers are those of the IETF's draft “RateLimit header fields for HTTP”, as structured fields.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.cache import caches
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.views import APIView

from runs.logs.events import Outage
from runs.models import ApiToken
from runs.trail.asking import find_place

WINDOW = 60
"""Seconds that a quota is for. The windows of everybody begin with the minute."""
RESPITE = 10.0
"""Seconds for which a cache that did not answer isn't asked again: waiting for it would slow down every request."""
PARTS = 100
"""In how many parts the cache hears of a quota."""
READ_METHODS = ("GET", "HEAD", "OPTIONS")

read_time = time.time


@dataclass(frozen=True, slots=True)
class Quota:
    """What somebody may do in this minute, and has done; ``used`` is None where nobody counts."""

    name: str
    limit: int
    used: int | None
    seconds_left: int

    @property
    def is_exceeded(self) -> bool:
        return self.used is not None and self.used > self.limit

    def to_headers(self) -> dict[str, str]:
        """The fields that tell of it."""
        headers = {"RateLimit-Policy": f'"{self.name}";q={self.limit};w={WINDOW}'}
        if self.used is not None:
            headers["RateLimit"] = f'"{self.name}";r={max(0, self.limit - self.used)};t={self.seconds_left}'
        return headers


class RequestCounter:
    """Counts requests in Django's cache, and does without it while it is away.

    The cache hears of every hundredth part of a quota at once: to ask Redis costs more than many a request does. So
    each process may let through a hundredth too much.
    """

    def __init__(self) -> None:
        self._outage = Outage("The cache that counts requests")
        self._asked_again_at = 0.0
        self._lock = threading.Lock()
        self._window = 0
        self._known: dict[str, int] = {}
        """What the cache said last, by who asks, in this window."""
        self._untold: dict[str, int] = {}
        """Requests that it has not heard of."""

    def count(self, who: str, window: int, limit: int) -> int | None:
        """How many requests there were in this window, with this one; None if nobody knows."""
        with self._lock:
            if window != self._window:
                self._window = window
                self._known.clear()
                self._untold.clear()
            self._untold[who] = untold = self._untold.get(who, 0) + 1
            known = self._known.get(who)
            if known is not None and untold < limit // PARTS:
                return known + untold
            if self._outage.goes_on and time.monotonic() < self._asked_again_at:
                return None
            self._untold[who] = 0
        number = self._tell(f"requests:{who}:{window}", untold)
        if number is not None:
            with self._lock:
                if window == self._window:
                    self._known[who] = number
        return number

    def _tell(self, key: str, count: int) -> int | None:
        try:
            number = _increase(key, count)
        except Exception as error:  # noqa: BLE001  # whichever cache it is, its errors are its own
            self._asked_again_at = time.monotonic() + RESPITE
            self._outage.note(error)
            return None
        self._outage.end()
        return number


def _increase(key: str, count: int) -> int:
    cache = caches["throttling"]
    try:
        return cache.incr(key, count)
    except ValueError:
        # It is the first one of its window, unless another was faster.
        return count if cache.add(key, count, timeout=2 * WINDOW) else cache.incr(key, count)


counter = RequestCounter()


class ThrottledView(APIView):
    """Counts each request as soon as it is known who asks, and tells in every answer how many more there may be.

    Django REST framework's own throttles keep a list of all requests of a minute for everybody, tell nobody what is
    left, and don't see who is refused before them.
    """

    _quota: Quota | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Count before anything else can be wrong with the request."""
        self.perform_authentication(request)
        super().initial(request, *args, **kwargs)

    def perform_authentication(self, request: Request) -> None:
        """Find out who asks, and count it, once. Raises ``Throttled``."""
        if self._quota is not None:
            return
        try:
            super().perform_authentication(request)
        except exceptions.APIException:
            self._count(request, "strangers", _find_address(request))
            raise
        name = "reads" if request.method in READ_METHODS else "writes"
        if isinstance(request.auth, ApiToken):
            self._count(request, name, f"token:{request.auth.pk}")
        elif request.user.is_authenticated:
            self._count(request, name, f"user:{request.user.pk}")
        else:
            self._count(request, "strangers", _find_address(request))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """The answer, which tells what is left."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        if self._quota is not None:
            for name, value in self._quota.to_headers().items():
                answer[name] = value
        return answer

    def _count(self, request: Request, name: str, who: str) -> None:
        now = read_time()
        limit: int = getattr(settings, f"TOOLFLOW_API_{name.upper()}_PER_MINUTE")
        used = counter.count(f"{name}:{who}", int(now // WINDOW), limit)
        self._quota = quota = Quota(name, limit, used, math.ceil(WINDOW - now % WINDOW))
        if quota.is_exceeded:
            raise exceptions.Throttled(quota.seconds_left)


def _find_address(request: Request) -> str:
    # A server behind a proxy may have it from a header, which holds what its sender likes.
    address = find_place(str(request.META.get("REMOTE_ADDR", "")))
    return f"address:{hashlib.blake2b(address.encode(errors='replace'), digest_size=12).hexdigest()}"
