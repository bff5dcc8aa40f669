"""How often one user may ask for what the editor's pages ask for by themselves.

Fixed windows, counted in Django's default cache. Without ``CACHES`` in the settings that is the memory of one web
process: several of them count each for itself, and a user may ask that many times as often. That is enough to keep a
runaway page from holding the server; a shared cache makes the limit exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.core.cache import cache
from django.http import HttpRequest, HttpResponseBase, JsonResponse

_Arguments = ParamSpec("_Arguments")
_View = Callable[Concatenate[HttpRequest, _Arguments], HttpResponseBase]


def limit_rate(scope: str, *, most: int, seconds: int) -> Callable[[_View[_Arguments]], _View[_Arguments]]:
    """Let each user open a view at most ``most`` times in ``seconds``; beyond that it answers 429.

    The answer is ``{"error": sentence}`` with ``Retry-After`` in whole seconds. Views with the same ``scope`` share
    one count. For views behind ``AdminSite.admin_view``: users are told apart by their key.
    """

    def decorate(view: _View[_Arguments]) -> _View[_Arguments]:
        @wraps(view)
        def limited(request: HttpRequest, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> HttpResponseBase:
            window, elapsed = divmod(time.time(), seconds)
            if _count_request(f"toolflow-rate:{scope}:{request.user.pk}:{window:.0f}", seconds) <= most:
                return view(request, *args, **kwargs)
            wait = max(math.ceil(seconds - elapsed), 1)
            unit = "second" if wait == 1 else "seconds"
            sentence = f"That was too often in a short time. Try again in {wait} {unit}."
            return JsonResponse({"error": sentence}, status=429, headers={"Retry-After": str(wait)})

        return limited

    return decorate


def _count_request(key: str, seconds: int) -> int:
    """How many requests ``key`` has seen, this one included."""
    cache.add(key, 0, timeout=seconds)
    try:
        return cache.incr(key)
    except ValueError:
        # The cache dropped the key between the two: a full one makes room, and counting starts anew.
        return 1
