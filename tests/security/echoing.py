"""A provider that repeats the key that it was sent, in every place of an answer that is read."""

from __future__ import annotations

import json
from typing import Any


def _make_completion(message: dict[str, Any], **parts: Any) -> str:
    return json.dumps({"id": "1", "model": "m", "choices": [{"finish_reason": "stop", "message": message}], **parts})


def _make_call(arguments: str, name: str = "tool_1") -> str:
    return _make_completion({"tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]})


def _escape(text: str) -> str:
    return "".join(sign if sign.isalnum() else f"\\u{ord(sign):04x}" for sign in text)


def list_answers(key: str) -> list[tuple[int, str, str]]:
    """Status, type and body of each answer."""
    error = json.dumps({"error": {"message": f"Incorrect API key provided: {key}.", "code": key}})
    return [
        (401, "application/json", error),
        (500, "text/html", f"<title>Proxy: Authorization: Bearer {key}</title>"),
        (400, "text/plain", f"Headers were {{'Authorization': 'Bearer {key}'}}"),
        (200, "application/json", f"{{not json, but {key}"),
        (200, f"text/{key}", "not json"),
        (200, "application/json", json.dumps({"id": key, "choices": [], "error": {"message": key}})),
        (307, "text/plain", key),
        (429, "application/json", json.dumps({"detail": key})),
        # Answers that can be used.
        (200, "application/json", _make_call(json.dumps({"text": f"Echo: {key}"}))),
        (200, "application/json", _make_call(f'{{"text": "Echo: {_escape(key)}"}}')),
        (
            200,
            "application/json",
            _make_completion(
                json.loads(_make_call('{"text": "Echo: [key]"}'))["choices"][0]["message"], id=key, model=key
            ),
        ),
        # And those that can't.
        (200, "application/json", _make_call(json.dumps({"text": f"Echo: {key}"})[:-1])),
        (200, "application/json", _make_call("{}", name=key)),
        (200, "application/json", _make_completion({"content": f"Echo: {key}"})),
        (200, "application/json", _make_completion({"refusal": f"Echo: {key}"})),
    ]


ANSWERS = len(list_answers(""))
USABLE = 3
"""How many of the answers pass."""


class EchoingProvider:
    """Gives the answer number ``way``."""

    def __init__(self) -> None:
        self.way = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        key = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        status, kind, body = list_answers(key)[self.way]
        headers = [(b"content-type", kind.encode()), (b"x-request-id", f"req_{self.way} {key}".encode())]
        if status == 307:
            headers.append((b"location", f"https://elsewhere.example/?key={key}".encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})
