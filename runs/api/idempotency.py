"""Requests that may be sent again: ``Idempotency-Key``.

The answer is stored in the transaction of its effect. Requests with the same key wait for each other in the database:
the second one finds the answer of the first, or, if that made nothing, does what is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.crypto import salted_hmac
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import find_user
from runs.api.base import ApiView
from runs.api.problems import ApiProblem, Conflict
from runs.models import IdempotentRequest

KEPT_FOR = timedelta(hours=24)
MAX_KEY_LENGTH = 255
LOCK_TIMEOUT = "5s"
"""How long a request waits for another one of the same key, on PostgreSQL. SQLite lets all writers wait alike."""

_LOCK_NOT_AVAILABLE = "55P03"

_View = TypeVar("_View", bound=ApiView)
_Args = ParamSpec("_Args")
_Method = Callable[Concatenate[_View, Request, _Args], HttpResponseBase]


def idempotent(method: _Method[_View, _Args]) -> _Method[_View, _Args]:
    """A method of a view that gives a request with a known ``Idempotency-Key`` the answer that it got before.

    With a key the method runs in one transaction, which is undone where it raises.
    Raises ``ApiProblem`` (400) for a key that is not valid, ``Conflict`` (409) if the key was used for something else,
    ``ApiProblem`` (409) if the first request with it is still under way.
    """

    @wraps(method)
    def answer(view: _View, request: Request, /, *args: _Args.args, **kwargs: _Args.kwargs) -> HttpResponseBase:
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return method(view, request, *args, **kwargs)
        if not key.strip() or not key.isprintable() or len(key) > MAX_KEY_LENGTH:
            sentence = f"The Idempotency-Key must have 1 to {MAX_KEY_LENGTH} printable characters, such as a UUID."
            raise ApiProblem(HTTPStatus.BAD_REQUEST, "invalid-idempotency-key", sentence)
        with transaction.atomic():
            _lock(request, key)
            stored = IdempotentRequest.objects.filter(user=find_user(request), key=key).first()
            if stored is not None and stored.created_at >= timezone.now() - KEPT_FOR:
                return _replay(stored, request)
            made: Any = method(view, request, *args, **kwargs)
            response = view.finalize_response(request, made)
            assert isinstance(response, HttpResponse), "A stream can't be sent twice."
            if isinstance(response, Response):
                response.render()
            if stored is not None:
                stored.delete()
            _store(request, key, response)
            return response

    answer.is_idempotent = True  # type: ignore[attr-defined]  # the reference shows it
    return answer


def _lock(request: Request, key: str) -> None:
    """Let requests of that key wait for each other until the transaction ends.

    Transactions of SQLite do so by themselves: they begin with the lock that writing takes.
    """
    if connection.vendor != "postgresql":
        return
    name = f"idempotency {request.user.pk} {key}".encode()
    number = int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        if cursor.fetchone()[0]:
            return
        try:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [number])
            cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") == _LOCK_NOT_AVAILABLE:
                raise build_in_use_problem() from error
            raise


def build_in_use_problem() -> ApiProblem:
    """The answer to a request whose key another one holds that takes too long."""
    sentence = "The first request with this Idempotency-Key is still in progress. Try again in a moment."
    return ApiProblem(HTTPStatus.CONFLICT, "idempotency-key-in-use", sentence, headers={"Retry-After": "1"})


def _replay(stored: IdempotentRequest, request: Request) -> HttpResponse:
    if stored.fingerprint not in _list_fingerprints(request):
        raise Conflict(
            "idempotency-key-reused",
            f"The Idempotency-Key “{stored.key[:40]}” was sent with another request in the last 24 hours; "
            "use a new key for each request.",
        )
    headers = {**stored.headers, "Idempotency-Replayed": "true"}
    return HttpResponse(stored.body, status=stored.status, headers=headers)


def _list_fingerprints(request: Request) -> list[str]:
    """What is stored of method, address and body; then the same with previous secret keys.

    Without the secret key it can't be found by trial what a body held, which may be redacted in the run that it made.
    """
    body = json.dumps(request.data, separators=(",", ":"), default=str)
    text = f"{request.method} {request.get_full_path()}\n{body}".encode(errors="surrogatepass")
    return [
        salted_hmac("runs.api.idempotency", text, secret=secret, algorithm="sha256").hexdigest()
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    ]


def _store(request: Request, key: str, response: HttpResponse) -> None:
    IdempotentRequest.objects.create(
        user=find_user(request),
        key=key,
        fingerprint=_list_fingerprints(request)[0],
        status=response.status_code,
        headers=dict(response.items()),
        body=response.content.decode(),
    )
