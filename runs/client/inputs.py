"""What commands read: an object from an option, and many from a file with one in each line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs.client.errors import ClientError

STANDARD_INPUT = "-"


def read_input(source: str, called: str = "The input") -> dict[str, Any]:
    """The object that an option names: “@file.json”, “-”, or itself.

    Raises ``ClientError`` that says what is wrong where; what is no file is ``called`` so.
    """
    if source == STANDARD_INPUT or source.startswith("@"):
        text, name = _read_text(source.removeprefix("@"))
    else:
        text, name = source, called
    return _parse(text, name)


def read_lines(source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file in JSON Lines, or of standard input, each with the number of its line; empty lines are
    passed over. Raises ``ClientError`` that names the line that is none.
    """
    text, name = _read_text(source.removeprefix("@"))
    # Not by splitlines: other signs that end a line may stand in a text.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _parse(line, f"{name}, line {number}")


def dump_json(value: Any) -> str:
    """JSON in one line, as it is sent and written. Raises ``ValueError`` for what JSON or UTF-8 doesn't know."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _parse(text: str, name: str) -> dict[str, Any]:
    """The object in a text of this name. Raises ``ClientError`` for none, and for one that can’t be sent."""
    try:
        value = json.loads(text, object_pairs_hook=_build_object)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"{name}: {error}.") from None
    if not isinstance(value, dict):
        raise ClientError(f"{name}: A JSON object is expected.")
    try:
        dump_json(value).encode()
    except ValueError:
        raise ClientError(f"{name} has characters or numbers that can’t be stored.") from None
    return value


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        raise ValueError("A key stands twice in one object")
    return built


def _read_text(source: str) -> tuple[str, str]:
    """What a file says, and what it is called."""
    try:
        if source == STANDARD_INPUT:
            return sys.stdin.read(), "Standard input"
        return Path(source).read_text(encoding="utf-8-sig"), source
    except OSError as error:
        raise ClientError(f"{source} can’t be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ClientError(f"{source} is not UTF-8: byte {error.start} can’t be read.") from None
    except ValueError:
        raise ClientError("The name of a file holds what no name has.") from None
