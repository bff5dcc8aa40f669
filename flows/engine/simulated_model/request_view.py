"""What the simulated model reads out of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flows.engine.model_families import ReasoningEffort
from flows.engine.model_request import find_api, find_effort, find_max_tokens, list_messages
from flows.engine.prompt import ATTEMPT_HEADING, CURRENT_STEP_HEADING
from flows.engine.providers import Api

_SECTION = re.compile(f"^{re.escape(CURRENT_STEP_HEADING)}$", re.MULTILINE)
_ATTEMPT = re.compile("^" + r"(\d{1,9})".join(map(re.escape, ATTEMPT_HEADING.split("{number}"))) + "$", re.MULTILINE)
_KEY_NUMBER = re.compile(r"-(\d{1,9})$")


@dataclass(frozen=True)
class RequestView:
    """A request that passed the check, and the key it was sent with."""

    body: dict[str, Any]
    idempotency_key: str | None

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @property
    def api(self) -> Api:
        """The API that the request is written for."""
        return find_api(self.body)

    @cached_property
    def messages(self) -> list[Mapping[str, Any]]:
        """All messages, the system message first."""
        return list_messages(self.body)

    @property
    def effort(self) -> ReasoningEffort | None:
        """The reasoning effort that is asked for."""
        effort = find_effort(self.body)
        return None if effort is None else ReasoningEffort(effort)

    @property
    def service_tier(self) -> str:
        """The tier that serves the call: the one that is asked for."""
        tier = self.body.get("service_tier")
        return tier if tier in ("flex", "priority") else "default"

    @cached_property
    def function(self) -> Mapping[str, Any] | None:
        """The function that the answer calls: the forced one, else the first; None where text is asked for."""
        choice = self.body.get("tool_choice")
        if not self.functions or choice == "none":
            return None
        if isinstance(choice, dict):
            wanted = choice.get("function", choice)["name"]
            return next(function for function in self.functions if function["name"] == wanted)
        return self.functions[0]

    @cached_property
    def functions(self) -> list[Mapping[str, Any]]:
        """The functions of all tools."""
        return [tool.get("function", tool) for tool in self.body.get("tools") or ()]

    @property
    def is_forced(self) -> bool:
        """Whether the request leaves no choice of the function."""
        return isinstance(self.body.get("tool_choice"), dict)

    @property
    def tool_name(self) -> str | None:
        return None if self.function is None else str(self.function["name"])

    @cached_property
    def system_message(self) -> str:
        parts = [_read_text(m) for m in self.messages if m["role"] in ("system", "developer")]
        return "\n\n".join(parts)

    @cached_property
    def input(self) -> Any:
        """The last user message, as JSON where it is JSON."""
        text = next((_read_text(m) for m in reversed(self.messages) if m["role"] == "user"), "")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text

    @cached_property
    def _section(self) -> re.Match[str] | None:
        # The last one: a step's own message may hold such a line as well, and stands before it.
        return next(reversed(list(_SECTION.finditer(self.system_message))), None)

    @cached_property
    def attempts_shown(self) -> int:
        """How many earlier outputs there are, by the highest number that the system message shows; 0 on a first try."""
        if self._section is None:
            return 0
        numbers = _ATTEMPT.findall(self.system_message, self._section.end())
        return max(map(int, numbers), default=0)

    @property
    def attempt_number(self) -> int | None:
        """The number of this attempt, where the idempotency key ends with it (``<run>-<step>-<number>``)."""
        found = _KEY_NUMBER.search(self.idempotency_key or "")
        return int(found[1]) if found else None

    @cached_property
    def prompt_characters(self) -> int:
        """The length of all that the model has to read."""
        messages = sum(len(_read_text(message)) for message in self.messages)
        return messages + self._tools_characters

    @cached_property
    def repeated_characters(self) -> int:
        """How much of the beginning an earlier try of the step had in common: what stands before its attempts."""
        return 0 if self._section is None else self._tools_characters + self._section.start()

    @cached_property
    def _tools_characters(self) -> int:
        return len(json.dumps(self.body.get("tools") or ""))

    @property
    def max_tokens(self) -> int | None:
        return find_max_tokens(self.body)


def _read_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
