"""What is answered, and logged, where a request is refused or a disk is full."""

from __future__ import annotations

import errno
import logging
import sys
from http import HTTPStatus
from pathlib import Path

from django.conf import settings
from django.core.exceptions import (
    DisallowedHost,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

_ADMIN_ACTIONS = {"add": "add", "delete": "delete", "password_change": "change"}
"""What the admin's own views need; all others need to view, and to change what they were sent."""
_FULL = ("database or disk is full", "disk I/O error", errno.ENOSPC, errno.EDQUOT)
"""What SQLite says, and the error numbers of the system."""
_READ_ONLY = ("unable to open database file", "attempt to write a readonly database", errno.EROFS, errno.EACCES)


def build_error_page(status: HTTPStatus, text: str = "", *, is_of_form: bool = False) -> HttpResponse:
    """The page for a status, with ``text`` for what happened. It needs no user, no request and no database."""
    context = {"status": status.value, "title": status.phrase, "text": text, "is_of_form": is_of_form}
    return render(None, "error_page.html", context, status=status)


def show_bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The page for a request that can’t be read, with status 413 for one that is too large; a problem for scripts."""
    status = HTTPStatus.BAD_REQUEST
    problem = "ToolFlow can’t read this request: its headers or its address are not valid."
    match exception:
        case DisallowedHost():
            problem = (
                "The header “Host” does not name a host of this installation. Use a configured address, or "
                "add the host to TOOLFLOW_ALLOWED_HOSTS."
            )
        case RequestDataTooBig() | TooManyFieldsSent() | TooManyFilesSent():
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            size, files = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0, settings.DATA_UPLOAD_MAX_NUMBER_FILES
            fields = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
            problem = (
                f"A form may have {size / 1_000_000:g} MB, {fields:,} fields and {files} files. The API takes more."
            )
    return _answer(request, status, problem, problem if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else "")


def _answer(request: HttpRequest, status: HTTPStatus, problem: str, text: str = "") -> HttpResponse:
    """A problem document for scripts, else the page with ``text``."""
    return build_problem(status, problem) if _is_of_api(request) else build_error_page(status, text)


def _is_of_api(request: HttpRequest) -> bool:
    """Whether the request is for the API, also with a double slash where the base address ends."""
    return f"{request.path_info}/".lstrip("/").startswith("api/")


def build_problem(status: HTTPStatus, sentence: str) -> HttpResponse:
    """A problem document, for what fails before an endpoint of the API is asked, or after it has answered."""
    # Logging is set up by this module, in every command, and none of those needs the API.
    from runs.api.problems import MEDIA_TYPE, build_document

    document = build_document(status, sentence)
    return JsonResponse(
        document, status=status, content_type=MEDIA_TYPE, headers={"Cache-Control": "private, no-store"}
    )


def show_missing(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The page for an address that leads nowhere; for scripts a problem document."""
    return _answer(request, HTTPStatus.NOT_FOUND, "Not found: nothing exists at this address.")


def show_fault(request: HttpRequest) -> HttpResponse:
    """The page for a fault of ours; for scripts a problem document, with 503 if the database is what is away.

    Endpoints answer for themselves: this is for what fails around them.
    """
    if _is_of_api(request) and isinstance(sys.exception(), OperationalError | InterfaceError):
        return build_problem(HTTPStatus.SERVICE_UNAVAILABLE, "The database is not available. Try again soon.")
    return _answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. See the server’s log.")


def show_refusal(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The page for what the user may not do; it names the missing permission."""
    problem = str(exception)
    return _answer(request, HTTPStatus.FORBIDDEN, problem or "You may not do that.", problem or _explain(request))


def show_expired_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The page for a form without a valid token against forgery."""
    return build_error_page(HTTPStatus.FORBIDDEN, is_of_form=True)


def _explain(request: HttpRequest) -> str:
    """What the user lacks for one of the admin's own pages; empty if this is none."""
    match = request.resolver_match
    parts = (match.url_name or "").split("_", 2) if match is not None and match.app_name == "admin" else []
    if len(parts) < 3:
        return ""
    app, model, page = parts
    verb = _ADMIN_ACTIONS.get(page, "change" if request.method == "POST" else "view")
    return f"Your account lacks the permission “{app}.{verb}_{model}”."


class BriefRefusals(logging.Filter):
    """Takes the traceback from refused requests, and from a disk that is full: nothing is wrong with ToolFlow."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through."""
        status = getattr(record, "status_code", None)
        error = record.exc_info[1] if record.exc_info else None
        remedy = find_remedy(error) if isinstance(error, DatabaseError) else ""
        if remedy:
            record.msg, record.args = f"{record.getMessage()} ({error}) {remedy}", ()
        if remedy or (isinstance(status, int) and HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR):
            record.exc_info = record.exc_text = None
        return True


def find_remedy(error: BaseException | None) -> str:
    """What the operator has to do about an error, in one sentence; empty where it is none of storage."""
    if isinstance(error, OSError):
        what: object = error.errno
        folder = Path(error.filename).parent if error.filename else settings.TOOLFLOW_DATA_DIR
    else:
        what = str(error)
        folder = Path(settings.DATABASES["default"]["NAME"]).parent
    if what in _FULL:
        return f"Check the free space of the disk that holds {folder}."
    if what in _READ_ONLY:
        return f"The folder {folder} must exist, and this user must be able to write to it and to the files in it."
    return ""
