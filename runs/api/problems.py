"""What the API answers when a request can't be done: problem documents (RFC 9457), the same shape for every status."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse
from django.utils.log import log_response
from pydantic import ValidationError
from pydantic_core import to_json
from rest_framework import exceptions
from rest_framework.views import set_rollback

from flows.engine.errors import Problem, ProblemsError
from flows.engine.json_values import format_pointer
from runs.observability.log_events import read_request_id

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100
"""Errors that one answer lists."""

_log = logging.getLogger(__name__)


class ApiProblem(exceptions.APIException):
    """A request that can't be done: a status, a type for programs, and a sentence.

    ``errors`` say what is wrong where: their paths are JSON pointers into the body, or names of query parameters.
    """

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        detail: str,
        *,
        errors: Iterable[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status_code = status
        self.kind = kind
        self.sentence = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


class InvalidBody(ApiProblem):
    """What the body says can't be: status 422."""

    def __init__(self, errors: Sequence[Problem], detail: str = "") -> None:
        count = f"{len(errors)} mistakes" if len(errors) < MAX_ERRORS else f"{MAX_ERRORS} mistakes or more"
        sentence = detail or f"The body has {'a mistake' if len(errors) == 1 else count}."
        super().__init__(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-body", sentence, errors=errors)


class InvalidQuery(ApiProblem):
    """Query parameters that are not valid: status 400."""

    def __init__(self, errors: Sequence[Problem]) -> None:
        detail = errors[0].message if len(errors) == 1 else f"{len(errors)} query parameters are not valid."
        super().__init__(HTTPStatus.BAD_REQUEST, "invalid-query", detail, errors=errors)


class Conflict(ApiProblem):
    """What is asked for doesn't fit what is: status 409."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(HTTPStatus.CONFLICT, kind, detail)


STATUSES = {
    400: ("bad-request", "A query parameter is unknown or not valid, or the body is not JSON."),
    401: ("not-authenticated", "No token was sent, or it is unknown, revoked or expired."),
    403: ("forbidden", "The token’s scope or its owner’s permissions don’t allow this."),
    404: ("not-found", "Nothing exists at this address."),
    405: ("method-not-allowed", "The address does not allow this method."),
    406: ("not-acceptable", "No media type in the Accept header is available."),
    408: ("body-too-slow", "The body did not arrive in time."),
    409: ("", "The request conflicts with the current state; the detail says why."),
    411: ("length-required", "The body came in chunks, and this server needs a `Content-Length`."),
    412: ("", "It has changed since it was read."),
    413: ("too-large", "The body is too large, or the query has too many parameters."),
    415: ("unsupported-media-type", "The media type in the Content-Type header is not supported."),
    422: ("", "The body is not valid; `errors` lists each problem with a JSON pointer."),
    429: ("throttled", "Too many requests; `Retry-After` says in how many seconds to try again."),
    500: ("internal-error", ""),
    501: ("", "This server can’t stream events; it needs ASGI."),
    503: ("unavailable", "The database is not available; try again soon."),
}
"""The type of a problem that its status alone explains, and what the status means in general.

Other types are named where they are raised. Without a meaning, a status is left out of the OpenAPI document.
"""

_MESSAGES = {"missing": "This is missing.", "extra_forbidden": "Unknown field."}
"""By the type of an error, where pydantic's own message says less."""


def list_problems(error: ValidationError) -> list[Problem]:
    """What pydantic found, by JSON pointer."""
    return [
        Problem(format_pointer(one["loc"]), _MESSAGES.get(one["type"]) or _write_sentence(one["msg"]))
        for one in error.errors(include_url=False, include_input=False)
        # That a field may be ``Omitted`` is not a hint.
        if one["type"] != "none_required"
    ]


def _write_sentence(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text if text.endswith(".") else f"{text}."


def build_document(
    status: HTTPStatus, detail: str, *, kind: str = "", errors: Sequence[Problem] = ()
) -> dict[str, Any]:
    """The problem document."""
    document: dict[str, Any] = {
        "type": f"urn:toolflow:problem:{kind or STATUSES[status][0]}",
        "title": _TITLES.get(status, status.phrase),
        "status": int(status),
        "detail": detail,
    }
    if (request_id := read_request_id()) is not None:
        document["request_id"] = request_id
    if errors:
        document["errors"] = [_write_error(error, status) for error in errors[:MAX_ERRORS]]
    return document


_TITLES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Content Too Large",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Content",
}
"""Where Python's phrase is an older one."""


def _write_error(error: Problem, status: HTTPStatus) -> dict[str, str]:
    where = "parameter" if status == HTTPStatus.BAD_REQUEST else "pointer"
    # Names in a body may hold half of a character, which can't be sent.
    return {"detail": _make_sendable(error.message), where: _make_sendable(error.path)}


def _make_sendable(text: str) -> str:
    return text.encode(errors="replace").decode()


def handle_exception(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """The answer to an exception that an endpoint raised, whatever it is; none leads to another shape."""
    set_rollback()
    problem = _translate(error)
    if problem.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        request = context["request"]
        _log.error("%s %s failed.", request.method, request.path, exc_info=error)
    document = build_document(
        HTTPStatus(problem.status_code), problem.sentence, kind=problem.kind, errors=problem.errors
    )
    # JSON, whatever else the request accepts.
    response = HttpResponse(
        to_json(document), status=problem.status_code, headers=problem.headers, content_type=MEDIA_TYPE
    )
    if isinstance(error, ApiProblem) and problem.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # No fault: that this server can’t stream, or has enough streams open. Django would call it an error each time.
        request = context["request"]._request
        log_response("%s: %s", error.kind, request.path, response=response, request=request, logger=_log, level="info")
    return response


def _translate(error: Exception) -> ApiProblem:
    headers: dict[str, str] = {}
    match error:
        case ApiProblem():
            return error
        case ProblemsError():
            return InvalidBody(error.problems)
        case Http404() | exceptions.NotFound():
            status, sentence = HTTPStatus.NOT_FOUND, "Not found: nothing exists at this address."
        case RequestDataTooBig() | TooManyFilesSent() | TooManyFieldsSent():
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            sentence = "The body is too large, or the query has too many parameters."
        case SuspiciousOperation():
            status = HTTPStatus.BAD_REQUEST
            sentence = "ToolFlow can’t read this request: its headers or its address are not valid."
        case exceptions.Throttled():
            seconds = max(1, round(getattr(error, "wait", None) or 1))
            status, headers = HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(seconds)}
            sentence = f"Too many requests. Try again in {seconds} seconds."
        case exceptions.NotAcceptable():
            given = ", ".join(dict.fromkeys(str(renderer.media_type) for renderer in error.available_renderers or ()))
            status = HTTPStatus.NOT_ACCEPTABLE
            sentence = f"No media type in the header “Accept” is available; use {given} or */*."
        case exceptions.APIException():
            challenge = getattr(error, "auth_header", None)
            headers = {"WWW-Authenticate": str(challenge)} if challenge else {}
            status = HTTPStatus(error.status_code)
            sentence = _SENTENCES.get(status, str(error.detail))
        case PermissionDenied():
            status, sentence = HTTPStatus.FORBIDDEN, str(error) or "You may not do that."
        case OperationalError() | InterfaceError():
            # Others, such as a value that no column takes, are faults of ours: a retry would not help.
            _log.error("The database is not available.", exc_info=error)
            status, sentence = HTTPStatus.SERVICE_UNAVAILABLE, "The database is not available. Try again soon."
        case _:
            status, sentence = HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. See the server’s log."
    return ApiProblem(status, STATUSES[status][0], sentence, headers=headers)


_SENTENCES = {
    HTTPStatus.METHOD_NOT_ALLOWED: "This address does not allow this method. See the header “Allow”.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: (
        "The media type in “Content-Type” is not supported; send application/json, or YAML where the reference says so."
    ),
}
