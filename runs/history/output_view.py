"""An output in the three ways a page shows it: as text to read, as tables, and as JSON.

A view is a bounded piece of a value of any size, with the issues that point at its parts. Only the chosen one is built.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any

from runs.formatting import format_count, format_plural
from runs.history.json_lines import (
    Listing,
    Mark,
    Marks,
    escape_part,
    find_colour,
    find_nearest,
    group_marks,
    isolate,
    list_compact,
    list_json,
    list_text,
    show_invisible,
)

MAX_LINES = 1_000
MAX_VALUES = 1_500
MAX_JSON_LINES = 2_000
MAX_CHARACTERS = 100_000
"""What one view shows; of the rest it says how much there is."""
MAX_TEXT = 20_000
"""Characters of one text."""
MAX_DEPTH = 6
"""Levels that the text view lays out; deeper values are JSON in one line."""
MAX_COUNTED = 300_000
"""Values that are counted to say how many are not shown."""
MAX_ROWS = 200
MAX_COLUMNS = 20
MAX_TABLES = 20
MAX_CELL = 500
"""Characters of a value in a table, and of one in one line of JSON."""

_MAX_SHORT = 40
"""Characters of a value that shares its line with others."""
_MAX_GROUP = 96
"""Characters of such a line."""
_MAX_KEY = 200
_IDENTIFIERS = ("id", "key", "name", "title", "code", "number", "no", "label")
"""Keys whose value heads the block of an object; without one, a key that differs in all objects of the list."""
_ENCODER = json.JSONEncoder(ensure_ascii=False)


class View(StrEnum):
    """A way to show an output."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"


_TITLES = {View.TEXT: "Text", View.TABLE: "Table", View.JSON: "JSON"}


@dataclass(frozen=True, slots=True)
class Value:
    """One value as text. ``is_data`` says that it is no text: a number, ``true``, ``null``, or JSON in one line."""

    text: str
    direction: str = ""
    """``ltr`` or ``rtl`` to isolate it; empty for ASCII, which needs none."""
    is_data: bool = False
    is_marked: bool = False
    """Whether an issue points at this very value."""

    @property
    def colour(self) -> str:
        """The colour that it names as ``#rrggbb``; empty for all else."""
        return find_colour(self.text) if self.text.startswith("#") else ""


@dataclass(frozen=True, slots=True)
class Field:
    """A value with its key, which is empty where the label of the line is the key."""

    key: str
    key_direction: str
    value: Value
    separator: str = ""


@dataclass(frozen=True, slots=True)
class TextLine:
    """One numbered line: a label (``is_head``: of the block or section that it begins), then fields or a text."""

    number: int
    depth: int
    label: Value | None
    is_head: bool
    starts: bool
    """Whether it begins an item of a list, which stands apart from the one before."""
    fields: tuple[Field, ...]
    marks: Marks | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table; None where the object lacks the column."""

    value: Value | None
    is_number: bool = False
    marks: Marks | None = None

    @property
    def is_long(self) -> bool:
        """Whether it needs more room than a word."""
        return self.value is not None and len(self.value.text) > _MAX_SHORT


@dataclass(frozen=True, slots=True)
class Row:
    """One object of a list, or one field of an object."""

    number: int
    cells: tuple[Cell, ...]
    marks: Marks | None = None
    """Of issues that point at the object, or at something in it that is no column."""


@dataclass(frozen=True, slots=True)
class Table:
    """A list of objects. ``title`` is its key; empty where it is the whole output."""

    title: str
    columns: tuple[Value, ...]
    rows: tuple[Row, ...]
    left_out: str = ""
    """What of it is not shown, in words."""
    marks: Marks | None = None


@dataclass(frozen=True, slots=True)
class Tab:
    """The way to a view."""

    name: View
    title: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class OutputView:
    """One view of an output: ``lines``, ``tables`` or ``json``, whichever ``view`` names."""

    prefix: str
    """What ids begin with."""
    view: View
    tabs: tuple[Tab, ...]
    download_url: str
    lines: tuple[TextLine, ...] = ()
    tables: tuple[Table, ...] = ()
    json: Listing | None = None
    left_out: str = ""
    """What is not shown, in words; empty if all is."""
    is_tall: bool = False
    """Whether it takes more room than a screen has, and scrolls in a box of its own."""
    anchors: Mapping[str, str] | None = None
    """The id to link to for each issue that points at something shown, by the id of the issue."""


def parse_view(*texts: str | None) -> View:
    """The first of these that names a view: of the address, then what the browser remembers; ``text`` by default."""
    return next((View(text) for text in texts if text in tuple(View)), View.TEXT)


def view_output(
    value: Any,
    marks: Sequence[Mark] = (),
    *,
    view: View = View.TEXT,
    prefix: str = "output",
    address: str = "?",
    fragment: str = "",
    download_url: str = "",
) -> OutputView:
    """Build one view of an output, bounded in size.

    ``address`` is what ``view=…`` is added to for the links to the others, which ends in ``?`` or ``&``. A table is
    there where the value is a list of objects, or has one among its fields; a ``view`` that is not there gives text.
    """
    has_table = bool(_find_tables(value))
    if view is View.TABLE and not has_table:
        view = View.TEXT
    shown = [name for name in View if name is not View.TABLE or has_table]
    tabs = tuple(Tab(name, _TITLES[name], f"{address}view={name}{fragment}", name is view) for name in shown)
    base = OutputView(prefix, view, tabs, download_url)
    if view is View.TABLE:
        return _view_tables(base, value, marks)
    if view is View.JSON:
        return _view_json(base, value, marks)
    return _view_text(base, value, marks)


def view_text(text: str, *, prefix: str = "output", download_url: str = "") -> OutputView:
    """Build the only view of what came back instead of an output: its lines."""
    listing = list_text(text, max_lines=MAX_JSON_LINES, max_characters=MAX_CHARACTERS)
    left_out = "Only the beginning is shown." if listing.is_cut else ""
    return OutputView(prefix, View.TEXT, (), download_url, json=listing, left_out=left_out)


def _view_json(base: OutputView, value: Any, marks: Sequence[Mark]) -> OutputView:
    listing = list_json(value, max_lines=MAX_JSON_LINES, max_characters=MAX_CHARACTERS)
    listing, anchors = listing.mark(marks)
    left_out = ""
    if listing.is_cut:
        shown = sum(line.pointer is not None and line.value not in ("{", "[") for line in listing.lines)
        left_out = _describe_rest(value, shown) or "The rest of a long value is not shown."
    return replace(base, json=listing, anchors=anchors, left_out=left_out)


def _describe_rest(value: Any, shown: int, characters: int = 0) -> str:
    """How many values, and characters of long texts, are not shown."""
    total, is_all = _count_values(value)
    parts = []
    if total > shown:
        more = "" if is_all else "over "
        parts.append(f"{format_count(total - shown)} of {more}{format_plural(total, 'value')}")
    if characters:
        parts.append(f"{format_plural(characters, 'character')} of long texts")
    return f"Not shown: {', '.join(parts)}." if parts else ""


def _count_values(value: Any) -> tuple[int, bool]:
    """How many scalars and empty containers a value has, and whether all of it was counted."""
    count, stack = 0, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict | list) and item:
            room = MAX_COUNTED - count - len(stack)
            if len(item) > room:
                return MAX_COUNTED, False
            stack.extend(item.values() if isinstance(item, dict) else item)
        else:
            count += 1
    return count, True


# ---------------------------------------------------------------------------------------------------------------------
# Values in one line


def _is_short(value: Any) -> bool:
    """Whether a value shares its line with others: a number, a short text, something empty."""
    if isinstance(value, str):
        return len(value) <= _MAX_SHORT and "\n" not in value
    return not (isinstance(value, dict | list) and value)


def _show(value: Any, max_characters: int = MAX_CELL) -> Value:
    """A value in one line; what is longer ends in ``…``."""
    if isinstance(value, str) and value:
        text = show_invisible(value[:max_characters]) + ("…" if len(value) > max_characters else "")
        return Value(text, isolate(text))
    if isinstance(value, dict | list):
        text, is_cut = list_compact(value, max_characters)
        text += "…" if is_cut else ""
    else:
        text = _ENCODER.encode(value)[:max_characters]
    return Value(text, isolate(text), is_data=True)


def _show_key(key: object) -> Value:
    return _show(str(key)[: _MAX_KEY + 1], _MAX_KEY) if str(key) else Value('""', is_data=True)


def _find_identifier(items: Sequence[Any]) -> Any | None:
    """The key whose value heads the objects of a list."""
    objects = [item for item in items[:MAX_ROWS] if isinstance(item, dict)]
    if not objects or any(isinstance(item, list) for item in items[:MAX_ROWS]):
        return None
    for key in (*_IDENTIFIERS, *islice(objects[0], MAX_COLUMNS)):
        values = [item.get(key) for item in objects]
        if all(isinstance(value, str | int) and not isinstance(value, bool) and _is_short(value) for value in values):
            is_named = key in _IDENTIFIERS or isinstance(values[0], str)
            if is_named and "" not in values and len(set(map(str, values))) == len(values):
                return key
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Text


@dataclass(slots=True)
class _Draft:
    """A line before it has a number. ``pointers`` are those of its fields; ``pointer`` is that of the whole line."""

    depth: int
    pointer: str
    label: Value | None = None
    label_pointer: str = ""
    is_head: bool = False
    starts: bool = False
    fields: Sequence[tuple[Field, str]] = ()
    values: int = 1
    """How many values of the output it shows."""


class _TextWriter:
    """Lays a value out line by line, and counts the characters of texts that it leaves out."""

    def __init__(self) -> None:
        self.left_out = 0

    def write(self, value: Any) -> Iterator[_Draft]:
        """The lines of a whole output."""
        if isinstance(value, dict) and len(value) == 1:
            # A single list needs no heading.
            [(key, item)] = value.items()
            if isinstance(item, list) and item and isinstance(item[0], dict):
                yield from self._write_list(item, f"/{escape_part(key)}", 0)
                return
        if isinstance(value, dict) and value:
            yield from self._write_object(value, "", 0)
        elif isinstance(value, list) and value:
            yield from self._write_list(value, "", 0)
        else:
            yield from self._write_scalar(value, _Draft(0, ""))

    def _write_object(
        self, value: dict[str, Any], pointer: str, depth: int, head: _Draft | None = None, head_key: str | None = None
    ) -> Iterator[_Draft]:
        """The fields of an object: short ones share lines, the first of them that of the ``head`` of its block."""
        group: list[tuple[Field, str]] = []
        length = 0
        for key, item in value.items():
            own = f"{pointer}/{escape_part(key)}"
            if key == head_key:
                continue
            is_short = _is_short(item)
            shown = _show(item, _MAX_SHORT) if is_short else None
            name = _show_key(key)
            size = len(name.text) + len(shown.text) if shown else 0
            if group and (not is_short or length + size > _MAX_GROUP):
                yield self._close_group(group, head, pointer, depth)
                group, length, head = [], 0, None
            if shown:
                group.append((Field(name.text, name.direction, shown, "  " if group else ""), own))
                length += size + 2
                continue
            if head:
                yield head
                head = None
            yield from self._write_item(name, item, own, depth)
        if group:
            yield self._close_group(group, head, pointer, depth)
        elif head:
            yield head

    def _close_group(self, group: list[tuple[Field, str]], head: _Draft | None, pointer: str, depth: int) -> _Draft:
        if head:
            head.values += len(group)
            head.fields = tuple(group)
            return head
        (first, own), *others = group
        draft = _Draft(depth, own, Value(first.key, first.key_direction), values=len(group))
        draft.fields = ((replace(first, key="", key_direction=""), own), *others)
        return draft

    def _write_item(
        self, name: Value, item: Any, pointer: str, depth: int, *, starts: bool = False
    ) -> Iterator[_Draft]:
        """Something that has lines of its own, with its label."""
        draft = _Draft(depth, pointer, name, starts=starts)
        if not isinstance(item, dict | list) or not item:
            yield from self._write_scalar(item, draft)
        elif isinstance(item, list) and all(map(_is_short, item[:MAX_ROWS])) and self._fits(item):
            fields = [
                (Field("", "", _show(one), "" if index == 0 else ", "), f"{pointer}/{index}")
                for index, one in enumerate(item)
            ]
            draft.fields, draft.values = fields, len(fields)
            yield draft
        elif depth + 1 >= MAX_DEPTH:
            draft.fields, draft.values = ((Field("", "", _show(item)), pointer),), 0
            yield draft
        else:
            draft.is_head, draft.values = True, 0
            yield draft
            if isinstance(item, dict):
                yield from self._write_object(item, pointer, depth + 1)
            else:
                yield from self._write_list(item, pointer, depth + 1)

    @staticmethod
    def _fits(items: Sequence[Any]) -> bool:
        return len(items) <= 20 and sum(len(str(item)) + 2 for item in items) <= _MAX_GROUP

    def _write_list(self, items: Sequence[Any], pointer: str, depth: int) -> Iterator[_Draft]:
        key = _find_identifier(items)
        for index, item in enumerate(items):
            own = f"{pointer}/{index}"
            if not (isinstance(item, dict) and item):
                label = Value(f"{index + 1}.", is_data=True)
                yield from self._write_item(label, item, own, depth, starts=isinstance(item, list) and bool(item))
                continue
            if key is not None and key in item and _is_short(item[key]):
                head = _Draft(depth, own, _show(item[key]), f"{own}/{escape_part(key)}", True, True)
                yield from self._write_object(item, own, depth, head, key)
            else:
                head = _Draft(depth, own, Value(f"{index + 1}.", is_data=True), "", True, True, values=0)
                yield from self._write_object(item, own, depth, head)

    def _write_scalar(self, value: Any, draft: _Draft) -> Iterator[_Draft]:
        """A text line by line, the first one with its label; anything else in one line."""
        if not isinstance(value, str) or not value:
            draft.fields = ((Field("", "", _show(value)), draft.pointer),)
            yield draft
            return
        text = value[:MAX_TEXT]
        self.left_out += len(value) - len(text)
        rows = text.expandtabs(4).replace("\r\n", "\n").split("\n")
        if len(value) > len(text):
            rows[-1] += "…"
        for index, row in enumerate(rows):
            shown = show_invisible(row)
            field = Field("", "", Value(shown, isolate(shown)))
            if index == 0:
                draft.fields = ((field, draft.pointer),)
                yield draft
            else:
                yield _Draft(draft.depth, "", fields=((field, ""),), values=0)


def _view_text(base: OutputView, value: Any, marks: Sequence[Mark]) -> OutputView:
    writer = _TextWriter()
    drafts: list[_Draft] = []
    numbers: dict[str, int] = {}
    own_values: set[str] = set()
    shown, room, is_cut = 0, MAX_CHARACTERS, False
    for draft in writer.write(value):
        size = sum(len(field.key) + len(field.value.text) for field, _ in draft.fields)
        if len(drafts) == MAX_LINES or shown >= MAX_VALUES or (size > room and drafts):
            is_cut = True
            break
        room -= size
        drafts.append(draft)
        shown += draft.values
        own = [pointer for _, pointer in draft.fields if pointer]
        own += [draft.label_pointer] if draft.label_pointer else []
        own_values.update(own)
        for pointer in (draft.pointer, *own):
            if pointer:
                numbers.setdefault(pointer, len(drafts))

    # Something is missing: the line of what it is missing in.
    def find(pointer: str | None) -> int | None:
        found = find_nearest(pointer, numbers)
        return found[0] if found and (found[1] or not is_cut or _is_inside(pointer, own_values)) else None

    groups, anchors = group_marks(marks, find)
    exact = {mark.pointer for mark in marks if mark.issue_id in anchors} & own_values
    lines = tuple(_finish(draft, number, groups.get(number), exact) for number, draft in enumerate(drafts, 1))
    left_out = ""
    if is_cut or writer.left_out:
        left_out = _describe_rest(value, shown if is_cut else MAX_COUNTED, writer.left_out) or "The rest is not shown."
    is_tall = len(lines) > 60 or MAX_CHARACTERS - room > 6_000
    return replace(base, lines=lines, anchors=anchors, left_out=left_out, is_tall=is_tall)


def _is_inside(pointer: str | None, values: set[str]) -> bool:
    """Whether a pointer leads into one of these values, which are shown whole."""
    found = find_nearest(pointer, dict.fromkeys(values, 0))
    return found is not None


def _finish(draft: _Draft, number: int, marks: Marks | None, exact: set[str | None]) -> TextLine:
    fields = tuple(
        replace(field, value=replace(field.value, is_marked=True)) if pointer and pointer in exact else field
        for field, pointer in draft.fields
    )
    label = draft.label
    if label and draft.label_pointer and draft.label_pointer in exact:
        label = replace(label, is_marked=True)
    return TextLine(number, draft.depth, label, draft.is_head, draft.starts, fields, marks)


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def _find_tables(value: Any) -> list[tuple[str | None, list[dict[str, Any]]]]:
    """The lists of objects of an output with their keys; None for the output itself."""
    if isinstance(value, list):
        return [(None, value)] if _is_table(value) else []
    if not isinstance(value, dict):
        return []
    found = [(key, item) for key, item in islice(value.items(), MAX_ROWS) if isinstance(item, list) and _is_table(item)]
    return found[:MAX_TABLES]


def _is_table(items: Sequence[Any]) -> bool:
    """Whether these are objects whose fields are mostly scalars; the first rows decide."""
    head = items[:MAX_ROWS]
    if not head or not all(isinstance(item, dict) and item for item in head):
        return False
    cells = [
        isinstance(cell, dict | list) and bool(cell) for item in head for cell in list(item.values())[:MAX_COLUMNS]
    ]
    return sum(cells) * 2 <= len(cells)


_Spot = tuple[int, int, int]
"""Of a mark: table, row and column; -1 for the whole of them."""


def _view_tables(base: OutputView, value: Any, marks: Sequence[Mark]) -> OutputView:
    found = _find_tables(value)
    spots: dict[str, _Spot] = {}
    tables: list[Table] = []
    keys = {key for key, _ in found}
    rest = {key: item for key, item in value.items() if key not in keys} if isinstance(value, dict) else {}
    if rest:
        tables.append(_lay_out_fields(rest, spots))
    for key, items in found:
        pointer = "" if key is None else f"/{escape_part(key)}"
        title = "" if key is None else show_invisible(str(key)[:_MAX_KEY])
        tables.append(_lay_out_table(title, items, pointer, len(tables), spots))

    # Marks of rows that are not shown stand nowhere, not at the table.
    def find(pointer: str | None) -> _Spot | None:
        place = find_nearest(pointer, spots)
        if place is None or (not place[1] and place[0][1] == -1 and tables[place[0][0]].left_out):
            return None
        return place[0]

    groups, anchors = group_marks(marks, find)
    for (at, row, column), own in groups.items():
        tables[at] = _mark_table(tables[at], row, column, own)
    left_out = " ".join(table.left_out for table in tables if table.left_out)
    is_tall = sum(len(table.rows) for table in tables) > 40
    return replace(base, tables=tuple(tables), anchors=anchors, left_out=left_out, is_tall=is_tall)


def _lay_out_fields(fields: Mapping[str, Any], spots: dict[str, _Spot]) -> Table:
    """The fields of an output that are no tables, one a row."""
    rows = []
    for number, (key, item) in enumerate(islice(fields.items(), MAX_ROWS)):
        spots[f"/{escape_part(key)}"] = (0, number, 1)
        rows.append(Row(number + 1, (Cell(_show_key(key)), _show_cell(item))))
    more = len(fields) - len(rows)
    left_out = f"Not shown: {format_plural(more, 'field')}." if more else ""
    return Table("", (Value("Field"), Value("Value")), tuple(rows), left_out)


def _lay_out_table(
    title: str, items: Sequence[dict[str, Any]], pointer: str, at: int, spots: dict[str, _Spot]
) -> Table:
    shown = items[:MAX_ROWS]
    columns = list(dict.fromkeys(key for item in shown for key in item))
    keys = columns[:MAX_COLUMNS]
    spots[pointer] = (at, -1, -1)
    rows: list[Row] = []
    room = MAX_CHARACTERS
    for number, item in enumerate(shown):
        own = f"{pointer}/{number}"
        cells = tuple(_show_cell(item[key]) if key in item else Cell(None) for key in keys)
        room -= sum(len(cell.value.text) for cell in cells if cell.value)
        if room < 0 and rows:
            break
        spots[own] = (at, number, -1)
        spots.update((f"{own}/{escape_part(key)}", (at, number, place)) for place, key in enumerate(keys))
        rows.append(Row(number + 1, cells))
    parts = [format_plural(len(items) - len(rows), "row")] if len(rows) < len(items) else []
    parts += [format_plural(len(columns) - len(keys), "column")] if len(columns) > len(keys) else []
    left_out = f"Not shown{f' of {title}' if title else ''}: {', '.join(parts)}." if parts else ""
    return Table(title, tuple(map(_show_key, keys)), tuple(rows), left_out)


def _show_cell(value: Any) -> Cell:
    return Cell(_show(value), isinstance(value, int | float) and not isinstance(value, bool))


def _mark_table(table: Table, row: int, column: int, marks: Marks) -> Table:
    if row < 0:
        return replace(table, marks=marks)
    changed = table.rows[row]
    if column < 0:
        changed = replace(changed, marks=marks)
    else:
        cells = list(changed.cells)
        cells[column] = replace(cells[column], marks=marks)
        changed = replace(changed, cells=tuple(cells))
    return replace(table, rows=(*table.rows[:row], changed, *table.rows[row + 1 :]))
