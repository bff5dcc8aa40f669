"""JSON values: reading and writing them, pointers into them, and making them safe to store.

A *JSON value* here is what both databases and every part of the engine can hold: None, bool, int, float, str, list
and dict with str keys, nested at most ``MAX_DEPTH`` levels, its strings free of NUL and of lone surrogates, its
numbers finite. Integers are kept exactly up to the range of a double, about ±1.8e308; beyond 64 bits expressions
see them as doubles.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import unquote

from pydantic_core import PydanticSerializationError, to_jsonable_python

from flows.engine.errors import Problem

MAX_DEPTH = 100
"""How many levels of objects and lists a value may have."""

MAX_VALUES = 1_000_000
"""How many values a value may hold that must be copied, each counted wherever it occurs."""

MAX_PROBLEMS = 100
"""Places of one value that are listed as impossible to store."""

_MAX_NOTES = 10
_MAX_NUMBER = sys.float_info.max
_REPLACEMENT = "\ufffd"
_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
_LINE_BREAKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

Path = tuple[str | int, ...]


# ---------------------------------------------------------------------------------------------------------------
# Reading and writing


class JsonError(ValueError):
    """A text is not JSON that can be used; ``line`` and ``column`` count from 1, and are None where none is known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message if line is None else f"Line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


def parse_object(text: str) -> dict[str, Any]:
    """Read JSON text that must hold an object. Raises ``JsonError`` as ``parse_json`` does, and for no object."""
    if not text.strip():
        raise JsonError("The text is empty; a JSON object such as {} is expected.")
    value = parse_json(text)
    if not isinstance(value, dict):
        raise JsonError(f"A JSON object is expected, got {describe_type(value)}.")
    return value


def parse_json(text: str) -> Any:
    """Read JSON text. NUL and lone surrogates pass: ``clean_value`` is for them.

    Raises ``JsonError`` for text that is malformed, is nested deeper than ``MAX_DEPTH``, names a key twice in one
    object, or holds a number that JSON doesn't know (NaN, Infinity) or a double can't hold (1e999).
    """
    try:
        value = json.loads(text) if text.startswith("\ufeff") else _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg.removesuffix(':')}.", error.lineno, error.colno) from None
    except RecursionError:
        raise JsonError(f"The JSON can't be used: {_TOO_DEEP}.") from None
    except JsonError:
        raise
    except ValueError:
        # Python reads no integer of more than 4,300 digits.
        raise JsonError(f"The JSON holds an integer that is too large; ±{_MAX_NUMBER:.1e} is the limit.") from None
    if not _is_json_value(value):
        _refuse_depth_and_numbers(value, ())
    return value


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Write a JSON value as text: compact, or indented by ``indent`` spaces. Non-ASCII characters stay as they are.

    Raises ``ValueError`` for NaN and infinities, ``TypeError`` for what is not a JSON value.
    """
    if indent is None:
        return _ENCODER.encode(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def dump_line(value: Any) -> str:
    """Write a JSON value as text without line breaks of any kind: JSON itself escapes only those of ASCII."""
    text = dump_json(value)
    return text if text.isascii() else text.translate(_LINE_BREAKS)


def dump_visible(value: Any) -> str:
    """The JSON text of a value as the model may see it: without internal keys."""
    text = dump_line(value)
    # Most values have none, and to scan the text is cheaper than a copy.
    return dump_line(strip_internal(value)) if '"_' in text else text


def strip_internal(value: Any) -> Any:
    """``value`` without the keys that begin with ``_``, at any depth: they never reach the model."""
    if isinstance(value, dict):
        return {key: strip_internal(item) for key, item in value.items() if not key.startswith("_")}
    if isinstance(value, list):
        return [strip_internal(item) for item in value]
    return value


def _refuse_constant(name: str) -> Any:
    raise JsonError(f"{name} is not a JSON number; use null or a finite number.")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise JsonError(f"The key “{shorten(twice)}” occurs twice in one object. Remove one of them.")
    return result


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_build_object)


def _refuse_depth_and_numbers(value: Any, path: Path) -> None:
    if isinstance(value, dict | list):
        if len(path) >= MAX_DEPTH:
            raise JsonError(f"The JSON can't be used: {_TOO_DEEP}.")
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_depth_and_numbers(item, (*path, key))
    elif isinstance(value, int | float) and not _is_in_range(value):
        place = f" at {format_pointer(path)}" if path else ""
        raise JsonError(f"The number{place} is too large; ±{_MAX_NUMBER:.1e} is the limit.")


# ---------------------------------------------------------------------------------------------------------------
# Values in sentences


_TYPE_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "text",
    dict: "an object",
    list: "a list",
}


def describe_type(value: Any) -> str:
    """What a JSON value is, with its article, for use in sentences: “an object”, “a number”, “null”."""
    names = (_TYPE_NAMES[kind] for kind in type(value).__mro__ if kind in _TYPE_NAMES)
    return next(names, f"a value of type “{type(value).__name__}”")


def shorten(text: str, limit: int = 60) -> str:
    """``text``, cut to ``limit`` characters with an ellipsis where it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


# ---------------------------------------------------------------------------------------------------------------
# What can be stored


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A value that is safe to store, and what could not be stored as it was (at most ``MAX_PROBLEMS``)."""

    value: Any
    problems: tuple[Problem, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence with its place for each of the first ten problems."""
        return tuple(f"{one.path or 'The whole value'}: {one.message}" for one in self.problems[:_MAX_NOTES])


def clean_value(value: Any) -> Cleaned:
    """Turn any value into a JSON value that SQLite and PostgreSQL can store; the same object if it is one already.

    NUL and lone surrogates become U+FFFD, NaN, infinities and integers beyond the range of a double become null; the
    problems say where. Tuples, pydantic models, dataclasses, dates, decimals, enums and the like become their JSON
    form without a problem. Raises ``ValueError``, one sentence, for what has no JSON form, nests deeper than
    ``MAX_DEPTH``, or holds more than ``MAX_VALUES``.
    """
    if _is_json_value(value):
        return Cleaned(value)
    problems: list[Problem] = []
    cleaned = _clean(value, (), problems, iter(range(MAX_VALUES)))
    return Cleaned(cleaned, tuple(problems))


def find_unstorable(value: Any, *place: str | int) -> list[Problem]:
    """List the parts of a JSON value that can't be stored, with JSON pointers; ``place`` is where it is."""
    around = format_pointer(place)
    return [Problem(around + problem.path, problem.message) for problem in clean_value(value).problems]


def _is_json_value(value: Any) -> bool:
    """Whether nothing has to change. Runs on every answer of a model, and nearly always finds nothing."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        texts: list[Any] = []
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                texts.append(item)
            elif kind is dict:
                texts += item
                below += item.values()
            elif kind is list:
                below += item
            elif not (item is None or kind is bool or ((kind is int or kind is float) and _is_in_range(item))):
                return False
        if len(below) > MAX_VALUES or not _are_storable(texts):
            return False
        if not below:
            # What is too deep may be empty.
            return depth < MAX_DEPTH or not any(isinstance(item, dict | list) for item in level)
        level = below
    return False


def _is_in_range(number: float) -> bool:
    return -_MAX_NUMBER <= number <= _MAX_NUMBER


def _are_storable(texts: list[Any]) -> bool:
    try:
        text = "".join(texts)
        return "\0" not in text and (text.isascii() or bool(text.encode()))
    except (TypeError, UnicodeEncodeError):
        # A TypeError: the key of an object is not a text.
        return False


def _clean(value: Any, path: Path, problems: list[Problem], left: Iterator[int]) -> Any:
    if next(left, None) is None:  # what refers to its parts many times over may have no end
        raise ValueError(f"The value can't be stored: it holds more than {MAX_VALUES:,} values.")
    if isinstance(value, Enum):
        value = value.value
    match value:
        case None | bool():
            return value
        case str():
            return _clean_text(value, path, problems)
        case int() | float() if _is_in_range(value):
            return int(value) if isinstance(value, int) else float(value)
        case int() | float():
            kind = "NaN" if value != value else "A number beyond the range of a double"
            _add_problem(problems, path, f"{kind} can't be stored.")
            return None
    if len(path) >= MAX_DEPTH:
        raise ValueError(f"The value can't be stored: {_TOO_DEEP}.")
    if isinstance(value, list | tuple):
        return [_clean(item, (*path, index), problems, left) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        # The JSON form may be a container again, with text that needs cleaning.
        return _clean(_convert(value, path), path, problems, left)
    result: dict[str, Any] = {}
    for key, item in value.items():
        name = _clean_text(_name_key(key, path), path, problems)
        if name in result:
            message = f"The key “{shorten(name)}” occurs twice here once it is stored; the last value is kept."
            _add_problem(problems, path, message)
        result[name] = _clean(item, (*path, name), problems, left)
    return result


def _clean_text(text: str, path: Path, problems: list[Problem]) -> str:
    text = str.__str__(text)
    if _are_storable([text]):
        return text
    _add_problem(problems, path, "Characters that can't be stored (NUL, lone surrogates) occur here.")
    # A pair of surrogates that stand apart is one character: decoding joins it, and replaces what is left over.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\0", _REPLACEMENT)


def _add_problem(problems: list[Problem], path: Path, message: str) -> None:
    if len(problems) < MAX_PROBLEMS:
        problems.append(Problem(format_pointer(path), message))


def _name_key(key: Any, path: Path) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    raise ValueError(f"{format_pointer(path) or 'The whole value'}: a key must be text, got {describe_type(key)}.")


def _convert(value: Any, path: Path) -> Any:
    try:
        converted = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError, AttributeError):
        converted = value
    if converted is value:
        raise ValueError(f"{format_pointer(path) or 'The whole value'}: {describe_type(value)} has no JSON form.")
    return converted


# ---------------------------------------------------------------------------------------------------------------
# JSON pointers (RFC 6901), and places in a text


def format_pointer(parts: Iterable[str | int]) -> str:
    """Write keys and indices as a JSON pointer: ``["a/b", 0]`` gives ``/a~1b/0``, nothing gives ``""``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """Read a JSON pointer into its parts, all of them text. Raises ``ValueError`` if it is none."""
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"A JSON pointer begins with “/”, got “{shorten(pointer)}”.")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def resolve_pointer(value: Any, pointer: str) -> Any:
    """The part of ``value`` that ``pointer`` points at.

    Raises ``LookupError`` where there is nothing, ``ValueError`` if ``pointer`` is not a JSON pointer.
    """
    for part in parse_pointer(pointer):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]{0,8}", part) and int(part) < len(value):
            value = value[int(part)]
        else:
            raise LookupError(f"There is nothing at “{shorten(pointer)}”.")
    return value


def follow_ref(root: dict[str, Any], ref: str) -> Any:
    """What a reference within a schema (``#``, ``#/$defs/name``) stands for; None if it is nothing of the kind."""
    try:
        return resolve_pointer(root, unquote(ref[1:])) if ref.startswith("#") else None
    except (LookupError, ValueError):
        return None


def find_line(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of the character at ``offset``."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
