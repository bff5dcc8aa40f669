"""What changed between two outputs, by structure: by key and by item, not by line of text.

Objects are compared key by key, whatever their order. Items of lists are paired: equal ones first, then those that are
most alike. The result is laid out on the lines of the two listings, so that it reads like the output itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flows.engine.differences import LineKind, compare_texts
from runs.history.json_lines import Line, Listing
from runs.history.pairing import Fingerprints, pair_items

MOST_LINES = 5_000
MOST_CHARACTERS = 300_000
"""Longer outputs are not compared."""

CONTEXT = 2
"""Unchanged lines that stay in view around a change."""

_LEAST_FOLD = 3
"""A fold takes as much room as a line."""


class Change(StrEnum):
    """What became of a line."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a line: of both outputs, only of the new one (added), or only of the old one (removed)."""

    text: str
    change: Change = Change.SAME


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line. ``number`` is that of the new output; None for what only the old one has."""

    change: Change
    number: int | None
    indent: int
    key: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """Lines that stand together; folded ones are unchanged and need not be in view."""

    lines: tuple[DiffLine, ...]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class OutputDiff:
    """The new output with what changed, and how many values were added, removed and changed."""

    blocks: tuple[DiffBlock, ...]
    added: int
    removed: int
    changed: int

    @property
    def is_same(self) -> bool:
        """Nothing changed but, perhaps, the order of keys."""
        return not (self.added or self.removed or self.changed)


def compare_outputs(
    old: Any, new: Any, old_listing: Listing, new_listing: Listing, *, kept: Collection[int] = ()
) -> OutputDiff | None:
    """Compare two JSON values that were laid out as these listings. Lines ``kept`` of the new one are never folded.

    None for outputs that are too long to be compared, or laid out in part only.
    """
    for listing in (old_listing, new_listing):
        if listing.is_cut or len(listing.lines) > MOST_LINES:
            return None
        if sum(len(line.key) + len(line.value) for line in listing.lines) > MOST_CHARACTERS:
            return None
    comparison = _Comparison(old_listing.lines, new_listing.lines)
    comparison.compare(old, new, 0, 0)
    blocks = tuple(_fold(comparison.lines, frozenset(kept)))
    return OutputDiff(blocks, comparison.added, comparison.removed, comparison.changed)


class _Comparison:
    """Walks both values at once and collects lines. Places are positions in the two listings."""

    def __init__(self, old: Sequence[Line], new: Sequence[Line]) -> None:
        self._old = old
        self._new = new
        self._prints = Fingerprints()
        self.lines: list[DiffLine] = []
        self.added = self.removed = self.changed = 0

    def compare(self, old: Any, new: Any, at_old: int, at_new: int) -> None:
        """Add the lines of two values that stand in the same place."""
        if self._prints.of(old) == self._prints.of(new):
            self._keep(at_new, self._size(new))
        elif isinstance(old, dict) and isinstance(new, dict) and old and new:
            self._frame(new, at_new, lambda: self._compare_objects(old, new, at_old + 1, at_new + 1))
        elif isinstance(old, list) and isinstance(new, list) and old and new:
            self._frame(new, at_new, lambda: self._compare_lists(old, new, at_old + 1, at_new + 1))
        elif self._size(old) == self._size(new) == 1:
            self._change(at_old, at_new)
        else:
            self.changed += 1
            self._remove(old, at_old)
            self._add(new, at_new)

    def _frame(self, value: Any, at: int, fill: Callable[[], None]) -> None:
        """The lines of both brackets, and between them what ``fill`` adds."""
        self._keep(at, 1)
        fill()
        self._keep(at + self._size(value) - 1, 1)

    def _compare_objects(self, old: dict[str, Any], new: dict[str, Any], at_old: int, at_new: int) -> None:
        places = dict(zip(old, self._places(old.values(), at_old), strict=True))
        # What is gone is shown behind the key that it stood behind.
        gone: dict[str | None, list[str]] = {}
        last: str | None = None
        for key in old:
            if key in new:
                last = key
            else:
                gone.setdefault(last, []).append(key)
        self._remove_keys(old, gone.get(None, ()), places)
        for (key, item), at in zip(new.items(), self._places(new.values(), at_new), strict=True):
            if key in old:
                self.compare(old[key], item, places[key], at)
                self._remove_keys(old, gone.get(key, ()), places)
            else:
                self.added += 1
                self._add(item, at)

    def _remove_keys(self, old: dict[str, Any], keys: Sequence[str], places: dict[str, int]) -> None:
        for key in keys:
            self.removed += 1
            self._remove(old[key], places[key])

    def _compare_lists(self, old: list[Any], new: list[Any], at_old: int, at_new: int) -> None:
        places_old, places_new = [*self._places(old, at_old)], [*self._places(new, at_new)]
        for i, j in pair_items(old, new, self._prints):
            if i is not None and j is not None:
                self.compare(old[i], new[j], places_old[i], places_new[j])
            elif i is not None:
                self.removed += 1
                self._remove(old[i], places_old[i])
            elif j is not None:
                self.added += 1
                self._add(new[j], places_new[j])

    def _places(self, items: Collection[Any], at: int) -> Iterator[int]:
        for item in items:
            yield at
            at += self._size(item)

    def _size(self, value: Any) -> int:
        """How many lines a value takes."""
        return self._prints.lines_of(value)

    def _keep(self, at: int, size: int) -> None:
        self.lines += (_show(line, Change.SAME, line.number) for line in self._new[at : at + size])

    def _add(self, value: Any, at: int) -> None:
        lines = self._new[at : at + self._size(value)]
        self.lines += (_show(line, Change.ADDED, line.number) for line in lines)

    def _remove(self, value: Any, at: int) -> None:
        lines = self._old[at : at + self._size(value)]
        self.lines += (_show(line, Change.REMOVED, None) for line in lines)

    def _change(self, at_old: int, at_new: int) -> None:
        self.changed += 1
        line = self._new[at_new]
        comma = "," if line.value.endswith(",") else ""
        parts = _mark(self._old[at_old].value.removesuffix(","), line.value.removesuffix(","))
        if comma:
            parts += (Part(comma),)
        self.lines.append(DiffLine(Change.CHANGED, line.number, line.indent, line.key, parts))


def _show(line: Line, change: Change, number: int | None) -> DiffLine:
    return DiffLine(change, number, line.indent, line.key, (Part(line.value),))


def _mark(old: str, new: str) -> tuple[Part, ...]:
    """Two scalars in one line: with their words marked that differ, or one after the other."""
    whole = (Part(old, Change.REMOVED), Part(" → "), Part(new, Change.ADDED))
    if not (old.startswith('"') and new.startswith('"')):
        return whole
    sides: dict[LineKind, list[tuple[str, bool]]] = {LineKind.REMOVED: [], LineKind.ADDED: []}
    for block in compare_texts(old[1:-1], new[1:-1]).blocks:
        for line in block.lines:
            if line.kind in sides:
                sides[line.kind] += ((piece.text, piece.is_marked) for piece in line.pieces)
    before, after = sides[LineKind.REMOVED], sides[LineKind.ADDED]
    if not any(marked for _, marked in (*before, *after)):
        return whole  # the two have too little in common
    return (Part('"'), *_merge(before, after), Part('"'))


def _merge(old: list[tuple[str, bool]], new: list[tuple[str, bool]]) -> Iterator[Part]:
    """Both sides have the same pieces in common, in the same order."""
    while old or new:
        if old and old[0][1]:
            yield Part(old.pop(0)[0], Change.REMOVED)
        elif new and new[0][1]:
            yield Part(new.pop(0)[0], Change.ADDED)
        else:
            yield Part((new or old)[0][0])
            del old[:1], new[:1]


def _fold(lines: Sequence[DiffLine], kept: Collection[int]) -> Iterator[DiffBlock]:
    """Blocks in which what is unchanged, and not near a change, is folded."""
    shown = bytearray(len(lines))
    for position, line in enumerate(lines):
        reach = CONTEXT if line.change is not Change.SAME else 0 if line.number in kept else -1
        for near in range(max(position - reach, 0), min(position + reach + 1, len(lines))):
            shown[near] = 1
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and shown[end] == shown[start]:
            end += 1
        yield DiffBlock(tuple(lines[start:end]), is_folded=not shown[start] and end - start >= _LEAST_FOLD)
        start = end
