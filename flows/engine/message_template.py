"""Text with paths in braces: message templates, ``Clause {item.number} is missing``, and placeholders in prompts.

A path names a variable, properties by dots, and elements of lists by their index: ``output.lines[0].text``. What has to
be computed is for an expression, in ``message`` or ``input_expression``. In a template braces themselves are written
``{{`` and ``}}``. In a prompt only ``input``, ``steps`` and ``previous``, followed by a path, are placeholders; all
other braces stay as they are, so that it may hold JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flows.engine.errors import ExpressionError
from flows.engine.expressions import FIELD_VARIABLES, ITEM_VARIABLES, fail_at
from flows.engine.json_values import dump_json, dump_visible, shorten

MAX_VALUE_LENGTH = 500
"""Characters of one value in a message; a longer one is cut."""
MISSING = "?"
"""Stands for a path that can't be found."""
MAX_PLACEHOLDERS = 100
"""Placeholders of one system message."""
MAX_PLACED_LENGTH = 20_000
"""Characters of what one placeholder puts in; a longer one is cut."""

_VARIABLES = FIELD_VARIABLES["message"] | ITEM_VARIABLES
_PATH_PART = r"(?:\.[^\W\d]\w*|\[[0-9]{1,9}\])"
_PART = re.compile(r"\{\{|\}\}|\{\s*(?P<path>[^{}]*?)\s*\}|[{}]")
_PATH = re.compile(rf"([^\W\d]\w*){_PATH_PART}*")
_PLACEHOLDER = re.compile(rf"\{{\s*(?P<path>(?:input|previous|steps){_PATH_PART}+)\s*\}}")
_OBJECT = re.compile(r"(?:input|previous|steps\[[0-9]+\]\.output)\b")


class MessageTemplate(NamedTuple):
    """A template whose paths can be read: each with its offset in ``text``."""

    text: str
    paths: tuple[tuple[str, int], ...]

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text with the values of ``variables``, JSON values all of them; ``?`` where there is none."""
        return _PART.sub(lambda part: _render_part(part, variables), self.text)


def parse_template(text: str, variables: frozenset[str] = _VARIABLES) -> MessageTemplate:
    """Read a template; without ``variables`` it may be that of an audit with ``for_each``.

    Raises ``ExpressionError`` with line and column for braces that hold no path.
    """
    paths = []
    for part in _PART.finditer(text):
        path, start = part["path"], part.start()
        if path is not None:
            _check_path(text, path, part.start("path"), variables)
            paths.append((path, part.start("path")))
        elif part[0] in ("{", "}"):
            fault = "is opened here and never closed" if part[0] == "{" else "here closes nothing"
            fail_at(text, start, f"the “{part[0]}” that {fault}; “{part[0] * 2}” gives the character itself")
    return MessageTemplate(text, tuple(paths))


def follow_path(path: str, variables: Mapping[str, Any]) -> Any:
    """The value that a path leads to. Raises ``LookupError`` that names the first part that is not there."""
    value: Any = variables
    for part in re.findall(r"\w+", path):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            raise LookupError(part)
    return value


def _check_path(text: str, path: str, offset: int, variables: frozenset[str]) -> None:
    match = _PATH.fullmatch(path)
    if match is None:
        fault = "is not a path such as item.name or output.lines[0]; use message to compute"
        fail_at(text, offset, f"“{shorten(path)}” {fault}")
    if match[1] not in variables:
        names = ", ".join(sorted(variables))
        fail_at(text, offset, f"unknown variable “{shorten(match[1])}”; available: {names}")


def _render_part(part: re.Match[str], variables: Mapping[str, Any]) -> str:
    if part["path"] is None:
        return part[0][0]
    try:
        value = follow_path(part["path"], variables)
    except LookupError:
        return MISSING
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return shorten(value if isinstance(value, str) else dump_json(value), MAX_VALUE_LENGTH)


# ---------------------------------------------------------------------------------------------------------------
# Placeholders in prompts


def list_placeholders(text: str) -> Iterator[tuple[str, int]]:
    """The path of each placeholder in a system message, and its offset."""
    for match in _PLACEHOLDER.finditer(text):
        yield match["path"], match.start("path")


def find_placeholder_fault(path: str) -> str:
    """Why a placeholder can never lead to anything, whatever the schemas are; empty if it can."""
    if re.search(r"\._", path):
        return "keys that begin with “_” never reach the model"
    found = _OBJECT.match(path)
    if found and path[found.end() :].startswith("["):
        return f"“{found[0]}” is an object; its parts have names, as in {found[0]}.name"
    return ""


def fill_placeholders(text: str, variables: Mapping[str, Any]) -> str:
    """The text with the values of ``input``, ``steps`` and ``previous``: texts as they are, others as compact JSON.

    Raises ``ExpressionError`` for the first one that leads to nothing.
    """
    return _PLACEHOLDER.sub(lambda match: _render_value(match["path"], variables), text)


def _render_value(path: str, variables: Mapping[str, Any]) -> str:
    shown = f"{{{shorten(path)}}}"
    if fault := find_placeholder_fault(path):
        raise ExpressionError(f"{shown} can't be filled in: {fault}.")
    try:
        # Null is a value, but for a whole output: the expression of an input that reads on in there fails, too.
        if (found := _OBJECT.match(path)) and follow_path(found[0], variables) is None:
            raise ExpressionError(f"{shown} leads to nothing: that step left no usable output.")
        value = follow_path(path, variables)
    except LookupError as error:
        raise ExpressionError(f"{shown} leads to nothing: there is no “{shorten(str(error))}”.") from None
    return shorten(value if isinstance(value, str) else dump_visible(value), MAX_PLACED_LENGTH)
