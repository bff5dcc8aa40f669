"""How often one user may ask for what costs the server time: fixed windows, counted in Django's default cache.

That is the memory of one web process: several of them count each for itself, and a user may ask that many times as
often. It is enough to keep a runaway page or script from holding the server.
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


def count_request(scope: str, user_id: int | None, *, most: int, seconds: int, now: float) -> int:
    """Count one more request of a user; gives the whole seconds that it has to wait, 0 if it may be answered.

    At most ``most`` are answered in each window of ``seconds``; requests with the same ``scope`` share one count.
    ``now`` is the time in seconds since 1970.
    """
    window, elapsed = divmod(now, seconds)
    key = f"toolflow-rate:{scope}:{user_id}:{window:.0f}"
    cache.add(key, 0, timeout=seconds)
    try:
        count = cache.incr(key)
    except ValueError:  # a full cache dropped the key meanwhile
        count = 1
    return 0 if count <= most else max(math.ceil(seconds - elapsed), 1)


def limit_rate(scope: str, *, most: int, seconds: int) -> Callable[[_View[_Arguments]], _View[_Arguments]]:
    """Let each user open a view at most ``most`` times in ``seconds``; beyond that it answers 429.

    The answer is ``{"error": sentence}`` with ``Retry-After`` in whole seconds. For views behind
    ``AdminSite.admin_view``: users are distinguished by their key.
    """

    def decorate(view: _View[_Arguments]) -> _View[_Arguments]:
        @wraps(view)
        def limited(request: HttpRequest, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> HttpResponseBase:
            wait = count_request(scope, request.user.pk, most=most, seconds=seconds, now=time.time())
            if not wait:
                return view(request, *args, **kwargs)
            sentence = f"Too many requests. Try again in {wait} s."
            return JsonResponse({"error": sentence}, status=429, headers={"Retry-After": str(wait)})

        return limited

    return decorate
