"""Reading documents over the API."""

from __future__ import annotations

import json
from typing import Any

from tests.api.asking import Script

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
