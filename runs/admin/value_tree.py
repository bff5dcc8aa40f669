"""JSON values as trees that a page can unfold, each part with the path that an expression reads it by."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from flows.engine.json_values import dump_json

DEEPEST = 8
MOST_ELEMENTS = 5
"""Of a list that are shown: the others are much like them."""
MOST_KEYS = 60
LONGEST_PREVIEW = 100
LONGEST_KEY = 100

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset({"false", "in", "null", "true"})
_NODE_BYTES = 60
"""What a part takes beside its texts."""


def build_tree(value: Any, *, most_bytes: int, segment: str = "") -> dict[str, Any]:
    """``value`` as nested parts: what leads to each (``.total``, ``[0]``), what it holds in a few words, and its parts.

    A level is told whole before the next one begins, until ``most_bytes`` are used up; what is left out is counted in
    ``more``.
    """
    root = _make_node(segment, value)
    left = most_bytes
    waiting = deque([(root, value, 1)])
    while waiting:
        node, value, depth = waiting.popleft()
        if depth > DEEPEST or not isinstance(value, dict | list):
            continue
        shown = 0
        for part, child in _list_parts(value):
            made = _make_node(part, child)
            left -= _NODE_BYTES + len(json.dumps(part)) + len(json.dumps(made["preview"]))
            if left < 0:
                break
            node.setdefault("parts", []).append(made)
            waiting.append((made, child, depth + 1))
            shown += 1
        if shown < len(value):
            node["more"] = len(value) - shown
    return root


def _make_node(segment: str, value: Any) -> dict[str, Any]:
    return {"segment": segment, "preview": _preview(value)}


def _list_parts(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for index, item in enumerate(value[:MOST_ELEMENTS]):
            yield f"[{index}]", item
        return
    for key in list(value)[:MOST_KEYS]:
        if len(key) > LONGEST_KEY:
            continue
        is_name = _NAME.fullmatch(key) and key not in _RESERVED
        yield f".{key}" if is_name else f"[{json.dumps(key, ensure_ascii=False)}]", value[key]


def _preview(value: Any) -> str:
    match value:
        case dict():
            text = f"{{{', '.join(list(value)[:MOST_KEYS])}}}"
        case list():
            text = "[]" if not value else f"{len(value):,} element{'' if len(value) == 1 else 's'}"
        case str():
            # A text of megabytes is not written out for its beginning.
            text = dump_json(value[:LONGEST_PREVIEW])
            return text if len(value) <= LONGEST_PREVIEW else f"{text[:-1]}…"
        case _:
            text = dump_json(value)
    return text if len(text) <= LONGEST_PREVIEW else f"{text[: LONGEST_PREVIEW - 1]}…"
