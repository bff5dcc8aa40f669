"""Message templates: text with paths in braces, ``Clause {item.number} is missing``.

A path names a variable, properties by dots, and elements of lists by their index: ``output.lines[0].text``. What has to
be computed is for an expression in ``message``. Braces themselves are written ``{{`` and ``}}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flows.engine.expressions import FIELD_VARIABLES, fail_at
from flows.engine.json_values import dump_json, shorten

MAX_VALUE_LENGTH = 500
"""Characters of one value in a message; a longer one is cut."""

MISSING = "?"
"""Stands for a path that can't be found."""

_VARIABLES = FIELD_VARIABLES["message"]

_PART = re.compile(r"(?P<escaped>\{\{|\}\})|\{(?P<path>[^{}]*)\}|(?P<brace>[{}])")
_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*|\[[0-9]{1,9}\])*")
_STEP = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class TemplatePath:
    """A path and its offset in the template."""

    text: str
    offset: int

    @property
    def variable(self) -> str:
        return re.split(r"[.\[]", self.text, maxsplit=1)[0]

    def render(self, variables: Mapping[str, Any]) -> str:
        """The value at the path as text, ``?`` if there is none."""
        value: Any = variables
        for step in _STEP.findall(self.text):
            if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            elif isinstance(value, Mapping) and step in value:
                value = value[step]
            else:
                return MISSING
        return shorten(_render_value(value), MAX_VALUE_LENGTH)


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """Plain text and paths, in their order."""

    parts: tuple[str | TemplatePath, ...]

    @property
    def paths(self) -> Iterator[TemplatePath]:
        return (part for part in self.parts if isinstance(part, TemplatePath))

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text with the values of ``variables``, JSON values all of them."""
        return "".join(part if isinstance(part, str) else part.render(variables) for part in self.parts)


@lru_cache(maxsize=2048)
def parse_template(text: str) -> MessageTemplate:
    """Read a template. Raises ``ExpressionError`` with line and column for braces that hold no path."""
    parts: list[str | TemplatePath] = []
    end = 0
    for match in _PART.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match["escaped"]:
            parts.append(match["escaped"][0])
        elif match["brace"]:
            kind = "opens here is never closed" if match["brace"] == "{" else "stands here closes nothing"
            brace = match["brace"]
            fail_at(text, match.start(), f"the “{brace}” that {kind}; “{brace * 2}” gives the character itself")
        else:
            parts.append(_parse_path(text, match))
    return MessageTemplate((*parts, text[end:]))


def _parse_path(text: str, match: re.Match[str]) -> TemplatePath:
    inner = match["path"].strip()
    offset = text.index(inner, match.start("path"))
    if not _PATH.fullmatch(inner):
        fail_at(
            text, offset, f"“{inner[:60]}” is not a path such as item.name or output.lines[0]; use message to compute"
        )
    path = TemplatePath(inner, offset)
    if path.variable not in _VARIABLES:
        names = ", ".join(sorted(_VARIABLES))
        fail_at(text, offset, f"there is no variable “{path.variable[:60]}”; available: {names}")
    return path


def _render_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value)) if abs(value) < 1e15 else dump_json(value)
    return dump_json(value)
