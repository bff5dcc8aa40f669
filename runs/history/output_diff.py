"""What changed between two outputs, by structure: by key and by item, not by line of text.

Objects are compared key by key, whatever their order. Items of lists are paired: equal ones first, then those that are
most alike. The result is laid out on the lines of the two listings, so that it reads like the output itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from flows.engine.differences import Stretch, compare_sequences
from runs.history.json_lines import Line, Mark, Marks, isolate, list_json
from runs.history.pairing import Fingerprints, pair_items

MAX_LINES = 5_000
MAX_CHARACTERS = 300_000
"""Longer outputs are not compared."""
MAX_SHOWN_LINES = 1_000
"""Lines in view; the changes beyond them are counted."""
MAX_FOLDED_LINES = 300
"""Unchanged lines in one fold; a longer one only says how many they are."""

CONTEXT = 2
"""Unchanged lines that stay in view around a change."""

_MIN_FOLD = 3
"""A fold takes as much room as a line."""

_MAX_WORDS = 2_000
"""Words of two values, old and new, that are compared with each other."""
_MAX_ALL_WORDS = 30_000
"""The same of all values of a difference."""
_MIN_IN_COMMON = 0.3
"""Values that have less in common are shown one after the other: nearly all of them would be marked."""
_MAX_INLINE = 60
"""Characters of a value that stands beside the other one; a longer one gets a line of its own."""

# Escapes first: JSON text has them. Words keep their combining marks; characters of scripts without spaces are words.
_WORDS = re.compile(
    r"""\\(?:u[0-9a-f]{4}|.)|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"""
    r"""|[^\s\\!-/:-@\[-`{-~«»“”‘’„…–—،؛؟·\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\S"""
)


class Change(StrEnum):
    """What became of a line."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a value: of both outputs, only of the new one (added), or only of the old one (removed)."""

    text: str
    change: Change = Change.SAME
    direction: str = ""
    """Of a whole value, and of words that changed: ``ltr`` or ``rtl`` to isolate them; empty for ASCII."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line. ``number`` is that of the new output; None for what only the old one has.

    A changed value has its words marked within it, in its ``direction``; or else it stands after the old one, on a line
    of its own where ``is_stacked``.
    """

    change: Change
    number: int | None
    margin: str
    key: str
    key_direction: str
    parts: tuple[Part, ...]
    tail: str = ""
    direction: str = ""
    is_whole: bool = False
    is_stacked: bool = False
    marks: Marks | None = None

    @property
    def sign(self) -> str:
        return _SIGNS[self.change]


_SIGNS = {Change.SAME: "", Change.ADDED: "+", Change.REMOVED: "\N{MINUS SIGN}", Change.CHANGED: "~"}


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """Lines that stand together. A fold of ``count`` unchanged lines may be too long to have them."""

    lines: tuple[DiffLine, ...]
    count: int
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class OutputDiff:
    """The new output with what changed, and how many values were added, removed and changed."""

    blocks: tuple[DiffBlock, ...]
    added: int
    removed: int
    changed: int
    left_out: int = 0
    """Lines at the end that are not shown."""
    anchors: Mapping[str, str] | None = None
    """The id to link to for each issue of the new output that points at one of its lines."""

    @property
    def is_same(self) -> bool:
        """Whether nothing changed but, perhaps, the order of keys."""
        return not (self.added or self.removed or self.changed)

    @property
    def is_tall(self) -> bool:
        """Whether it takes more room than a screen has, and scrolls in a box of its own."""
        lines = [line for block in self.blocks if not block.is_folded for line in block.lines]
        return len(lines) > 80 or sum(len(part.text) for line in lines for part in line.parts) > 8_000

    @property
    def counts(self) -> tuple[tuple[str, str, int], ...]:
        """Sign, word and number of what changed, without those of which there is nothing."""
        counts = ((Change.CHANGED, self.changed), (Change.ADDED, self.added), (Change.REMOVED, self.removed))
        return tuple((_SIGNS[change], change.value, count) for change, count in counts if count)


def compare_outputs(old: Any, new: Any, marks: Sequence[Mark] = ()) -> OutputDiff | None:
    """Compare two JSON values. Lines of the new one that ``marks`` point at carry them, and are never folded.

    None for outputs that are too long to be compared.
    """
    listings = []
    for value in (old, new):
        listing = list_json(value, max_lines=MAX_LINES, max_characters=MAX_CHARACTERS)
        if listing.is_cut:
            return None
        listings.append(listing)
    new_listing, anchors = listings[1].mark(marks)
    comparison = _Comparison(listings[0].lines, new_listing.lines)
    comparison.compare(old, new, 0, 0)
    blocks, left_out = _cut(list(_fold(comparison.lines)))
    return OutputDiff(blocks, comparison.added, comparison.removed, comparison.changed, left_out, anchors)


class _Comparison:
    """Walks both values at once and collects lines. Places are positions in the two listings."""

    def __init__(self, old: Sequence[Line], new: Sequence[Line]) -> None:
        self._old = old
        self._new = new
        self._prints = Fingerprints()
        self._words_left = _MAX_ALL_WORDS
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
        old, line = self._old[at_old], self._new[at_new]
        shown = _show(line, Change.CHANGED, line.number)
        if (parts := self._mark_words(old.value, line.value)) is not None:
            self.lines.append(replace(shown, parts=parts))
            return
        before = Part(old.value, Change.REMOVED, old.direction)
        after = Part(line.value, Change.ADDED, line.direction)
        is_stacked = max(len(old.value), len(line.value)) > _MAX_INLINE
        self.lines.append(replace(shown, parts=(before, after), direction="", is_whole=True, is_stacked=is_stacked))

    def _mark_words(self, old: str, new: str) -> tuple[Part, ...] | None:
        """The new text with the words marked that differ; None for what is no text, or has too little in common."""
        if not (old.startswith('"') and new.startswith('"')):
            return None
        before, after = (list(_WORDS.finditer(text)) for text in (old, new))
        count = len(before) + len(after)
        if count > min(_MAX_WORDS, self._words_left):
            return None
        self._words_left -= count
        stretches = compare_sequences([word[0] for word in before], [word[0] for word in after])
        same = sum(len(word[0]) for one in stretches if one.is_same for word in before[one.old]) - 2
        if same < _MIN_IN_COMMON * max(len(old), len(new)) or len(stretches) < 2:
            return None
        return tuple(_join_words(old, new, before, after, stretches))


def _join_words(
    old: str, new: str, before: Sequence[re.Match[str]], after: Sequence[re.Match[str]], stretches: Sequence[Stretch]
) -> Iterator[Part]:
    """The parts of a text in order: what was removed, then what came in its place, then what stayed."""
    for one in stretches:
        words = after[one.new]
        following = new[words[-1].end() : _find_start(new, after, one.new.stop)] if words else ""
        if one.is_same:
            yield Part(new[words[0].start() : words[-1].end()] + following)
            continue
        if gone := before[one.old]:
            # Words that nothing replaced go with the space behind them.
            end = gone[-1].end() if words else _find_start(old, before, one.old.stop)
            text = old[gone[0].start() : end]
            yield Part(text, Change.REMOVED, isolate(text))
        if words:
            text = new[words[0].start() : words[-1].end()]
            yield Part(text, Change.ADDED, isolate(text))
            if following:
                yield Part(following)


def _find_start(text: str, words: Sequence[re.Match[str]], index: int) -> int:
    return words[index].start() if index < len(words) else len(text)


def _show(line: Line, change: Change, number: int | None) -> DiffLine:
    return DiffLine(
        change,
        number,
        line.margin,
        line.key,
        line.key_direction,
        (Part(line.value),),
        line.tail,
        line.direction,
        marks=line.marks if number is not None else None,
    )


def _fold(lines: Sequence[DiffLine]) -> Iterator[DiffBlock]:
    """Blocks in which what is unchanged, without a mark, and not near a change, is folded."""
    shown = bytearray(len(lines))
    for position, line in enumerate(lines):
        reach = CONTEXT if line.change is not Change.SAME else 0 if line.marks else -1
        for near in range(max(position - reach, 0), min(position + reach + 1, len(lines))):
            shown[near] = 1
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and shown[end] == shown[start]:
            end += 1
        is_folded = not shown[start] and end - start >= _MIN_FOLD
        has_lines = not is_folded or end - start <= MAX_FOLDED_LINES
        yield DiffBlock(tuple(lines[start:end]) if has_lines else (), end - start, is_folded)
        start = end


def _cut(blocks: Sequence[DiffBlock]) -> tuple[tuple[DiffBlock, ...], int]:
    """The first of these blocks, as many as are shown, and how many lines follow."""
    room = MAX_SHOWN_LINES
    kept: list[DiffBlock] = []
    for block in blocks:
        if room <= 0:
            break
        if block.is_folded:
            kept.append(block)
            room -= 1 + len(block.lines) // 4
            continue
        lines = block.lines[:room]
        kept.append(replace(block, lines=lines, count=len(lines)))
        room -= len(lines)
    return tuple(kept), sum(block.count for block in blocks) - sum(block.count for block in kept)
