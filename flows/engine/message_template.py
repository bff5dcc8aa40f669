"""Message templates: text with paths in braces, ``Clause {item.number} is missing``.

A path names a variable, properties by dots, and elements of lists by their index: ``output.lines[0].text``. What has to
be computed is for an expression in ``message``. Braces themselves are written ``{{`` and ``}}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from flows.engine.expressions import FIELD_VARIABLES, fail_at
from flows.engine.json_values import dump_json, shorten

MAX_VALUE_LENGTH = 500
"""Characters of one value in a message; a longer one is cut."""
MISSING = "?"
"""Stands for a path that can't be found."""

_PART = re.compile(r"\{\{|\}\}|\{\s*(?P<path>[^{}]*?)\s*\}|[{}]")
_PATH = re.compile(r"([^\W\d]\w*)(?:\.[^\W\d]\w*|\[[0-9]{1,9}\])*")


class MessageTemplate(NamedTuple):
    """A template whose paths can be read: each with its offset in ``text``."""

    text: str
    paths: tuple[tuple[str, int], ...]

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text with the values of ``variables``, JSON values all of them; ``?`` where there is none."""
        return _PART.sub(lambda part: _render_part(part, variables), self.text)


def parse_template(text: str) -> MessageTemplate:
    """Read a template. Raises ``ExpressionError`` with line and column for braces that hold no path."""
    paths = []
    for part in _PART.finditer(text):
        path, start = part["path"], part.start()
        if path is not None:
            _check_path(text, path, part.start("path"))
            paths.append((path, part.start("path")))
        elif part[0] in ("{", "}"):
            fault = "is opened here and never closed" if part[0] == "{" else "here closes nothing"
            fail_at(text, start, f"the “{part[0]}” that {fault}; “{part[0] * 2}” gives the character itself")
    return MessageTemplate(text, tuple(paths))


def _check_path(text: str, path: str, offset: int) -> None:
    match, variables = _PATH.fullmatch(path), FIELD_VARIABLES["message"]
    if match is None:
        fault = "is not a path such as item.name or output.lines[0]; use message to compute"
        fail_at(text, offset, f"“{shorten(path)}” {fault}")
    if match[1] not in variables:
        names = ", ".join(sorted(variables))
        fail_at(text, offset, f"unknown variable “{shorten(match[1])}”; available: {names}")


def _render_part(part: re.Match[str], variables: Mapping[str, Any]) -> str:
    if part["path"] is None:
        return part[0][0]
    value: Any = variables
    for step in re.findall(r"\w+", part["path"]):
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, Mapping) and step in value:
            value = value[step]
        else:
            return MISSING
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return shorten(value if isinstance(value, str) else dump_json(value), MAX_VALUE_LENGTH)
