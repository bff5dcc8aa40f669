"""Requests that may be sent again: ``Idempotency-Key``.

What a request makes and the answer to it are stored in one transaction: whoever asks again, because the answer never
came, gets that answer, and nothing is made twice. Requests with the same key take turns: the second one waits in the
database until the first has ended, and finds its answer, or, if that made nothing, does what is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial, wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.crypto import salted_hmac
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.problems import ApiProblem, Conflict
from runs.api.view import ApiView
from runs.models import IdempotentRequest
from runs.models.run import in_future

KEPT_FOR = timedelta(hours=24)
BATCH = 20
"""Old answers that a new request deletes at most."""
LONGEST_KEY = 255
"""Characters."""
PATIENCE = "5s"
"""How long a request waits for another one of the same key, on PostgreSQL. SQLite lets all writers wait alike."""

_LOCK_NOT_AVAILABLE = "55P03"
_TRIES = 3

Make = Callable[[], HttpResponseBase]

_View = TypeVar("_View", bound=ApiView)
_Args = ParamSpec("_Args")


def idempotent(
    method: Callable[Concatenate[_View, Request, _Args], HttpResponseBase],
) -> Callable[Concatenate[_View, Request, _Args], HttpResponseBase]:
    """A method of a view that gives a request with a known ``Idempotency-Key`` the answer that it got before.

    With a key the whole method runs in one transaction, and what it makes is only kept if it answers 2xx or 3xx.
    """

    @wraps(method)
    def answer(view: _View, request: Request, /, *args: _Args.args, **kwargs: _Args.kwargs) -> HttpResponseBase:
        return answer_once(request, lambda: partial(method, view, request, *args, **kwargs))

    return answer


def answer_once(request: Request, prepare: Callable[[], Make]) -> HttpResponseBase:
    """The answer to a request that makes something, or the one that it got before.

    ``prepare`` checks what is asked for, without writing, and gives what makes it and answers: that runs in one
    transaction with the note of the answer. Whatever either raises is raised, and nothing is kept of it.

    Raises ``ApiProblem`` (400) for a key that is none, ``Conflict`` (409) if the key was used for something else or the
    first request with it is still under way.
    """
    key = _read_key(request)
    if key is None:
        return prepare()()
    note = _Note(request, key)
    stored = note.find()
    return note.answer(prepare()) if stored is None else _replay(stored)


class _NothingMadeError(Exception):
    """The answer says that nothing was made: whatever was written goes, and the answer is given."""

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response


class _Note:
    """The note of what is answered to one request."""

    def __init__(self, request: Request, key: str) -> None:
        self._request = request
        self._user: Any = request.user
        self._key = key
        self._said = _read_request(request)

    @property
    def _rows(self) -> Any:
        return IdempotentRequest.objects.filter(user=self._user, key=self._key)

    def find(self) -> IdempotentRequest | None:
        """The answer that the request got before. Raises ``Conflict`` if another one has its key."""
        row: IdempotentRequest | None = self._rows.filter(created_at__gte=in_future(-KEPT_FOR)).first()
        if row is not None and row.fingerprint not in _take_fingerprints(self._said):
            raise Conflict(
                "idempotency-key-reused",
                f"The Idempotency-Key “{self._key[:40]}” was sent with another request in the last 24 hours; "
                "take a new key for each thing to be made.",
            )
        return row

    def answer(self, make: Make) -> HttpResponseBase:
        """What ``make`` answers; or what somebody else was answered who came first after all."""
        try:
            with transaction.atomic():
                claim = self._claim()
                if claim.status is not None:
                    return _replay(claim)
                response = self._render(make())
                if response.status_code >= HTTPStatus.BAD_REQUEST:
                    raise _NothingMadeError(response)
                self._rows.update(
                    status=response.status_code,
                    headers=dict(response.items()),
                    body=response.content.decode(),
                )
                return response
        except _NothingMadeError as nothing:
            return nothing.response

    def _claim(self) -> IdempotentRequest:
        """The row of this key, which is locked: others see it only with its answer, so without one it is our own."""
        _forget_old()
        for _ in range(_TRIES):
            self._insert()
            claim = self.find()
            if claim is not None:
                return claim
            # It is old, and more than a batch were to be deleted before it.
            self._rows.filter(created_at__lt=in_future(-KEPT_FOR)).delete()
        raise _in_use()

    def _insert(self) -> None:
        fingerprint = next(_take_fingerprints(self._said))
        row = IdempotentRequest(user=self._user, key=self._key, fingerprint=fingerprint)
        if connection.vendor != "postgresql":
            IdempotentRequest.objects.bulk_create([row], ignore_conflicts=True)
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [PATIENCE])
            try:
                IdempotentRequest.objects.bulk_create([row], ignore_conflicts=True)
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") == _LOCK_NOT_AVAILABLE:
                    raise _in_use() from error
                raise
            cursor.execute("SET LOCAL lock_timeout TO DEFAULT")

    def _render(self, response: HttpResponseBase) -> HttpResponse:
        """The answer as it is sent, so that the same bytes are sent again."""
        if isinstance(response, Response):
            renderer: Any = self._request.accepted_renderer
            body = renderer.render(response.data, self._request.accepted_media_type, {})
            headers = {name: value for name, value in response.items() if name != "Content-Type"}
            media_type = response.content_type or renderer.media_type
            return HttpResponse(body, status=response.status_code, headers=headers, content_type=media_type)
        if not isinstance(response, HttpResponse):
            raise TypeError("A stream can't be answered twice.")
        return response


def _replay(row: IdempotentRequest) -> HttpResponse:
    headers = {**row.headers, "Idempotency-Replayed": "true"}
    return HttpResponse(row.body, status=row.status, headers=headers)


def _forget_old() -> None:
    """Delete some of the rows that are too old. Those that another request is about to delete are left to it."""
    old = IdempotentRequest.objects.filter(created_at__lt=in_future(-KEPT_FOR)).order_by("created_at")
    ids = list(old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:BATCH])
    if ids:
        IdempotentRequest.objects.filter(pk__in=ids).delete()


def _read_key(request: Request) -> str | None:
    key: str | None = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not key.strip() or not key.isprintable() or len(key) > LONGEST_KEY:
        raise ApiProblem(
            HTTPStatus.BAD_REQUEST,
            "invalid-idempotency-key",
            f"The Idempotency-Key must have 1 to {LONGEST_KEY} printable characters; a UUID is a good one.",
        )
    return key


def _read_request(request: Request) -> bytes:
    """What tells the request from another one with the same key: its method, its address and what its body says."""
    body = json.dumps(request.data, separators=(",", ":"), default=str)
    return f"{request.method} {request.get_full_path()}\n{body}".encode(errors="surrogatepass")


def _take_fingerprints(said: bytes) -> Iterator[str]:
    """What is stored of a request; then what was with secret keys of before.

    Without the key nobody can try out what a body held, which may be redacted in the run that it made.
    """
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        yield salted_hmac("runs.api.idempotency", said, secret=secret, algorithm="sha256").hexdigest()


def _in_use() -> ApiProblem:
    return ApiProblem(
        HTTPStatus.CONFLICT,
        "idempotency-key-in-use",
        "The first request with this Idempotency-Key is still under way; ask again in a moment.",
        headers={"Retry-After": "1"},
    )
