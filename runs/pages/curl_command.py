"""The command that starts a run over the REST API."""

from __future__ import annotations

import json
import shlex
from typing import Any

LONGEST = 20_000
"""Characters; what is longer than a terminal takes gladly is not offered."""


def build_curl_command(address: str, flow_name: str, version: int, input: Any) -> str | None:
    """A shell command that starts a run of a version of ``flow_name`` with ``input``; None if it would be too long.

    ``address`` is where runs are posted to. The token is read from the environment of whoever runs the command. All of
    it is ASCII, without quotes, exclamation marks, line breaks or invisible characters in the input: whatever the input
    holds, every shell reads it as one word.
    """
    body = json.dumps({"flow": flow_name, "version": version, "input": input}, ensure_ascii=True)
    # Only texts hold these, so that JSON's own escapes say the same.
    for character in "'!\x7f":
        body = body.replace(character, f"\\u{ord(character):04x}")
    command = (
        f"curl -X POST {shlex.quote(address)} \\\n"
        '  -H "Authorization: Bearer $TOOLFLOW_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  --data '{body}'"
    )
    return command if len(command) <= LONGEST else None
