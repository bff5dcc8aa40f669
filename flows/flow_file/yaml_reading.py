"""From the text of a file to a document of JSON types, with the place of each of its parts.

PyYAML finds the structure; what a scalar means is decided by ``scalars``. All that can be read is read: problems are
collected, and where a value can't be used None stands in its place.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from flows.engine.json_values import MAX_DEPTH, format_pointer, parse_object
from flows.flow_file.problems import FileProblem, FlowFileError
from flows.flow_file.scalars import resolve_plain
from flows.flow_file.yaml_messages import explain_syntax

MAX_FILE_BYTES = 1024 * 1024
"""How large a flow file may be."""

MOST_VALUES = 50_000
"""How many values a flow file may hold: a flow of 50 steps has some thousands."""

Path = tuple[str | int, ...]

_MOST_CHARACTERS = 10
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORD = re.compile(r"[^\s,\]}]+")

# The parser of libyaml is forty times as fast; PyYAML may have been built without it.
_LOADER: Any = getattr(yaml, "CLoader", yaml.Loader)


@dataclass(slots=True)
class Reading:
    """What a text gave: a document, and what is wrong with it so far."""

    text: str
    document: Any = None
    problems: list[FileProblem] = field(default_factory=list)
    paths_in_doubt: list[Path] = field(default_factory=list)
    """Where a problem was found already; what is wrong there besides would only be its consequence."""
    places: dict[Path, int] = field(default_factory=dict)
    """Where each part begins (an entry of an object at its key), as an offset into the text."""
    words: dict[Path, str] = field(default_factory=dict)
    """What stands in the text for the values that are no text."""
    _line_starts: list[int] = field(default_factory=list)

    def place(self, path: str, message: str, offset: int | None) -> FileProblem:
        """A problem with the line and column of an offset."""
        if offset is None:
            return FileProblem(path, message)
        offset = min(offset, len(self.text))
        if not self._line_starts:
            self._line_starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        line = bisect_right(self._line_starts, offset)
        return FileProblem(path, message, line, offset - self._line_starts[line - 1] + 1)

    def find_offset(self, path: Path) -> int | None:
        """Where a part begins; for one that is missing, the part that lacks it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)


def decode_text(source: bytes) -> str:
    """The text of a file. Raises ``FlowFileError`` if it is too large or not UTF-8."""
    if len(source) > MAX_FILE_BYTES:
        message = f"The file is too large. A flow file has at most {MAX_FILE_BYTES // 1024:,} KB."
        raise FlowFileError([FileProblem("", message)])
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        column = len(source[source.rfind(b"\n", 0, error.start) + 1 : error.start].decode(errors="replace")) + 1
        message = "The file is not UTF-8 here. Save it as UTF-8 in your editor."
        raise FlowFileError([FileProblem("", message, line, column)]) from None


def read_text(source: str | bytes) -> Reading:
    """Read YAML or JSON. Raises ``FlowFileError`` for a text that has no structure that can be read."""
    text = decode_text(source if isinstance(source, bytes) else source.encode(errors="surrogatepass"))
    reading = Reading(text)
    if characters := list(_find_characters(reading)):
        raise FlowFileError(characters)
    document = _read_json(text)
    try:
        _Builder(reading).build()
    except yaml.MarkedYAMLError as error:
        if document is None:
            raise FlowFileError([reading.place("", *explain_syntax(error, text))]) from None
    except yaml.YAMLError:
        if document is None:
            raise FlowFileError([FileProblem("", "The file can't be read as YAML.")]) from None
    if document is not None:
        # YAML finds the places, JSON the values: it alone knows escaped halves of a character.
        reading.document = document
        reading.problems.clear()
        reading.paths_in_doubt.clear()
    return reading


def _find_characters(reading: Reading) -> Iterator[FileProblem]:
    for found, _ in zip(_UNREADABLE.finditer(reading.text), range(_MOST_CHARACTERS), strict=False):
        code = ord(found[0])
        message = (
            f"The character U+{code:04X} can't stand in a file as it is. In text in double quotes write \\u{code:04x}."
            if code
            else "There is a NUL character here, which can't be stored. Take it out."
        )
        yield reading.place("", message, found.start())


def _read_json(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        return parse_object(text)
    except ValueError:
        return None  # it may be YAML in braces, and if not, its reader says what is wrong


class _Builder:
    """Builds the document of a ``Reading`` from the parser's events."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._events: Iterator[Any] = yaml.parse(reading.text, Loader=_LOADER)
        self._count = 0

    def build(self) -> None:
        """Fill in the document. Raises ``YAMLError`` where the text is no YAML."""
        event: Any = self._next(yaml.StreamStartEvent)
        if isinstance(event, yaml.StreamEndEvent):
            self._add((), "The file is empty. It should hold a flow, beginning with its name: “name: my-flow”.", None)
            return
        self._reading.places[()] = 0
        self._reading.document = self._build(self._next(yaml.DocumentStartEvent), ())
        event = self._next(yaml.DocumentEndEvent)
        offset = event.start_mark.index
        if isinstance(event, yaml.DocumentStartEvent):
            message = "A second document begins here. A file holds one flow; give the other one its own file."
            self._add((), message, offset)

    def _next(self, *skipped: Any) -> Any:
        event = next(self._events)
        while isinstance(event, skipped):
            event = next(self._events)
        return event

    def _add(self, path: Path, message: str, offset: int | None) -> None:
        reading = self._reading
        reading.problems.append(reading.place(format_pointer(path), message, offset))
        reading.paths_in_doubt.append(path)

    def _build(self, event: Any, path: Path) -> Any:
        if isinstance(event, yaml.DocumentStartEvent):
            event = next(self._events)
        offset = event.start_mark.index
        self._count += 1
        if self._count > MOST_VALUES:
            raise FlowFileError([self._reading.place("", f"The file holds more than {MOST_VALUES:,} values.", offset)])
        if isinstance(event, yaml.AliasEvent):
            message = (
                f"“*{event.anchor}” refers to another place in YAML, and flow files have no references. Write the "
                "value itself; put text that begins with “*” in quotes."
            )
            return self._add(path, message, offset)
        self._refuse_properties(event, path)
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(event, path)
        if len(path) >= MAX_DEPTH:
            message = f"The file is nested deeper than {MAX_DEPTH} levels."
            raise FlowFileError([self._reading.place(format_pointer(path[:10]) + "/…", message, offset)])
        return self._build_list(path) if isinstance(event, yaml.SequenceStartEvent) else self._build_object(path)

    def _refuse_properties(self, event: Any, path: Path) -> None:
        offset = event.start_mark.index
        word = _WORD.match(self._reading.text, offset)
        shown = word[0][:40] if word else ""
        if event.tag is not None:
            message = f"“{shown}” is a tag in YAML, and flow files have none. Put text that begins with “!” in quotes."
            self._add(path, message, offset)
        elif event.anchor is not None:
            message = (
                f"“{shown}” names a place in YAML, and flow files have no references. Leave it out; put text that "
                "begins with “&” in quotes."
            )
            # The value itself can be read all the same.
            self._reading.problems.append(self._reading.place(format_pointer(path), message, offset))

    def _read_scalar(self, event: Any, path: Path) -> Any:
        if not event.implicit[0]:
            return event.value
        try:
            value = resolve_plain(event.value)
        except ValueError as error:
            return self._add(path, str(error), event.start_mark.index)
        if not isinstance(value, str):
            self._reading.words[path] = event.value
        return value

    def _build_list(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            place = (*path, len(items))
            self._reading.places[place] = event.start_mark.index
            items.append(self._build(event, place))
        return items

    def _build_object(self, path: Path) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            offset = event.start_mark.index
            key = self._read_key(event, path)
            place = (*path, key)
            if key in entries:
                first = self._reading.place("", "", self._reading.places[place]).line
                message = f"“{key[:60]}” stands twice here, first in line {first}. Keep one of them."
                self._reading.problems.append(self._reading.place(format_pointer(place), message, offset))
                self._build(next(self._events), place)
                continue
            self._reading.places[place] = offset
            entries[key] = self._build(next(self._events), place)
        return entries

    def _read_key(self, event: Any, path: Path) -> str:
        offset = event.start_mark.index
        if not isinstance(event, yaml.ScalarEvent):
            self._add(path, "A key is text, and here it is a list, an object or a reference.", offset)
            self._build(event, (*path, "?"))
            return f"?{offset}"
        self._refuse_properties(event, path)
        if event.implicit[0] and event.style in {None, ""}:
            try:
                is_text = isinstance(resolve_plain(event.value), str)
            except ValueError:
                is_text = False
            if not is_text:
                what = f"The key {event.value[:40]} is no text. Put it in quotes" if event.value else "A key is missing"
                shown = f': "{event.value[:40]}".' if event.value else " before the colon."
                self._reading.problems.append(
                    self._reading.place(format_pointer((*path, event.value)), what + shown, offset)
                )
        return str(event.value)
