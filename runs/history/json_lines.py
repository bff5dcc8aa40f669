"""JSON values as numbered lines, and which line a JSON pointer means.

A page shows an output as lines beside its issues; an issue's pointer leads to its line. What is too long is cut
while it is written, so that a value of any size or depth costs a bounded amount of work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from runs.history.texts import find_direction
from runs.history.texts import show_invisible as show_invisible  # noqa: PLC0414  # part of this module for its callers

MAX_POINTER_LENGTH = 2_000
"""Characters of a pointer that is looked up: each of its parents is looked up too."""
MAX_LINES = 2_000
MAX_CHARACTERS = 200_000
"""A listing that reaches one of the two is cut; JSON indented by levels counts its indent."""

MAX_LINE_MARKS = 9
"""Issues of one line that have a badge each; the others share one."""

_MAX_NOTE = 120
_INDENT = 2
_MAX_FOLD_DEPTH = 10
"""Objects and lists deeper than this are not folded: a browser gives up on elements nested by the hundred."""
# One for all scalars: making one takes longer than using it.
_COLOUR = re.compile("#[0-9a-fA-F]{6}")
_ENCODER = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Mark:
    """An issue that points at a part of a value. ``number`` is what the page calls it, 0 where it has no number."""

    severity: str
    title: str
    issue_id: str
    pointer: str | None = None
    number: int = 0
    description: str = ""

    @property
    def note(self) -> str:
        """What a narrow page says of it below its line."""
        words = self.description or self.title
        return show_invisible(words if len(words) <= _MAX_NOTE else f"{words[: _MAX_NOTE - 1]}…")

    @property
    def id(self) -> str:
        """Of the badge of this issue beside the value: the same in every view, so that links to it stay true."""
        return f"{self.issue_id}-at"

    @property
    def label(self) -> str:
        """What the badge says where it is not seen."""
        words = f"{self.severity.capitalize()}: {self.title}"
        return f"Issue {self.number}, {words}" if self.number else words


@dataclass(frozen=True, slots=True)
class Marks:
    """The issues of one line: those with a badge, and how many more there are."""

    shown: tuple[Mark, ...]
    severities: str
    """Their names with spaces between them, each once."""
    more: int = 0
    more_id: str = ""
    """The first of those without a badge."""


_Place = TypeVar("_Place", bound=Hashable)


def group_marks(
    marks: Sequence[Mark], find: Callable[[str | None], _Place | None]
) -> tuple[dict[_Place, Marks], dict[str, str]]:
    """The marks of each place that ``find`` gives for a pointer, and the id to link to for each issue with one."""
    placed: dict[_Place, list[Mark]] = {}
    for mark in marks:
        if (place := find(mark.pointer)) is not None:
            placed.setdefault(place, []).append(mark)
    groups: dict[_Place, Marks] = {}
    anchors: dict[str, str] = {}
    for place, own in placed.items():
        shown, others = tuple(own[:MAX_LINE_MARKS]), own[MAX_LINE_MARKS:]
        severities = " ".join(sorted({mark.severity for mark in own}))
        groups[place] = Marks(shown, severities, len(others), others[0].issue_id if others else "")
        anchors.update((mark.issue_id, mark.id) for mark in shown)
        anchors.update((mark.issue_id, shown[0].id) for mark in others)
    return groups, anchors


def find_nearest(pointer: str | None, numbers: Mapping[str, _Place]) -> tuple[_Place, bool] | None:
    """What ``numbers`` has for a JSON pointer, or for its nearest parent, and whether it is the pointer's own.

    None for no pointer, for ``""`` (the whole value) and for text that is no pointer.
    """
    if not pointer or not pointer.startswith("/") or len(pointer) > MAX_POINTER_LENGTH:
        return None
    nearest = pointer
    while nearest not in numbers:
        if not nearest:
            return None
        nearest = nearest.rpartition("/")[0]
    return numbers[nearest], nearest == pointer


class Line(NamedTuple):
    """One line: ``indent`` spaces, a ``key`` with its quotes (or none), a value and the comma that follows it."""

    number: int
    indent: int
    key: str
    value: str
    pointer: str | None
    """JSON pointer of what begins on this line; None on lines of plain text and on closing brackets."""
    tail: str = ""
    key_direction: str = ""
    direction: str = ""
    """Of the value, as of the key: ``ltr`` or ``rtl`` to isolate it; empty for ASCII, which needs none."""
    holds: str = ""
    """Of a line that opens an object or a list that can be folded: what is in it, ``5 items``."""
    closes: bool = False
    """Whether it ends what can be folded."""
    marks: Marks | None = None

    @property
    def text(self) -> str:
        """The whole line as it would stand in a file."""
        return f"{self.margin}{f'{self.key}: ' if self.key else ''}{self.value}{self.tail}"

    @property
    def margin(self) -> str:
        """The spaces that the line begins with."""
        return " " * self.indent

    @property
    def colour(self) -> str:
        """The colour that the value names as ``#rrggbb``; empty for all else."""
        return find_colour(self.value[1:-1]) if self.value.startswith('"#') else ""


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
    def is_tall(self) -> bool:
        """Whether it takes more room than a screen has, and scrolls in a box of its own."""
        return len(self.lines) > 80 or sum(len(line.value) for line in self.lines) > 8_000

    @property
    def unclosed(self) -> range:
        """One for each fold that a cut left open."""
        opened = sum(bool(line.holds) for line in self.lines)
        return range(opened - sum(line.closes for line in self.lines))

    def find(self, pointer: str | None) -> Place | None:
        """The line of a JSON pointer, or of its nearest parent where nothing stands there.

        None for no pointer, for ``""`` (the whole value), for text that is no pointer, and where the line was cut.
        """
        found = find_nearest(pointer, self._numbers)
        if found is None or not (found[1] or (pointer and found[0] and not self.is_cut)):
            return None
        return Place(*found)

    def mark(self, marks: Sequence[Mark]) -> tuple[Listing, dict[str, str]]:
        """The same lines with marks on them, and the id to link to for each issue that has a line."""
        groups, anchors = group_marks(marks, lambda pointer: place.line if (place := self.find(pointer)) else None)
        lines = tuple(
            line._replace(marks=groups[line.number]) if line.number in groups else line for line in self.lines
        )
        return (replace(self, lines=lines) if groups else self), anchors


def list_json(value: Any, *, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> Listing:
    """Lay out a JSON value as indented lines, one scalar a line."""
    return _collect(_write_value(value, max_characters), max_lines, max_characters)


def list_text(text: str, *, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> Listing:
    """Lay out plain text as lines; invisible characters are shown by their code."""
    shown = text[: max_characters + 1].expandtabs(4).replace("\r\n", "\n")
    rows = ((0, "", show_invisible(row), None, "", "", False) for row in shown.split("\n"))
    return _collect(rows, max_lines, max_characters)


def list_compact(value: Any, max_characters: int) -> tuple[str, bool]:
    """A JSON value in one line, and whether it was cut after ``max_characters``."""
    parts: list[str] = []
    room = max_characters
    for _, key, text, _, tail, _, _ in _write_value(value, max_characters):
        part = f"{f'{key}: ' if key else ''}{text}{tail}{' ' if tail else ''}"
        if len(part) > room:
            return "".join(parts) + part[:room], True
        parts.append(part)
        room -= len(part)
    return "".join(parts), False


def isolate(text: str) -> str:
    """The direction to isolate a text with; empty for ASCII, which needs none."""
    return "" if text.isascii() else find_direction(text)


_Row = tuple[int, str, str, str | None, str, str, bool]
"""Indent, key, value, pointer, tail, what a fold holds, whether one ends."""


def _collect(rows: Iterator[_Row], max_lines: int, max_characters: int) -> Listing:
    lines: list[Line] = []
    numbers: dict[str, int] = {}
    room = max_characters
    for indent, key, value, pointer, tail, holds, closes in rows:
        if len(lines) == max_lines:
            return Listing(tuple(lines), True, numbers)
        number = len(lines) + 1
        if pointer is not None:
            numbers[pointer] = number
        length = indent + len(key) + len(value) + len(tail)
        if is_last := length > room:
            value, tail = value[: max(room - indent - len(key), 0)] + "…", ""
        lines.append(Line(number, indent, key, value, pointer, tail, isolate(key), isolate(value), holds, closes))
        if is_last:
            return Listing(tuple(lines), True, numbers)
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
                yield scalar(name), item, f"{pointer}/{escape_part(name)}", "," if index < last else ""
        else:
            for index, item in enumerate(container):
                yield "", item, f"{pointer}/{index}", "," if index < last else ""

    # What is open: what is left of it, the line that closes it, and the comma after that.
    stack = [(iter([("", value, "", "")]), "", "")]
    while stack:
        remaining, closing, comma_after = stack[-1]
        indent = (len(stack) - 1) * _INDENT
        can_fold = len(stack) <= _MAX_FOLD_DEPTH
        for key, item, pointer, comma in remaining:
            if isinstance(item, dict | list):
                brackets = "{}" if isinstance(item, dict) else "[]"
                if item:
                    noun = "field" if isinstance(item, dict) else "item"
                    holds = f"{len(item):,} {noun}{'s' if len(item) != 1 else ''}" if can_fold else ""
                    yield indent, key, brackets[0], pointer, "", holds, False
                    stack.append((entries(item, pointer), brackets[1], comma))
                    break
                yield indent, key, brackets, pointer, comma, "", False
            else:
                yield indent, key, scalar(item), pointer, comma, "", False
        else:
            stack.pop()
            if closing:
                yield indent - _INDENT, "", closing, None, comma_after, "", len(stack) <= _MAX_FOLD_DEPTH


def find_colour(text: str) -> str:
    """``text`` if it is a colour such as ``#12694a``, which a page shows beside it; else empty."""
    return text if _COLOUR.fullmatch(text) else ""


def escape_part(key: object) -> str:
    """A key as a part of a JSON pointer."""
    return str(key).replace("~", "~0").replace("/", "~1")
