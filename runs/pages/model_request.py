"""The request of a model call as people read it: messages first, then the tool, then the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.json_value import parse_object
from runs.pages.json_lines import Listing, list_json, list_text


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message; ``is_json`` says that its content was JSON and is laid out as such."""

    role: str
    content: Listing
    is_json: bool


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request: its messages, its tools, and all other fields."""

    messages: tuple[ModelMessage, ...]
    tools: Listing | None
    settings: Listing


def read_model_request(request: Mapping[str, Any]) -> ModelRequest:
    """Take apart the stored body of a chat completions request."""
    messages = []
    for message in request.get("messages", []):
        content = message.get("content")
        parsed = _parse_object(content)
        shown = list_text(content) if isinstance(content, str) and parsed is None else list_json(parsed or content)
        messages.append(ModelMessage(str(message.get("role", "")), shown, parsed is not None))
    tools = request.get("tools")
    settings = {name: value for name, value in request.items() if name not in ("messages", "tools")}
    return ModelRequest(tuple(messages), list_json(tools) if tools else None, list_json(settings))


def _parse_object(content: object) -> dict[str, Any] | None:
    if not isinstance(content, str) or not content.startswith("{"):
        return None
    try:
        return parse_object(content)
    except ValueError:
        return None
