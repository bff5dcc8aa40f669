"""Writing a flow file: readable for people, and read alike by every YAML parser.

Written here and not by PyYAML's emitter, which quotes text in several lines (one escaped line, however long) as soon as
it holds a tab or a space at the end of a line, and can't set steps apart by empty lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flows.engine.spec import FlowSpec
from flows.flow_file.scalars import format_number, is_text_everywhere

HEAD = """\
# A flow of ToolFlow. Its docs/flow-files.md describes the format.
# yaml-language-server: $schema=flow.schema.json
"""
"""How every written file begins: editors look for the JSON Schema beside the file."""

_WIDTH = 100
"""A list or schema of plain values goes on one line if it ends before this column."""

_STEP = 2
_LONGEST_KEY = 1_000
"""Longer keys stand on a line of their own: YAML looks no further than 1,024 characters for a key's colon."""

# What may stand in a file as it is. Without the line breaks that only YAML 1.1 knows, and the byte order mark.
_PRINTABLE = r"\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"
_ONE_LINE = re.compile(f"[{_PRINTABLE}]*")
_LINES = re.compile(f"[{_PRINTABLE}\n]*")
_UNPRINTABLE = re.compile(f"[^{_PRINTABLE}]")
_PLAIN = re.compile(r"[\w/($<^](?:.*[^\s:])?")
_PLAIN_TRAPS = re.compile(r":\s|\s#|\t")
_INLINE_TRAPS = re.compile(r"[][{},:?#]")


def write_flow(spec: FlowSpec) -> str:
    """The file of a flow. Reading it gives an equal spec with the same digest.

    Fields come in the order of the reference, those that hold their default are left out. The frozen schemas of
    registered output types are part of the file, so that the flow is the same wherever it is read.
    """
    return HEAD + "\n" + "".join(f"{line}\n" for line in _write_document(spec.to_document()))


def _write_document(document: Mapping[str, Any]) -> Iterator[str]:
    """All lines, with an empty one before each large part: input schema, steps, and each step but the first."""
    for key, value in document.items():
        if key in {"input_schema", "steps"}:
            yield ""
        if key != "steps":
            yield from _write_mapping({key: value}, 0, compact=False)
            continue
        yield "steps:"
        for position, step in enumerate(value):
            if position:
                yield ""
            yield from _write_list([step], _STEP, compact=False)


def _write_mapping(mapping: Mapping[str, Any], indent: int, *, compact: bool) -> Iterator[str]:
    pad = " " * indent
    for key, value in mapping.items():
        name = _quote_inline(key)
        if len(name) > _LONGEST_KEY:
            yield f"{pad}? {name}"
            yield from _write_value(f"{pad}:", value, indent, compact=compact)
        elif not compact and key in {"input_schema", "output_schema"} and value:
            yield f"{pad}{name}:"
            yield from _write_mapping(value, indent + _STEP, compact=True)
        else:
            yield from _write_value(f"{pad}{name}:", value, indent, compact=compact)


def _write_list(items: list[Any], indent: int, *, compact: bool) -> Iterator[str]:
    pad = " " * indent
    for item in items:
        if isinstance(item, dict) and item and not (compact and _write_inline(item, f"{pad}- ")):
            # The first entry stands beside the dash.
            first, *others = _write_mapping(item, indent + _STEP, compact=compact)
            yield f"{pad}- {first.lstrip(' ')}"
            yield from others
        else:
            yield from _write_value(f"{pad}-", item, indent, compact=compact)


def _write_value(prefix: str, value: Any, indent: int, *, compact: bool) -> Iterator[str]:
    """The lines of one value behind ``prefix``, which stands at column ``indent``."""
    if isinstance(value, str):
        yield from _write_text(prefix, value, indent + _STEP)
        return
    inline = None
    if compact or not isinstance(value, dict) or not value:
        inline = _write_inline(value, prefix)
    if inline is not None:
        yield f"{prefix} {inline}"
        return
    yield prefix
    if isinstance(value, dict):
        yield from _write_mapping(value, indent + _STEP, compact=compact)
    else:
        yield from _write_list(value, indent + _STEP, compact=compact)


def _write_inline(value: Any, prefix: str) -> str | None:
    """A value on one line; None for a list or an object that is too wide, or that holds objects."""
    match value:
        case dict():
            parts = [f"{_quote_inline(key)}: {_write_short(item)}" for key, item in value.items() if _is_short(item)]
            text = f"{{{', '.join(parts)}}}"
        case list():
            parts = [_write_scalar(item) for item in value if _is_short(item, within_list=True)]
            text = f"[{', '.join(parts)}]"
        case _:
            return _write_scalar(value)
    fits = len(parts) == len(value) and len(prefix) + 1 + len(text) <= _WIDTH
    # What is empty has no other form.
    return text if fits or not value else None


def _is_short(value: Any, *, within_list: bool = False) -> bool:
    match value:
        case dict():
            return False
        case list():
            return not within_list and len(value) <= _WIDTH and all(_is_short(item, within_list=True) for item in value)
        case str():
            return len(value) <= _WIDTH
    return True


def _write_short(value: Any) -> str:
    return f"[{', '.join(map(_write_scalar, value))}]" if isinstance(value, list) else _write_scalar(value)


def _write_scalar(value: Any) -> str:
    match value:
        case str():
            return _quote_inline(value)
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
    return format_number(value)


# ---------------------------------------------------------------------------------------------------------------
# Text


def _write_text(prefix: str, text: str, indent: int) -> Iterator[str]:
    """Text behind a key or a dash: on the same line, or as a block of lines that are indented by ``indent``."""
    if "\n" in text and _fits_block(text):
        yield from _write_block(prefix, text, indent)
    elif _is_plain(text):
        yield f"{prefix} {text}"
    elif (quoted := _quote(text)) is not None:
        yield f"{prefix} {quoted}"
    elif _fits_block(text):
        yield from _write_block(prefix, text, indent)
    else:
        yield f"{prefix} {_escape(text)}"


def _write_block(prefix: str, text: str, indent: int) -> Iterator[str]:
    # A reader takes the indentation from the first line with content, unless it is told.
    told = str(_STEP) if text[0] in " \t\n" else ""
    kept = "" if text.endswith("\n") else "-"
    yield f"{prefix} |{told}{kept}"
    for line in text.removesuffix("\n").split("\n"):
        yield " " * indent + line if line else ""


def _fits_block(text: str) -> bool:
    last = text.removesuffix("\n").rpartition("\n")[2]
    return _LINES.fullmatch(text) is not None and bool(last.strip(" \t"))


def _is_plain(text: str) -> bool:
    return (
        _ONE_LINE.fullmatch(text) is not None
        and _PLAIN.fullmatch(text) is not None
        and _PLAIN_TRAPS.search(text) is None
        and is_text_everywhere(text)
    )


def _quote(text: str) -> str | None:
    """Text in quotes if it needs no escapes there."""
    if not _ONE_LINE.fullmatch(text):
        return None
    if "'" not in text:
        return f"'{text}'"
    return f'"{text}"' if '"' not in text and "\\" not in text else None


def _quote_inline(text: str) -> str:
    """Text for a key, or within brackets."""
    if _is_plain(text) and not _INLINE_TRAPS.search(text):
        return text
    return _quote(text) or _escape(text)


def _escape(text: str) -> str:
    """Text in double quotes, as JSON has it; beyond that nothing stays that is invisible to some reader."""
    return _UNPRINTABLE.sub(_escape_character, json.dumps(text, ensure_ascii=False))


def _escape_character(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
