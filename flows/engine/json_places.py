"""Where the parts of a JSON text stand in it: from JSON pointers to lines and columns."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from flows.engine.json_value import format_pointer

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def find_places(text: str, pointers: Collection[str]) -> dict[str, tuple[int, int]]:
    """Line and column, both from 1, of the parts that JSON ``pointers`` point at: of the key where a part has one.

    ``text`` is JSON that can be read. A pointer that leads nowhere has no entry.
    """
    wanted = set(pointers)
    places: dict[str, tuple[int, int]] = {}
    for pointer, offset in _walk(text):
        if pointer in wanted and pointer not in places:
            places[pointer] = find_line(text, offset)
            if len(places) == len(wanted):
                break
    return places


def find_line(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of the character at ``offset``."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _walk(text: str) -> Iterator[tuple[str, int]]:
    """The pointer and the offset of every part of the text, from its beginning to its end."""
    yield "", len(text) - len(text.lstrip())
    path: list[str | int] = []
    kinds: list[str] = []
    is_key = False
    for match in _TOKEN.finditer(text):
        word = match.group()
        if word in "}]":
            kinds.pop()
            path.pop()
        elif word == ",":
            is_key = kinds[-1] == "{"
            if not is_key and isinstance(path[-1], int):
                path[-1] += 1
        elif word != ":":
            if is_key:
                path[-1] = json.loads(word)
                is_key = False
                yield format_pointer(path), match.start()
                continue
            if kinds and kinds[-1] == "[":
                yield format_pointer(path), match.start()
            if word in "{[":
                is_key = word == "{"
                kinds.append(word)
                # The place of the first key, or that of the first element.
                path.append("" if is_key else 0)
