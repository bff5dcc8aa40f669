"""Where an item of a list stood in an earlier output: what a path in a later one led to there."""

from __future__ import annotations

from typing import Any

from flows.engine.json_values import format_pointer, parse_pointer
from runs.pages.item_pairing import Fingerprints, find_same_items


class ItemMoves:
    """Two outputs of a step, the earlier one first. What they hold must not change while this is in use."""

    def __init__(self, old: Any, new: Any) -> None:
        self._old = old
        self._new = new
        self._prints = Fingerprints()
        self._origins: dict[tuple[int, int], dict[int, int]] = {}

    def trace_back(self, pointer: str) -> str | None:
        """The pointer that led to the same place of the same item in the earlier output.

        None where an item on the way is not known to have been there, and for text that is no pointer.
        """
        try:
            parts = parse_pointer(pointer)
        except ValueError:
            return None
        old, new = self._old, self._new
        origin: list[str] = []
        for part in parts:
            if isinstance(new, list):
                index = int(part) if part.isascii() and part.isdigit() and len(part) < 10 else -1
                before = self._find_origins(old, new).get(index) if isinstance(old, list) else None
                if before is None:
                    return None
                origin.append(str(before))
                old, new = old[before], new[index]
            else:
                # What is missing has a place all the same.
                origin.append(part)
                old, new = (value.get(part) if isinstance(value, dict) else None for value in (old, new))
        return format_pointer(origin)

    def _find_origins(self, old: list[Any], new: list[Any]) -> dict[int, int]:
        key = id(old), id(new)
        if key not in self._origins:
            self._origins[key] = find_same_items(old, new, self._prints)
        return self._origins[key]
