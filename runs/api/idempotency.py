"""Requests that may be sent again: ``Idempotency-Key``.

What a request makes and the answer to it are stored in one transaction: whoever asks again, because the answer never
came, gets that answer, and nothing is made twice. Requests with the same key take turns: the second one waits in the
database until the first has ended, and finds its answer, or, if that made nothing, does what is asked for.

The answer is written once, at the end, and only one answer fits under a key. Whoever made something in vain, since
another one came first after all, takes it back and gives the other's answer.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial, wraps
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from django.conf import settings
from django.db import IntegrityError, OperationalError, connection, transaction
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.crypto import salted_hmac
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.base import ApiView
from runs.api.problems import ApiProblem, Conflict
from runs.models import IdempotentRequest
from runs.models.run import in_future
from runs.prepared_select import PreparedSelect

KEPT_FOR = timedelta(hours=24)
FORGET_EVERY = 10
"""New answers of one process after which old ones are deleted."""
BATCH = 200
"""Old answers that are deleted at a time."""
LONGEST_KEY = 255
"""Characters."""
PATIENCE = "5s"
"""How long a request waits for another one of the same key, on PostgreSQL. SQLite lets all writers wait alike."""

_LOCK_NOT_AVAILABLE = "55P03"
_TRIES = 3
_turns = itertools.count()

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
    return note.answer(prepare) if stored is None else _replay(stored)


class _Answer(NamedTuple):
    """What was answered to a request, as it is stored."""

    id: int
    fingerprint: str
    status: int
    headers: dict[str, str]
    body: str
    created_at: datetime


_STORED = PreparedSelect(
    lambda who: IdempotentRequest.objects.filter(user=who[0], key=who[1]).order_by().values_list(*_Answer._fields),
    kinds=(int, str),
)


class _NothingMadeError(Exception):
    """The answer says that nothing was made: whatever was written goes, and the answer is given."""

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response


class _CameSecondError(Exception):
    """Another request with the key has been answered: whatever was written goes."""


class _Note:
    """The note of what is answered to one request."""

    def __init__(self, request: Request, key: str) -> None:
        self._request = request
        self._user: Any = request.user
        self._key = key
        self._said = _read_request(request)
        self._outdated: int | None = None
        """The number of an answer that is too old, which is in the way of a new one."""

    def find(self) -> _Answer | None:
        """The answer that the request got before. Raises ``Conflict`` if another one has its key."""
        answer = next((_Answer(*row) for row in _STORED.fetch([self._user.pk, self._key])), None)
        self._outdated = None
        if answer is not None and answer.created_at < timezone.now() - KEPT_FOR:
            self._outdated = answer.id
            return None
        if answer is not None and answer.fingerprint not in _take_fingerprints(self._said):
            raise Conflict(
                "idempotency-key-reused",
                f"The Idempotency-Key “{self._key[:40]}” was sent with another request in the last 24 hours; "
                "take a new key for each thing to be made.",
            )
        return answer

    def answer(self, prepare: Callable[[], Make]) -> HttpResponseBase:
        """What is made answers; or what somebody else was answered who came first after all."""
        for _ in range(_TRIES):
            try:
                return self._make(prepare())
            except _NothingMadeError as nothing:
                return nothing.response
            except _CameSecondError:
                pass
            except Exception:
                # What the first one made may be what is in the way, such as a flow of that name.
                if (answer := self.find()) is None:
                    raise
                return _replay(answer)
            if (answer := self.find()) is not None:
                return _replay(answer)
        raise _in_use()

    def _make(self, make: Make) -> HttpResponseBase:
        with transaction.atomic():
            if _had_to_wait(f"{self._user.pk} {self._key}") and self.find() is not None:
                raise _CameSecondError
            response = self._render(make())
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                raise _NothingMadeError(response)
            if self._outdated is not None:
                IdempotentRequest.objects.filter(pk=self._outdated).delete()
            self._store(response)
            if next(_turns) % FORGET_EVERY == 0:
                _forget_old()
            return response

    def _store(self, response: HttpResponse) -> None:
        answer = IdempotentRequest(
            user=self._user,
            key=self._key,
            fingerprint=next(_take_fingerprints(self._said)),
            status=response.status_code,
            headers=dict(response.items()),
            body=response.content.decode(),
        )
        try:
            answer.save(force_insert=True)
        except IntegrityError as error:
            raise _CameSecondError from error

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


def _replay(answer: _Answer) -> HttpResponse:
    headers = {**answer.headers, "Idempotency-Replayed": "true"}
    return HttpResponse(answer.body, status=answer.status, headers=headers)


def _had_to_wait(name: str) -> bool:
    """Let requests of that name take turns until the transaction ends; tells whether this one had to wait for another.

    SQLite lets all that write take turns anyhow. Raises ``ApiProblem`` after ``PATIENCE``.
    """
    if connection.vendor != "postgresql":
        return False
    number = int.from_bytes(blake2b(f"idempotency {name}".encode(), digest_size=8).digest(), "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        if cursor.fetchone()[0]:
            return False
        try:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [PATIENCE])
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [number])
            cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") == _LOCK_NOT_AVAILABLE:
                raise _in_use() from error
            raise
    return True


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
