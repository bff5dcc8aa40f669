"""JSON values as numbered lines, and which line a JSON pointer means.

A page shows an output as lines beside its issues; an issue's pointer leads to its line. What is too long is cut
while it is written, so that a value of any size or depth costs a bounded amount of work.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flows.engine.json_values import format_pointer, shorten
from runs.formatting import format_plural
from runs.history.texts import ShownText, show_invisible

MAX_POINTER_LENGTH = 2_000
"""Characters of a pointer that is looked up: each of its parents is looked up too."""
MAX_LINES = 2_000
MAX_CHARACTERS = 200_000
"""A listing that reaches one of the two is cut; JSON indented by levels counts its indent."""
MAX_LINE_MARKS = 9
"""Issues of one line that have a badge each; the others share one."""

_MAX_NOTE = 120
_MAX_BESIDE = 60
"""Characters of a value that is shown beside its earlier one; longer ones get a line each."""
_INDENT = 2
_MAX_FOLD_DEPTH = 10
"""Objects and lists deeper than this are not folded: a browser gives up on elements nested by the hundred."""
# One for all scalars: making one takes longer than using it.
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
        return show_invisible(shorten(self.description or self.title, _MAX_NOTE))

    @property
    def id(self) -> str:
        """The id of the issue’s badge beside the value: the same in every view, so that links keep working."""
        return f"{self.issue_id}-at"

    @property
    def label(self) -> str:
        """What the badge says where it is not seen."""
        words = f"{self.severity.capitalize()}: {self.title}"
        return f"Issue {self.number}, {words}" if self.number else words


Marks = dict[str, Any]
"""The issues of one place: those ``shown`` with a badge, ``more`` without one, of which ``more_id`` is the first, and
the names of all their ``severities``."""


def place_marks(
    marks: Iterable[Mark], places: Mapping[str, Any], partial: Collection[str] = ()
) -> tuple[dict[str, str], list[tuple[Any, Marks]]]:
    """The id to link to for each issue, and the places that issues point at with their marks.

    A place is a line, a cell or a table; without one for its own pointer an issue is marked at the nearest parent.
    ``partial`` are the pointers of what is not shown whole: what else is in there has no place. Nor have ``""`` (the
    whole value) and text that is not a pointer.
    """
    placed: dict[int, tuple[Any, list[Mark]]] = {}
    for mark in marks:
        nearest = pointer = mark.pointer or ""
        if not pointer.startswith("/") or len(pointer) > MAX_POINTER_LENGTH:
            continue
        while nearest and nearest not in places:
            nearest = nearest.rpartition("/")[0]
        if nearest in places and (nearest == pointer or nearest not in partial):
            place = places[nearest]
            placed.setdefault(id(place), (place, []))[1].append(mark)
    anchors: dict[str, str] = {}
    marked = []
    for place, own in placed.values():
        shown, others = tuple(own[:MAX_LINE_MARKS]), own[MAX_LINE_MARKS:]
        severities = " ".join(sorted({mark.severity for mark in own}))
        more = {"more": len(others), "more_id": others[0].issue_id if others else ""}
        marked.append((place, {"shown": shown, "severities": severities, **more}))
        anchors |= {mark.issue_id: mark.id for mark in shown} | {mark.issue_id: shown[0].id for mark in others}
    return anchors, marked


class Change(StrEnum):
    """What became of a line from one output to the next."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"

    @property
    def sign(self) -> str:
        """What is before such a line."""
        return {Change.ADDED: "+", Change.REMOVED: "\N{MINUS SIGN}", Change.CHANGED: "~"}.get(self, "")


@dataclass(slots=True)
class Line:
    """One line: ``indent`` spaces, a ``key`` with its quotes (or none), a value and the comma that follows it."""

    indent: int
    key: ShownText
    value: ShownText
    pointer: str | None = None
    """JSON pointer of what begins on this line; None on lines of plain text and on closing brackets."""
    tail: str = ""
    holds: str = ""
    """What an object or list holds that this line opens and that can be folded: ``5 items``."""
    closes: bool = False
    """Whether it ends what can be folded."""
    number: int = 0
    """From 1; 0 in a difference where only the old output has it."""
    marks: Marks | None = None
    change: Change = Change.SAME
    old: ShownText | None = None
    """The value that a changed line had before."""
    parts: Sequence[tuple[Change, ShownText]] = ()
    """Both values in one, where they have most of their words in common: what is the same, removed and added."""

    @property
    def text(self) -> str:
        """The whole line as it would be in a file."""
        return f"{self.margin}{f'{self.key}: ' if self.key else ''}{self.value}{self.tail}"

    @property
    def is_stacked(self) -> bool:
        """Whether the value that it had before gets a line of its own, rather than standing beside the new one."""
        return bool(self.old) and not self.parts and max(len(self.old or ""), len(self.value)) > _MAX_BESIDE

    @property
    def margin(self) -> str:
        """The spaces that the line begins with."""
        return " " * self.indent


@dataclass(frozen=True, slots=True)
class Listing:
    """Numbered lines, and whether some are missing at the end."""

    lines: Sequence[Line]
    is_cut: bool
    places: Mapping[str, Line] = field(repr=False)
    """The line of each JSON pointer."""

    @property
    def is_tall(self) -> bool:
        """Whether it takes more room than a screen has, and scrolls in a box of its own."""
        return len(self.lines) > 80 or sum(len(line.value) for line in self.lines) > 8_000

    @property
    def unclosed(self) -> range:
        """One for each fold that a cut left open."""
        opened = sum(bool(line.holds) for line in self.lines)
        return range(opened - sum(line.closes for line in self.lines))

    def mark(self, marks: Iterable[Mark]) -> dict[str, str]:
        """Put marks on the lines; gives the id to link to for each issue that has a line."""
        anchors, marked = place_marks(marks, self.places, self.places if self.is_cut else ())
        for line, own in marked:
            line.marks = own
        return anchors


def list_json(value: Any, *, max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> Listing:
    """Lay out a JSON value as indented lines, one scalar a line."""
    return _collect(_write_value(value, max_characters), max_lines, max_characters)


def list_text(text: str, *, max_characters: int = MAX_CHARACTERS) -> Listing:
    """Lay out plain text as lines; invisible characters are shown by their code."""
    rows = text[: max_characters + 1].expandtabs(4).replace("\r\n", "\n").split("\n")
    lines = (Line(0, ShownText(), ShownText(show_invisible(row))) for row in rows)
    return _collect(lines, MAX_LINES, max_characters)


def list_compact(value: Any, most: int) -> ShownText:
    """A JSON value in one line; ``…`` stands for what follows ``most`` characters."""
    text = ""
    for line in _write_value(value, most):
        line.indent = 0
        text += f"{line.text} " if line.tail else line.text
        if len(text) > most:
            return ShownText(f"{text[:most]}…")
    return ShownText(text)


def _collect(lines: Iterator[Line], max_lines: int, max_characters: int) -> Listing:
    kept: list[Line] = []
    places: dict[str, Line] = {}
    remaining = max_characters
    for line in lines:
        if len(kept) == max_lines:
            return Listing(kept, True, places)
        kept.append(line)
        line.number = len(kept)
        if line.pointer is not None:
            places[line.pointer] = line
        length = line.indent + len(line.key) + len(line.value) + len(line.tail)
        if length > remaining:
            value = line.value[: max(remaining - line.indent - len(line.key), 0)]
            line.value, line.tail = ShownText(f"{value}…"), ""
            return Listing(kept, True, places)
        remaining -= length
    return Listing(kept, False, places)


def _write_value(value: Any, max_characters: int) -> Iterator[Line]:
    """Write lines with a stack of open containers: nesting may be deeper than Python recurses."""

    def scalar(item: Any) -> ShownText:
        if isinstance(item, str) and len(item) > max_characters:
            item = item[: max_characters + 1]
        return ShownText(show_invisible(_ENCODER.encode(item)))

    def entries(container: Any, pointer: str) -> Iterator[tuple[ShownText, Any, str, str]]:
        """Key, value and pointer of what a container holds, and the comma after it."""
        last = len(container) - 1
        is_object = isinstance(container, dict)
        for index, (name, item) in enumerate(container.items() if is_object else enumerate(container)):
            key = scalar(name) if is_object else no_key
            yield key, item, f"{pointer}{format_pointer([name])}", "," if index < last else ""

    no_key = ShownText()
    # What is open: what is left of it, the line that closes it, and the comma after that.
    stack = [(iter([(no_key, value, "", "")]), "", "")]
    while stack:
        remaining, closing, comma_after = stack[-1]
        indent = (len(stack) - 1) * _INDENT
        can_fold = len(stack) <= _MAX_FOLD_DEPTH
        for key, item, pointer, comma in remaining:
            if not (isinstance(item, dict | list) and item):
                yield Line(indent, key, scalar(item), pointer, comma)
                continue
            brackets, noun = ("{}", "field") if isinstance(item, dict) else ("[]", "item")
            holds = format_plural(len(item), noun) if can_fold else ""
            yield Line(indent, key, ShownText(brackets[0]), pointer, "", holds)
            stack.append((entries(item, pointer), brackets[1], comma))
            break
        else:
            stack.pop()
            if closing:
                can_close = len(stack) <= _MAX_FOLD_DEPTH
                yield Line(indent - _INDENT, no_key, ShownText(closing), None, comma_after, closes=can_close)
