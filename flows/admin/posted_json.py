"""What the editor's pages and scripts post, and answers that scripts can show."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from flows.engine.json_values import parse_object
from flows.publishing import NOTE_LENGTH

MAX_BYTES = 256 * 1024
"""Size of the body of a request."""


class PostedError(ValueError):
    """What was posted can't be read; its text is one sentence."""


def read_posted_json(request: HttpRequest, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The JSON object that was posted. Raises ``PostedError`` if it is none, or larger than ``max_bytes``."""
    # Not `request.body`: of a form that CSRF protection has read already there is none.
    body = request.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise PostedError(f"That is more than {max_bytes // 1024} KB. Make the text smaller.")
    try:
        return parse_object(body.decode())
    except UnicodeDecodeError:
        raise PostedError("The request can’t be read: it is not text in UTF-8.") from None
    except ValueError as error:
        raise PostedError(f"The request can’t be read. {error}") from None


def get_text(posted: dict[str, Any], name: str) -> str:
    """A text among what was posted, empty if it is not there. Raises ``PostedError`` for anything else."""
    value = posted.get(name, "")
    if not isinstance(value, str):
        raise PostedError(f"“{name}” must be text.")
    return value


def get_number(posted: dict[str, Any], name: str, *, most: int) -> int | None:
    """A whole number from 0 to ``most``, None if it is not there or null. Raises ``PostedError`` for anything else."""
    value = posted.get(name)
    # To Python, True is an integer.
    if value is not None and (type(value) is not int or not 0 <= value <= most):
        raise PostedError(f"“{name}” must be a whole number from 0 to {most}.")
    return value


def parse_number(text: str, *, max_digits: int = 9) -> int | None:
    """A whole number as it is typed; None for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= max_digits else None


def read_note(request: HttpRequest, *, max_length: int = NOTE_LENGTH) -> tuple[str, str]:
    """The note of a version that a form sent, and a sentence if it is too long."""
    note = " ".join(request.POST.get("note", "").replace("\0", "").split())
    if len(note) > max_length:
        return note, f"The note has {len(note)} characters; at most {max_length} are stored."
    return note, ""


def refuse_unreadable(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer 400 with the sentence of a ``PostedError`` that the view raises."""

    @wraps(view)
    def answered(request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except PostedError as error:
            problem = {"message": str(error), "path": "", "line": None, "column": None}
            return JsonResponse({"error": str(error), "problems": [problem], "warnings": []}, status=400)

    return answered
