"""JSON values as numbered lines, and which line a JSON pointer means.

A page shows an output as lines beside its issues; an issue's pointer leads to its line. What is too long is cut
while it is written, so that a value of any size or depth costs a bounded amount of work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LONGEST_POINTER = 2_000
"""Characters of a pointer that is looked for: looking for its parents takes time for each of its parts."""
MAX_LINES = 2_000
MAX_CHARACTERS = 200_000
"""A listing that reaches one of the two is cut; JSON indented by levels counts its indent."""

LONG_TEXT = 8_000
"""Characters."""

_INDENT = 2
# One for all scalars: making one takes longer than using it.
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Characters that change how text around them looks (direction marks, escapes) or that can't be sent at all."""


class Line(NamedTuple):
    """One line: ``indent`` spaces, a ``key`` with its quotes (or none), and what follows it."""

    number: int
    indent: int
    key: str
    value: str
    pointer: str | None
    """JSON pointer of what begins on this line; None on lines of plain text and on closing brackets."""

    @property
    def text(self) -> str:
        """The whole line as it would stand in a file."""
        return " " * self.indent + (f"{self.key}: " if self.key else "") + self.value


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pointer leads: ``is_exact`` is False where the value is missing and the line is its parent's."""

    line: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """A value as lines. ``is_cut`` says that more follows."""

    lines: tuple[Line, ...]
    is_cut: bool
    _numbers: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def has_long_lines(self) -> bool:
        """Broken to the width of a page, its lines take much more room than their number says."""
        return sum(len(line.value) for line in self.lines) > LONG_TEXT + 100 * len(self.lines)

    def find(self, pointer: str | None) -> Place | None:
        """The line of a JSON pointer, or of its nearest parent where nothing stands there.

        None for no pointer, for ``""`` (the whole value), for text that is no pointer, and where the line was cut.
        """
        if not pointer or not pointer.startswith("/") or len(pointer) > LONGEST_POINTER:
            return None
        number = self._numbers.get(pointer)
        if number is not None:
            return Place(number, is_exact=True)
        if self.is_cut:
            return None
        parent = pointer
        while parent:
            parent = parent.rpartition("/")[0]
            number = self._numbers.get(parent)
            if number is not None:
                return Place(number, is_exact=False)
        return None


def list_json(value: Any, *, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> Listing:
    """Lay out a JSON value as indented lines, one scalar a line."""
    return _collect(_write_value(value, max_characters), max_lines, max_characters)


def list_text(text: str, *, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> Listing:
    """Lay out plain text as lines; invisible characters are shown by their code."""
    shown = text[: max_characters + 1].expandtabs(4).replace("\r\n", "\n")
    rows = ((0, "", show_invisible(row), None) for row in shown.split("\n"))
    return _collect(rows, max_lines, max_characters)


_Row = tuple[int, str, str, str | None]


def _collect(rows: Iterator[_Row], max_lines: int, max_characters: int) -> Listing:
    lines: list[Line] = []
    numbers: dict[str, int] = {}
    room = max_characters
    for indent, key, value, pointer in rows:
        if len(lines) == max_lines:
            return Listing(tuple(lines), True, numbers)
        number = len(lines) + 1
        if pointer is not None:
            numbers[pointer] = number
        length = indent + len(key) + len(value)
        if length > room:
            shown = value[: max(room - indent - len(key), 0)] + "…"
            lines.append(Line(number, indent, key, shown, pointer))
            return Listing(tuple(lines), True, numbers)
        lines.append(Line(number, indent, key, value, pointer))
        room -= length
    return Listing(tuple(lines), False, numbers)


def _write_value(value: Any, max_characters: int) -> Iterator[_Row]:
    """Write rows with a stack of open containers: nesting may be deeper than Python recurses."""

    def scalar(item: Any) -> str:
        if isinstance(item, str) and len(item) > max_characters:
            item = item[: max_characters + 1]
        return show_invisible(_ENCODER.encode(item))

    def entries(container: Any, pointer: str) -> Iterator[tuple[str, Any, str, str]]:
        """Key, value and pointer of what a container holds, and the comma after it."""
        last = len(container) - 1
        if isinstance(container, dict):
            for index, (name, item) in enumerate(container.items()):
                part = str(name).replace("~", "~0").replace("/", "~1")
                yield scalar(name), item, f"{pointer}/{part}", "," if index < last else ""
        else:
            for index, item in enumerate(container):
                yield "", item, f"{pointer}/{index}", "," if index < last else ""

    # What is open: what is left of it, and the line that closes it.
    stack = [(iter([("", value, "", "")]), "")]
    while stack:
        remaining, closing = stack[-1]
        indent = (len(stack) - 1) * _INDENT
        for key, item, pointer, comma in remaining:
            if isinstance(item, dict | list):
                brackets = "{}" if isinstance(item, dict) else "[]"
                if item:
                    yield indent, key, brackets[0], pointer
                    stack.append((entries(item, pointer), brackets[1] + comma))
                    break
                yield indent, key, brackets + comma, pointer
            else:
                yield indent, key, scalar(item) + comma, pointer
        else:
            stack.pop()
            if closing:
                yield indent - _INDENT, "", closing, None


def show_invisible(text: str) -> str:
    """``text`` with characters that would change how the text around them looks written as ``\\u202e``.

    In JSON text that is the same value. Line breaks and tabs stay.
    """
    return _INVISIBLE.sub(_show_code, text)


def _show_code(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
