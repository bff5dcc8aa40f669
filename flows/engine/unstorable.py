"""Where in a JSON value something stands that no database can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from flows.engine.errors import Problem
from flows.engine.json_value import format_pointer

MOST_PLACES = 100
"""Places that are told: as many as an answer lists."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def find_unstorable(value: Any, *place: str | int) -> list[Problem]:
    """A problem for each text and name in a JSON value that can't be stored, with the JSON pointer to it.

    ``place`` is where the value stands in a document.
    """
    return list(islice(_walk(value, place), MOST_PLACES))


def _walk(value: Any, place: tuple[str | int, ...]) -> Iterator[Problem]:
    # No recursion: how deep a body nests is checked elsewhere, and told there.
    left: list[tuple[Any, tuple[str | int, ...]]] = [(value, place)]
    while left:
        item, path = left.pop()
        if isinstance(item, dict):
            for name in item:
                if found := _UNSTORABLE.search(name):
                    yield Problem(format_pointer((*path, name)), f"The name of this field holds {_name(found[0])}.")
            left += [(inner, (*path, name)) for name, inner in reversed(item.items())]
        elif isinstance(item, list):
            left += [(inner, (*path, index)) for index, inner in reversed(list(enumerate(item)))]
        elif isinstance(item, str) and (found := _UNSTORABLE.search(item)):
            yield Problem(format_pointer(path), f"This holds {_name(found[0])}.")


def _name(character: str) -> str:
    if character == "\x00":
        return "NUL, which can’t be stored"
    return f"half of a character (U+{ord(character):X}), which can’t be stored"
