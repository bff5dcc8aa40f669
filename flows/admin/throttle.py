"""How often one user may ask for what the editor's pages ask for by themselves. ``flows.throttle`` counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponseBase, JsonResponse

from flows.throttle import find_wait

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
            wait = find_wait(scope, request.user.pk, most=most, seconds=seconds, now=time.time())
            if not wait:
                return view(request, *args, **kwargs)
            unit = "second" if wait == 1 else "seconds"
            sentence = f"That was too often in a short time. Try again in {wait} {unit}."
            return JsonResponse({"error": sentence}, status=429, headers={"Retry-After": str(wait)})

        return limited

    return decorate
