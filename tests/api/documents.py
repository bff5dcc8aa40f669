"""Reading documents over the API."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse

from tests.api.asking import Script, read_problem

SIGN_IN_QUERIES = 2
"""Those that let somebody in who sends a token: the token with its owner, and the owner's permissions."""


def read(script: Script, path: str) -> Any:
    """What is answered, which must be a document."""
    answer = script.get(path)
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "application/json"
    return json.loads(answer.content)


def settle(script: Script) -> None:
    """Have the use of the token noted, so that what follows costs no query for it."""
    script.get("nowhere")


def read_json(answer: HttpResponse, status: int = 200) -> Any:
    """The document in an answer, which must have that status."""
    assert answer.status_code == status, answer.content.decode()[:500]
    return json.loads(answer.content)


def list_wrong(answer: HttpResponse, status: int) -> list[str]:
    """The pointers or parameters that a problem names, which must have that status."""
    problem = read_problem(answer)
    assert problem["status"] == status, problem
    return [error["pointer"] if "pointer" in error else error["parameter"] for error in problem["errors"]]
