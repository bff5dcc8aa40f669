"""Reads a flow file: first its text, then its fields, then what it means; each problem with its line and column.

PyYAML parses the structure with libyaml, event by event, so that a hostile file is left at the first event that goes
too far. What a plain scalar means is decided here, by the core schema of YAML 1.2.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml

from flows.engine.errors import Problem, ToolFlowError
from flows.engine.json_values import MAX_DEPTH, describe_type, format_pointer, parse_object, parse_pointer
from flows.engine.plugins import registry
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.engine.spec_check import check_spec, freeze_schemas, read_document

MAX_FILE_BYTES = 1024 * 1024
"""How large a flow file may be."""

MAX_VALUES = 50_000
"""How many values a flow file may hold: a flow of 50 steps has some thousands."""

MAX_PROBLEMS = 100
"""How many problems of one file are reported; of more the number is."""

JsonScalar = str | int | float | bool | None

_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLACE_IN_EXPRESSION = re.compile(r"^Line (\d+), column (\d+): ")

# libyaml is forty times as fast as PyYAML's own parser; PyYAML may have been built without it.
_LOADER: Any = getattr(yaml, "CLoader", yaml.Loader)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One thing that is wrong in a file, and where.

    ``path`` is a JSON pointer into the document, ``""`` for the whole of it or where the text is not a document yet.
    ``line`` and ``column`` count from 1; None where no place in the text is the cause.
    """

    path: str
    message: str
    line: int | None = None
    column: int | None = None

    @property
    def place(self) -> str:
        """Such as ``Line 12, column 5``; empty where there is none."""
        return "" if self.line is None else f"Line {self.line}, column {self.column}"

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.message) if part)


class FlowFileError(ToolFlowError):
    """A file holds no flow that can run. ``problems`` are in the order of the file."""

    def __init__(self, problems: Iterable[FileProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


_Path = tuple[str, ...]
_Places = dict[_Path, int]
"""Where each value begins in the text, by its path; an entry of an object begins at its key."""


def check_flow(spec: FlowSpec) -> list[Problem]:
    """What keeps a flow from running with the plug-ins that are loaded, by JSON pointers into its document."""
    return check_spec(freeze_schemas(spec, registry), registry)


def parse_document(source: str | bytes) -> dict[str, Any]:
    """The document in a flow file, whether it makes a flow or not.

    Raises ``FlowFileError`` if the text can't be read as such a document.
    """
    return _parse_text(_decode(source))[0]


def parse_flow(source: str | bytes, *, check: Callable[[FlowSpec], Iterable[Problem]] = check_flow) -> FlowSpec:
    """The flow in a file.

    Raises ``FlowFileError`` with the first thing that keeps the text from being read; if it can be read, with all
    problems of its fields and all that ``check`` finds, by JSON pointers into the document.
    """
    text = _decode(source)
    document, places = _parse_text(text)
    spec, problems = read_document(document, check)
    if spec is None or problems:
        raise _locate_all(text, places, problems)
    return spec


def decode_text(source: bytes) -> str:
    """The text of a file. Raises ``FlowFileError`` if it is too large or not UTF-8."""
    if len(source) > MAX_FILE_BYTES:
        message = f"The file is too large. A flow file has at most {MAX_FILE_BYTES // 1024:,} KB."
        raise FlowFileError([FileProblem("", message)])
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        readable = source[: error.start].decode("utf-8-sig")
        raise _locate(readable, len(readable), "The file is not UTF-8 here. Save it as UTF-8.") from None


def _decode(source: str | bytes) -> str:
    return decode_text(source if isinstance(source, bytes) else source.encode(errors="surrogatepass"))


# ---------------------------------------------------------------------------------------------------------------
# Text to document


def _parse_text(text: str) -> tuple[dict[str, Any], _Places]:
    """The document, and where its parts are. Raises ``FlowFileError`` with what keeps the text from being read."""
    if found := _UNREADABLE.search(text):
        message = f"The character U+{ord(found[0]):04X} is not allowed in a file. Write an escape in double quotes."
        raise _locate(text, found.start(), message)
    document, parser = _parse_json(text), _Parser(text)
    try:
        parsed = parser.parse()
    except yaml.YAMLError as error:
        # Only JSON has characters that are escaped in two halves; such a file has no lines.
        if document is None:
            raise _explain_syntax(text, error) from None
        return document, {(): 0}
    document = parsed if document is None else document
    if not isinstance(document, dict):
        message = f"A flow file holds the fields of a flow, such as “name: my-flow”. This is {describe_type(document)}."
        raise _locate(text, 0, message)
    return document, parser.places


def _parse_json(text: str) -> dict[str, Any] | None:
    """The object in JSON text; None for other text, which may be YAML that begins with a brace."""
    try:
        return parse_object(text) if text.lstrip().startswith("{") else None
    except ValueError:
        return None


def _explain_syntax(text: str, error: yaml.YAMLError) -> FlowFileError:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return FlowFileError([FileProblem("", "The file is not valid YAML.")])
    began = f" {error.context}" if error.context else ""
    if error.context_mark is not None:
        began += f" that begins in line {text.count(chr(10), 0, error.context_mark.index) + 1}"
    message = f"This is not valid YAML: {error.problem}{began}. Check the indentation, and which text needs quotes."
    return _locate(text, error.problem_mark.index, message)


class _Parser:
    """Builds a document of JSON types from the events of the YAML parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self._count = 0
        self.places: _Places = {}

    def parse(self) -> Any:
        """The document. Raises ``YAMLError`` where the text is not YAML, ``FlowFileError`` for what is refused."""
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise FlowFileError([FileProblem("", "The file is empty. It should begin with a name: “name: my-flow”.")])
        value = self._build(next(self._events), ())
        self.places[()] = 0
        next(self._events)  # the end of the document
        event = next(self._events)
        if isinstance(event, yaml.DocumentStartEvent):
            raise self._refuse(event, "A second document begins here. A file holds one flow.")
        return value

    def _build(self, event: Any, path: _Path) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._refuse(event, f"The file holds more than {MAX_VALUES:,} values.")
        if len(path) >= MAX_DEPTH and not isinstance(event, yaml.ScalarEvent):
            raise self._refuse(event, f"The file is nested deeper than {MAX_DEPTH} levels.")
        self._refuse_references(event, path)
        self.places.setdefault(path, event.start_mark.index)
        if isinstance(event, yaml.ScalarEvent):
            return self._parse_scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                items.append(self._build(event, (*path, str(len(items)))))
            return items
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._parse_key(event, path)
            if key in entries:
                raise self._refuse(event, f"“{key[:60]}” occurs twice here. Remove one of them.", (*path, key))
            self.places[*path, key] = event.start_mark.index
            entries[key] = self._build(next(self._events), (*path, key))
        return entries

    def _refuse_references(self, event: Any, path: _Path) -> None:
        if getattr(event, "tag", None) is not None:
            raise self._refuse(event, "Flow files have no tags. Put text that begins with “!” in quotes.", path)
        if event.anchor is not None:
            message = "Flow files have no references. Put text that begins with “&” or “*” in quotes."
            raise self._refuse(event, message, path)

    def _parse_key(self, event: Any, path: _Path) -> str:
        self._refuse_references(event, path)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refuse(event, "A key must be text; this one is a list or an object.", path)
        key = str(event.value)
        if not isinstance(self._parse_scalar(event, (*path, key)), str):
            raise self._refuse(event, f"The key “{key[:60]}” is not text. Put it in quotes.", (*path, key))
        return key

    def _parse_scalar(self, event: Any, path: _Path) -> JsonScalar:
        try:
            return parse_plain(event.value) if event.implicit[0] else str(event.value)
        except ValueError as error:
            raise self._refuse(event, str(error), path) from None

    def _refuse(self, event: Any, message: str, path: _Path = ()) -> FlowFileError:
        return _locate(self._text, event.start_mark.index, message, format_pointer(path))


_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_NO_JSON_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_NUMBER = int(sys.float_info.max)


def parse_plain(text: str) -> JsonScalar:
    """The value of a scalar without quotes; text that looks like nothing else is itself.

    Raises ``ValueError``, one sentence, for what JSON doesn't know or other programs read as another number.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _NO_JSON_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is not a JSON number. Put it in quotes if it is text.")
    if not (_NUMBER.fullmatch(text) or _OTHER_BASE.fullmatch(text)):
        return text
    if _LEADING_ZERO.match(text):
        raise ValueError(f"Some programs read {text[:40]} as octal. Remove the leading zeros, or put text in quotes.")
    value: int | float | None = None
    if not _INTEGER.fullmatch(text):
        value = int(text, 0) if _OTHER_BASE.fullmatch(text) else float(text)
    elif len(text) < sys.float_info.max_10_exp + 3:
        value = int(text)
    if value is None or not -_MAX_NUMBER <= value <= _MAX_NUMBER:
        raise ValueError(f"The number {text[:40]} is too large; ±{_MAX_NUMBER:.1e} is the limit.")
    return value


# ---------------------------------------------------------------------------------------------------------------
# Problems to lines


def _locate(text: str, offset: int, message: str, path: str = "") -> FlowFileError:
    return FlowFileError([_build_problem(text, offset, message, path)])


def _build_problem(text: str, offset: int, message: str, path: str) -> FileProblem:
    line_start = text.rfind("\n", 0, offset) + 1
    return FileProblem(path, message, text.count("\n", 0, offset) + 1, offset - line_start + 1)


def _locate_all(text: str, places: _Places, problems: Iterable[Problem]) -> FlowFileError:
    """Problems with their lines, in the order of the file."""
    placed = [(_find_offset(places, problem.path), problem) for problem in problems]
    placed.sort(key=lambda found: found[0])
    found = []
    for offset, problem in placed[:MAX_PROBLEMS]:
        message = _PLACE_IN_EXPRESSION.sub(r"In line \1, column \2 of this text: ", problem.message)
        found.append(_build_problem(text, offset, message + _find_hint(problem), problem.path))
    if len(placed) > MAX_PROBLEMS:
        found.append(FileProblem("", f"{len(placed) - MAX_PROBLEMS:,} more problems follow."))
    return FlowFileError(found)


def _find_offset(places: _Places, pointer: str) -> int:
    """Where the part begins that a JSON pointer names; for one that is missing, the part that lacks it."""
    path = parse_pointer(pointer)
    while path not in places:
        path = path[:-1]
    return places[path]


def _find_hint(problem: Problem) -> str:
    """What was most likely meant by a field that can't be read: another name, or text."""
    kind: type[FlowSpec | StepSpec | AuditSpec]
    match parse_pointer(problem.path):
        case ["steps", _, "audits", _, name]:
            kind = AuditSpec
        case ["steps", _, name]:
            kind = StepSpec
        case [name]:
            kind = FlowSpec
        case _:
            return ""
    if name in kind.model_fields:
        return " Put text in quotes." if "valid string" in problem.message else ""
    close = get_close_matches(name[:60], kind.model_fields, n=1)
    return f" Did you mean “{close[0]}”?" if close else ""
