"""What is answered, and logged, where a request is refused."""

from __future__ import annotations

import logging
import sys
from http import HTTPStatus

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import (
    DisallowedHost,
    PermissionDenied,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.defaults import bad_request, page_not_found, permission_denied, server_error

from runs.management.storage_problems import find_remedy

_ACTIONS = {
    "changelist": ("view", "see"),
    "history": ("view", "see"),
    "add": ("add", "add"),
    "change": ("view", "see"),
    "password_change": ("change", "change"),
    "delete": ("delete", "delete"),
}
"""What the admin's own views need, by how their addresses are named; and in words."""
_SAVED = {"changelist": ("change", "change"), "change": ("change", "change")}
"""The same for forms that were sent."""


def show_bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The page for a request that can’t be read; 413 with the limit for one that is too large.

    Scripts, which ask the API, get a problem document like all others.
    """
    if _is_of_api(request):
        return _describe_bad_request(exception)
    match exception:
        case RequestDataTooBig():
            most = f"{(settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0) / 1_000_000:g} MB"
            problem = f"What was sent is larger than {most}, the most that a form may have. The API takes more."
        case TooManyFieldsSent():
            problem = f"The form has more than {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:,} fields, the most it may have."
        case TooManyFilesSent():
            problem = f"More than {settings.DATA_UPLOAD_MAX_NUMBER_FILES} files were sent, the most a form may have."
        case _:
            return bad_request(request, exception)
    return render(None, "413.html", {"problem": problem}, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def _is_of_api(request: HttpRequest) -> bool:
    """Whether the request is for the API, also with a double slash where the base address ends."""
    return f"{request.path_info}/".lstrip("/").startswith("api/")


def _describe_bad_request(exception: Exception) -> HttpResponse:
    status = HTTPStatus.BAD_REQUEST
    sentence = "ToolFlow can’t read this request: its headers or its address are not valid."
    match exception:
        case DisallowedHost():
            sentence = (
                "The header “Host” names no host of this installation: ask by an address that it is reached under, "
                "or add the host to TOOLFLOW_ALLOWED_HOSTS."
            )
        case RequestDataTooBig() | TooManyFieldsSent() | TooManyFilesSent():
            status, sentence = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large."
    return build_problem(status, sentence)


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
    if _is_of_api(request):
        return build_problem(HTTPStatus.NOT_FOUND, "There is nothing here.")
    return page_not_found(request, exception)


def show_fault(request: HttpRequest) -> HttpResponse:
    """The page for a fault of ours; for scripts a problem document, with 503 if the database is what is away.

    Endpoints answer for themselves: this is for what fails around them.
    """
    if not _is_of_api(request):
        return server_error(request)
    if isinstance(sys.exception(), OperationalError | InterfaceError):
        sentence = "The database is not available. Try again soon."
        return build_problem(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
    return build_problem(HTTPStatus.INTERNAL_SERVER_ERROR, "ToolFlow failed. The server’s log says why.")


def show_refusal(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The page for what the user may not do; it names the missing permission."""
    if _is_of_api(request):
        return build_problem(HTTPStatus.FORBIDDEN, str(exception) or "You may not do that.")
    if not exception.args and (sentence := _explain(request)):
        exception = PermissionDenied(sentence)
    return permission_denied(request, exception)


def _explain(request: HttpRequest) -> str:
    """What the user lacks for one of the admin's own pages; empty if this is none."""
    match = request.resolver_match
    if match is None or match.app_name != "admin" or match.url_name is None:
        return ""
    for model in admin.site._registry:
        options = model._meta
        action = match.url_name.removeprefix(f"{options.app_label}_{options.model_name}_")
        if action == match.url_name or action not in _ACTIONS:
            continue
        needed, verb = (_SAVED if request.method == "POST" else _ACTIONS).get(action, _ACTIONS[action])
        what = f"{options.app_label}.{needed}_{options.model_name}"
        return f"You may not {verb} {options.verbose_name_plural}: your account lacks “{what}”."
    return ""


class BriefRefusals(logging.Filter):
    """Takes the traceback from refused requests, and from a disk that is full: nothing is wrong with ToolFlow."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through."""
        status = getattr(record, "status_code", None)
        if isinstance(status, int) and HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            record.exc_info = record.exc_text = None
        elif (
            record.exc_info
            and isinstance(error := record.exc_info[1], DatabaseError)
            and (remedy := find_remedy(error))
        ):
            record.msg, record.args = f"{record.getMessage()} ({error}) {remedy}", ()
            record.exc_info = record.exc_text = None
        return True
