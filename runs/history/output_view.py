"""An output in the three ways a page shows it: as text to read, as tables, and as JSON.

A view is a bounded piece of a value of any size, with the issues that point at its parts. Only the chosen one is built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

from flows.engine.json_values import format_pointer
from runs.history.json_lines import Mark, list_compact, list_json, list_text, place_marks
from runs.history.texts import ShownText, cut_text, show_invisible

MAX_LINES = 1_000
MAX_VALUES = 1_500
MAX_CHARACTERS = 100_000
"""What one view shows."""
MAX_TEXT = 20_000
"""Characters of one text."""
MAX_DEPTH = 6
"""Levels that the text view lays out; deeper values are JSON in one line."""
MAX_ROWS = 200
MAX_COLUMNS = 20
MAX_TABLES = 20
MAX_CELL = 500
"""Characters of a value in a table, and of one in one line of JSON."""

_MAX_SHORT, _MAX_WORDS = 40, 4
"""Characters and words of a value that shares its line with others: more of them are a sentence."""
_MAX_GROUP = 96
"""Characters of such a line."""
_MAX_LISTED = 20
"""Items of a list that share a line."""
_MAX_KEY = 200
_IDENTIFIERS = ("id", "key", "name", "title", "code", "number", "no", "label")
"""Keys whose value heads the block of an object; without one, a key that differs in all objects of the list."""


class View(StrEnum):
    """A way to show an output."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"


_TITLES = {View.TEXT: "Text", View.TABLE: "Table", View.JSON: "JSON"}


Value = dict[str, Any]
"""One value in one line, in a table or in a line of text with its ``key``: its ``text`` and its ``pointer``.

What ``is_data`` is not a text: a number, ``true``, ``null``, or JSON. What ``is_long`` needs more room than a word.
"""
TextLine = dict[str, Any]
"""One line: a ``label``, then ``fields``: values, or a text. It ``is_head`` of a block or a section, with the label as
its name, and ``starts`` an item of a list, which stands apart from the one before."""


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
) -> dict[str, Any]:
    """Build one view of an output, bounded in size: its ``lines``, its ``tables`` or its ``json``.

    ``address`` is what ``view=…`` is added to for the links to the others, which ends in ``?`` or ``&``. A table is
    there where the value is a list of objects, or has one among its fields; a ``view`` that is not there gives text.
    Ids begin with the ``prefix``. ``anchors`` have the id to link to for each issue that points at something shown.
    What ``is_cut`` is not shown whole, and what ``is_tall`` scrolls in a box of its own.
    """
    has_table = bool(_find_tables(value))
    if view is View.TABLE and not has_table:
        view = View.TEXT
    shown = [name for name in View if name is not View.TABLE or has_table]
    tabs = [(name, _TITLES[name], f"{address}view={name}{fragment}") for name in shown]
    build = {View.TEXT: _view_text, View.TABLE: _view_tables, View.JSON: _view_json}[view]
    return {"prefix": prefix, "view": view, "tabs": tabs, "download_url": download_url, **build(value, marks)}


def view_text(text: str, *, prefix: str = "output", download_url: str = "") -> dict[str, Any]:
    """Build the only view of what came back instead of an output: its lines."""
    listing = list_text(text, max_characters=MAX_CHARACTERS)
    shown = {"json": listing, "is_cut": listing.is_cut, "anchors": {}}
    return {"prefix": prefix, "view": View.TEXT, "download_url": download_url, **shown}


def _mark(marks: Sequence[Mark], places: Mapping[str, Any], partial: Collection[str]) -> dict[str, str]:
    """Put marks on places; gives the id to link to for each issue that has one."""
    anchors, marked = place_marks(marks, places, partial)
    for place, own in marked:
        place["marks"] = own
    return anchors


def _view_json(value: Any, marks: Sequence[Mark]) -> dict[str, Any]:
    listing = list_json(value, max_characters=MAX_CHARACTERS)
    return {"json": listing, "anchors": listing.mark(marks), "is_cut": listing.is_cut}


# Values in one line


def _show(value: Any, pointer: str = "") -> Value:
    """A value in one line; what is longer ends in ``…``."""
    if isinstance(value, str) and value:
        text = ShownText(cut_text(value, MAX_CELL))
        return {"text": text, "pointer": pointer, "is_long": len(text) > _MAX_SHORT}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = list_compact(value, MAX_CELL)
    look = {"is_data": True, "is_number": is_number, "is_long": len(text) > _MAX_SHORT}
    return {"text": text, "pointer": pointer, **look}


def _show_key(key: str) -> ShownText:
    return ShownText(cut_text(key, _MAX_KEY) or '""')


def _is_short(value: Any) -> bool:
    """Whether a value shares its line with others: a number, a short text, something empty."""
    if isinstance(value, str):
        return len(value) <= _MAX_SHORT and "\n" not in value and len(value.split(None, _MAX_WORDS)) <= _MAX_WORDS
    return not (isinstance(value, dict | list) and value)


def _fits_line(items: Sequence[Any]) -> bool:
    """Whether all items of a list share one line."""
    is_short = len(items) <= _MAX_LISTED and all(map(_is_short, items))
    return is_short and sum(len(str(item)) + 2 for item in items) <= _MAX_GROUP


def _find_identifier(items: Sequence[Any]) -> str | None:
    """The key whose value heads the objects of a list."""
    objects: list[dict[str, Any]] = [item for item in items[:MAX_ROWS] if isinstance(item, dict)]
    if not objects or any(isinstance(item, list) for item in items[:MAX_ROWS]):
        return None
    for key in (*_IDENTIFIERS, *islice(objects[0], MAX_COLUMNS)):
        values = [item.get(key) for item in objects]
        if all(isinstance(value, str | int) and not isinstance(value, bool) and _is_short(value) for value in values):
            is_named = key in _IDENTIFIERS or isinstance(values[0], str)
            if is_named and "" not in values and len(set(map(str, values))) == len(values):
                return key
    return None


# Text


def _write_output(value: Any) -> Iterator[TextLine]:
    """The lines of a whole output."""
    if isinstance(value, dict) and len(value) == 1:
        # A single list needs no heading.
        [(key, item)] = value.items()
        if isinstance(item, list) and item and isinstance(item[0], dict):
            return _write_list(item, format_pointer([key]), 0)
    if isinstance(value, dict | list) and value:
        return _write_container(value, "", 0)
    return _write_scalar(value, {"depth": 0, "pointer": ""})


def _write_container(value: Any, pointer: str, depth: int) -> Iterator[TextLine]:
    write = _write_object if isinstance(value, dict) else _write_list
    return write(value, pointer, depth)


def _write_object(
    value: dict[str, Any], pointer: str, depth: int, line: TextLine | None = None, head_key: str | None = None
) -> Iterator[TextLine]:
    """The fields of an object: short ones share lines, the first of them that of the head of its block."""
    length = 0
    for key, item in value.items():
        if key == head_key:
            continue
        own = f"{pointer}{format_pointer([key])}"
        name = _show_key(key)
        if not _is_short(item):
            if line:
                yield line
            line, length = None, 0
            yield from _write_item(name, item, own, depth)
            continue
        shown = _show(item, own)
        size = len(name) + len(shown["text"])
        if line and line.get("fields") and length + size > _MAX_GROUP:
            yield line
            line, length = None, 0
        if line:
            shown |= {"key": name, "separator": "  " if line.get("fields") else ""}
        else:
            line = {"depth": depth, "pointer": own, "label": {"text": name}}
        line.setdefault("fields", []).append(shown)
        length += size + 2
    if line:
        yield line


def _write_item(name: str, item: Any, pointer: str, depth: int, *, starts: bool = False) -> Iterator[TextLine]:
    """Something that has lines of its own, with its label."""
    line: TextLine = {"depth": depth, "pointer": pointer, "label": {"text": ShownText(name)}, "starts": starts}
    if not isinstance(item, dict | list) or not item:
        yield from _write_scalar(item, line)
    elif isinstance(item, list) and _fits_line(item):
        line["fields"] = [_show(one, f"{pointer}/{index}") for index, one in enumerate(item)]
        for value in line["fields"][1:]:
            value["separator"] = ", "
        yield line
    elif depth + 1 >= MAX_DEPTH:
        line["fields"] = [_show(item, pointer)]
        yield line
    else:
        line["is_head"] = True
        yield line
        yield from _write_container(item, pointer, depth + 1)


def _write_list(items: Sequence[Any], pointer: str, depth: int) -> Iterator[TextLine]:
    key = _find_identifier(items)
    for index, item in enumerate(items):
        own, number = f"{pointer}/{index}", f"{index + 1}."
        if not (isinstance(item, dict) and item):
            yield from _write_item(number, item, own, depth, starts=isinstance(item, list) and bool(item))
            continue
        named = key if key is not None and key in item and _is_short(item[key]) else None
        label = {"text": ShownText(number)} if named is None else _show(item[named], f"{own}{format_pointer([named])}")
        line = {"depth": depth, "pointer": own, "label": label, "is_head": True, "starts": True}
        yield from _write_object(item, own, depth, line, named)


def _write_scalar(value: Any, line: TextLine) -> Iterator[TextLine]:
    """A text line by line, the first one with its label; anything else in one line."""
    if not isinstance(value, str) or not value:
        line["fields"] = [_show(value, line["pointer"])]
        yield line
        return
    line["is_cut"] = len(value) > MAX_TEXT
    rows = value[:MAX_TEXT].expandtabs(4).replace("\r\n", "\n").split("\n")
    if line["is_cut"]:
        rows[-1] += "…"
    values = [{"text": ShownText(show_invisible(row))} for row in rows]
    line["fields"] = [{**values[0], "pointer": line["pointer"]}]
    yield line
    for other in values[1:]:
        yield {"depth": line["depth"], "pointer": "", "fields": [other]}


def _view_text(value: Any, marks: Sequence[Mark]) -> dict[str, Any]:
    lines: list[TextLine] = []
    places: dict[str, Any] = {}
    values: dict[str, Value] = {}
    remaining, is_cut = MAX_CHARACTERS, False
    for line in _write_output(value):
        fields = line.get("fields", [])
        size = sum(len(one.get("key", "")) + len(one["text"]) for one in fields)
        if len(lines) == MAX_LINES or len(values) >= MAX_VALUES or (size > remaining and lines):
            is_cut = True
            break
        remaining -= size
        lines.append(line)
        own = {one["pointer"]: one for one in (line.get("label", {}), *fields) if one.get("pointer")}
        values |= own
        # A list without a heading is marked at its first item.
        for pointer in (line["pointer"], *own, line["pointer"].rpartition("/")[0]):
            if pointer:
                places.setdefault(pointer, line)
    anchors = _mark(marks, places, places.keys() - values if is_cut else ())
    for mark in marks:
        if mark.pointer in values and mark.issue_id in anchors:
            values[mark.pointer]["is_marked"] = True
    is_tall = len(lines) > 60 or MAX_CHARACTERS - remaining > 6_000
    is_cut = is_cut or any(line.get("is_cut") for line in lines)
    return {"lines": lines, "anchors": anchors, "is_cut": is_cut, "is_tall": is_tall}


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
    cells = [isinstance(cell, dict | list) and cell for item in head for cell in islice(item.values(), MAX_COLUMNS)]
    return sum(map(bool, cells)) * 2 <= len(cells)


def _view_tables(value: Any, marks: Sequence[Mark]) -> dict[str, Any]:
    found = _find_tables(value)
    places: dict[str, Any] = {}
    tables: list[dict[str, Any]] = []
    keys = {key for key, _ in found}
    if isinstance(value, dict) and (rest := {key: item for key, item in value.items() if key not in keys}):
        tables.append(_lay_out_fields(rest, places))
    cut = []
    for key, items in found:
        pointer = "" if key is None else format_pointer([key])
        table = _lay_out_table("" if key is None else show_invisible(key[:_MAX_KEY]), items, pointer, places)
        tables.append(table)
        if table["is_cut"]:
            # Marks of rows that are not shown are left out, not put at the table.
            cut.append(pointer)
    anchors = _mark(marks, places, cut)
    is_cut = any(table["is_cut"] for table in tables)
    is_tall = sum(len(table["rows"]) for table in tables) > 40
    return {"tables": tables, "anchors": anchors, "is_cut": is_cut, "is_tall": is_tall}


def _lay_out_fields(fields: Mapping[str, Any], places: dict[str, Any]) -> dict[str, Any]:
    """The fields of an output that are not tables, one a row."""
    rows = []
    for key, item in islice(fields.items(), MAX_ROWS):
        cell = places[format_pointer([key])] = _show(item)
        rows.append({"cells": [{"text": _show_key(key), "is_data": not key}, cell]})
    columns = [ShownText("Field"), ShownText("Value")]
    return {"title": "", "columns": columns, "rows": rows, "is_cut": len(fields) > len(rows)}


def _lay_out_table(title: str, items: Sequence[dict[str, Any]], pointer: str, places: dict[str, Any]) -> dict[str, Any]:
    shown = items[:MAX_ROWS]
    columns = list(dict.fromkeys(key for item in shown for key in item))
    keys = columns[:MAX_COLUMNS]
    rows: list[dict[str, Any]] = []
    table: dict[str, Any] = {"title": title, "columns": [_show_key(key) for key in keys], "rows": rows}
    places[pointer] = table
    remaining = MAX_CHARACTERS
    for number, item in enumerate(shown):
        cells = {key: _show(item[key]) if key in item else {"text": None} for key in keys}
        remaining -= sum(len(cell["text"] or "") for cell in cells.values())
        if remaining < 0 and rows:
            break
        own = f"{pointer}/{number}"
        row = places[own] = {"cells": [*cells.values()]}
        places.update((f"{own}{format_pointer([key])}", cell) for key, cell in cells.items())
        rows.append(row)
    table["is_cut"] = len(rows) < len(items) or len(keys) < len(columns)
    return table
