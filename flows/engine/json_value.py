"""JSON values: reading them with errors a person understands, and making them safe to store.

A *JSON value* here is what both databases and every part of the engine can hold: None, bool, int, float, str, list
and dict with str keys, nested at most ``MAX_DEPTH`` levels, its strings free of NUL and of lone surrogates, its
numbers finite. Integers are kept exactly up to the range of a double, about ±1.8e308; beyond 64 bits expressions
see them as doubles.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

MAX_DEPTH = 100
"""How many levels of objects and lists a value may have."""

MOST_VALUES = 1_000_000
"""How many values a value may hold that must be copied, each counted wherever it stands."""

_MAX_INT = int(sys.float_info.max)
_INFINITY = float("inf")
_REPLACEMENT = "\ufffd"
_MAX_NOTES = 10

_LINE_BREAKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"

# What the decoder of the standard library says, and what a person needs to hear.
_SENTENCES = {
    "Expecting value": "a value is missing or is not JSON",
    "Expecting property name enclosed in double quotes": "a key in double quotes is expected",
    "Expecting ',' delimiter": "a comma is missing",
    "Expecting ':' delimiter": "a colon is missing after the key",
    "Unterminated string starting at": "the text that begins here has no closing double quote",
    "Invalid control character at": "a line break or control character inside text must be escaped (\\n, \\t)",
    "Invalid \\escape": 'a backslash must be followed by one of " \\ / b f n r t u; write \\\\ for a backslash itself',
    "Invalid \\uXXXX escape": "\\u must be followed by four hexadecimal digits",
    "Extra data": "the JSON object has ended, yet more text follows",
    "Unexpected UTF-8 BOM (decode using utf-8-sig)": "the text begins with a byte order mark; leave it out",
    "Illegal trailing comma before end of object": "the last entry must not be followed by a comma",
    "Illegal trailing comma before end of array": "the last element must not be followed by a comma",
}


class _RefusedError(ValueError):
    """Raised inside the decoder's hooks; its text is a whole sentence already."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A value that is safe to store, and one sentence for each place that had to be changed (at most ten)."""

    value: Any
    notes: tuple[str, ...] = ()


class _Notes(list[str]):
    seen = 0  # values so far


def parse_object(text: str) -> dict[str, Any]:
    """Read JSON text that must hold an object. Raises ``ValueError`` as ``parse_json`` does, and for no object."""
    if not text.strip():
        raise ValueError("The text is empty; a JSON object such as {} is expected.")
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"A JSON object is expected, got {describe_type(value)}.")
    return value


def parse_json(text: str) -> Any:
    """Read JSON text.

    Raises ``ValueError`` whose text is one sentence, with line and column where they are known, for text that is
    malformed, is nested deeper than ``MAX_DEPTH``, names a key twice in one object, or holds a number that JSON
    doesn't know (NaN, Infinity) or a double can't hold (1e999). NUL and lone surrogates pass: ``clean_value`` is for
    them.
    """
    try:
        value = json.loads(text) if text.startswith("\ufeff") else _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(_describe_syntax(text, error)) from None
    except RecursionError:
        raise ValueError(f"The JSON can't be used: {_TOO_DEEP}.") from None
    except _RefusedError:
        raise
    except ValueError:
        # Python reads no integer of more than 4,300 digits.
        raise ValueError(f"The JSON holds an integer that is too large; ±{_MAX_INT:.1e} is the limit.") from None
    if isinstance(value, dict | list):
        _refuse_depth_and_numbers(value)
    elif isinstance(value, int | float) and not _is_clean(value, 0):
        raise ValueError(f"The number is too large; ±{_MAX_INT:.1e} is the limit.")
    return value


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Write a JSON value as text: compact, or indented by ``indent`` spaces. Non-ASCII characters stay as they are.

    Raises ``ValueError`` for NaN and infinities, ``TypeError`` for what is no JSON value.
    """
    if indent is None:
        return _ENCODER.encode(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def dump_line(value: Any) -> str:
    """Write a JSON value as text without line breaks of any kind: JSON itself escapes only those of ASCII."""
    text = dump_json(value)
    return text if text.isascii() else text.translate(_LINE_BREAKS)


def describe_type(value: Any) -> str:
    """What a JSON value is, with its article, for use in sentences: “an object”, “a number”, “null”."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "text"
        case dict():
            return "an object"
        case list():
            return "a list"
    return f"a value of type “{type(value).__name__}”"


def _refuse_constant(name: str) -> Any:
    raise _RefusedError(f"{name} is not a JSON number; use null or a finite number.")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RefusedError(f"The key {_quote(key)} stands twice in one object; keep one of them.")
            seen.add(key)
    return result


def _describe_syntax(text: str, error: json.JSONDecodeError) -> str:
    here = text[error.pos :]
    before = text[: error.pos].rstrip()
    if here.startswith(("]", "}")) and before.endswith(","):
        return f"{_locate(text, len(before) - 1)}: the last entry must not be followed by a comma."
    place = _locate(text, error.pos)
    if text.lstrip().startswith("```"):
        return f"{place}: the text begins with a Markdown fence (```); only the JSON itself is expected."
    if error.msg != "Unterminated string starting at" and not here.strip():
        return f"{place}: the JSON ends too early."
    if here.startswith("'"):
        return f"{place}: text stands in double quotes in JSON, not in single quotes."
    if here.startswith(("//", "/*", "#")):
        return f"{place}: JSON has no comments."
    if here.startswith(("True", "False", "None")):
        return f"{place}: JSON writes true, false and null in lower case."
    sentence = _SENTENCES.get(error.msg.removesuffix(":"), "this is not JSON")
    return f"{place}: {sentence}."


def _locate(text: str, offset: int) -> str:
    return f"Line {text.count(chr(10), 0, offset) + 1}, column {offset - text.rfind(chr(10), 0, offset)}"


def _refuse_depth_and_numbers(value: Any) -> None:
    # Level by level and without paths: this runs on every answer of a model, and nearly always finds nothing.
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            for item in container.values() if type(container) is dict else container:
                kind = type(item)
                if kind is dict or kind is list:
                    below.append(item)
                elif (kind is float or kind is int) and not _is_clean(item, 0):
                    raise ValueError(f"The number at {_find(value, item)} is too large; ±{_MAX_INT:.1e} is the limit.")
        if not below:
            return
        level = below
    raise ValueError(f"The JSON can't be used: {_TOO_DEEP}.")


def _find(value: Any, wanted: Any) -> str:
    """The pointer to where ``wanted``, that very object, stands in ``value``."""
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while stack:
        container, path = stack.pop()
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            if item is wanted:
                return format_pointer((*path, key))
            if isinstance(item, dict | list):
                stack.append((item, (*path, key)))
    return ""


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_build_object)


# ---------------------------------------------------------------------------------------------------------------
# Cleaning


def clean_value(value: Any) -> Cleaned:
    """Turn any value into a JSON value that SQLite and PostgreSQL can store; the same object if it is one already.

    NUL and lone surrogates become U+FFFD, NaN, infinities and integers beyond the range of a double become null; the
    notes say where. Tuples, pydantic models, dataclasses, dates, decimals, enums and the like become their JSON form
    without a note. Raises ``ValueError``, one sentence, for what has no JSON form, nests deeper than ``MAX_DEPTH``, or
    holds more than ``MOST_VALUES``.
    """
    if _is_clean(value, 0):
        return Cleaned(value)
    notes = _Notes()
    cleaned = _clean(value, [], notes)
    return Cleaned(cleaned, tuple(notes[:_MAX_NOTES]))


def _is_clean(value: Any, depth: int) -> bool:
    """Whether nothing has to change. Too deep counts as unclean: ``_clean`` then raises with the sentence."""
    kind = type(value)
    if kind is str:
        return _is_clean_text(value)
    if kind is dict:
        if depth >= MAX_DEPTH:
            return False
        for key, item in value.items():
            if type(key) is not str or not _is_clean_text(key):
                return False
            kind = type(item)
            # Written out for text, the bulk of all values: a call less for each.
            if kind is str:
                if not (item.isascii() and "\0" not in item) and not _is_clean_text(item):
                    return False
            elif not _is_clean(item, depth + 1):
                return False
        return True
    if kind is list:
        return depth < MAX_DEPTH and all(_is_clean(item, depth + 1) for item in value)
    if kind is int:
        return bool(-_MAX_INT <= value <= _MAX_INT)
    if kind is float:
        return bool(-_INFINITY < value < _INFINITY)
    return value is None or kind is bool


def _is_clean_text(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clean(value: Any, path: list[str | int], notes: _Notes) -> Any:
    notes.seen += 1
    if notes.seen > MOST_VALUES:  # what refers to its parts many times over may have no end
        raise ValueError(f"The value can't be stored: it holds more than {MOST_VALUES:,} values.")
    if isinstance(value, Enum):
        value = value.value
    match value:
        case None | bool():
            return value
        case str():
            return _clean_text(value, path, notes)
        case int():
            if -_MAX_INT <= value <= _MAX_INT:
                return int(value)
            return _drop_number("an integer beyond the range of a double", path, notes)
        case float():
            if -_INFINITY < value < _INFINITY:
                return float(value)
            return _drop_number("NaN" if value != value else "an infinite number", path, notes)
        case dict():
            _refuse_depth(path)
            return _clean_object(value, path, notes)
        case list() | tuple():
            _refuse_depth(path)
            return [_clean(item, [*path, index], notes) for index, item in enumerate(value)]
    # The jsonable form may be a container again, with text that needs cleaning.
    _refuse_depth(path)
    return _clean(_convert(value, path), path, notes)


def _clean_object(value: dict[Any, Any], path: list[str | int], notes: _Notes) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        name = _clean_text(_name_key(key, path), path, notes)
        if name in result:
            _note(notes, path, f"the key {_quote(name)} came up twice by the replacement; the last one wins")
        result[name] = _clean(item, [*path, name], notes)
    return result


def _clean_text(text: str, path: list[str | int], notes: _Notes) -> str:
    text = str.__str__(text)
    if _is_clean_text(text):
        return text
    # A pair of surrogates that stand apart is one character: decoding joins it, and replaces what is left over.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", _REPLACEMENT)
    _note(notes, path, f"characters that can't be stored (NUL, lone surrogates) were replaced by “{_REPLACEMENT}”")
    return joined


def _name_key(key: Any, path: list[str | int]) -> str:
    if isinstance(key, Enum):
        key = key.value
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case None:
            return "null"
        case int() | float():
            return repr(key)
    raise ValueError(f"{_place(path)}: a key must be text, got {describe_type(key)}.")


def _convert(value: Any, path: list[str | int]) -> Any:
    try:
        converted = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError, AttributeError):
        converted = value
    if converted is value:
        raise ValueError(f"{_place(path)}: {describe_type(value)} has no JSON form.")
    return converted


def _drop_number(what: str, path: list[str | int], notes: _Notes) -> None:
    _note(notes, path, f"{what} can't be stored; null stands in its place")


def _refuse_depth(path: list[str | int]) -> None:
    if len(path) >= MAX_DEPTH:
        raise ValueError(f"The value can't be stored: {_TOO_DEEP}.")


def _note(notes: _Notes, path: list[str | int], sentence: str) -> None:
    if len(notes) < _MAX_NOTES:
        notes.append(f"{_place(path)}: {sentence}.")


def _place(path: list[str | int]) -> str:
    return format_pointer(path) or "The whole value"


def _quote(text: str, limit: int = 60) -> str:
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"“{shown}”"


# ---------------------------------------------------------------------------------------------------------------
# JSON pointers (RFC 6901)


def format_pointer(parts: Iterable[str | int]) -> str:
    """Write keys and indices as a JSON pointer: ``["a/b", 0]`` gives ``/a~1b/0``, nothing gives ``""``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """Read a JSON pointer into its parts, all of them text. Raises ``ValueError`` if it is none."""
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"A JSON pointer begins with “/”, got {_quote(pointer)}.")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def resolve_pointer(value: Any, pointer: str) -> Any:
    """The part of ``value`` that ``pointer`` points at.

    Raises ``LookupError`` where there is nothing, ``ValueError`` if ``pointer`` is no JSON pointer.
    """
    for part in parse_pointer(pointer):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _is_index(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            raise LookupError(f"There is nothing at {_quote(pointer)}.")
    return value


def _is_index(part: str) -> bool:
    return part == "0" or (part.isascii() and part.isdigit() and part[0] != "0" and len(part) < 10)
