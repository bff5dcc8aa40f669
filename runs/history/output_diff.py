"""What changed between two outputs, by structure: by key and by item, not by line of text.

Objects are compared key by key, whatever their order. Items of lists are paired: equal ones first, then those that are
most alike. The result is laid out on the lines of the two listings, so that it reads like the output itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from flows.engine.differences import Stretch, compare_sequences
from flows.engine.json_values import format_pointer
from runs.history.json_lines import Change, Line, Listing, Mark, list_json
from runs.history.pairing import Fingerprints, pair_items
from runs.history.texts import ShownText

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

# Escapes first: JSON text has them. Words keep their combining marks; characters of scripts without spaces are words.
_WORDS = re.compile(
    r"""\\(?:u[0-9a-f]{4}|.)|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"""
    r"""|[^\s\\!-/:-@\[-`{-~«»“”‘’„…–—،؛؟·\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\S"""
)


def compare_outputs(old: Any, new: Any, marks: Iterable[Mark] = ()) -> dict[str, Any] | None:
    """Compare two JSON values. Lines of the new one that ``marks`` point at carry them, and are never folded.

    None for outputs that are too long to be compared. ``counts`` are of values, ``left_out`` of lines at the end that
    are not shown; two outputs are the same where nothing changed but, perhaps, the order of keys. What ``is_tall``
    scrolls in a box of its own. ``anchors`` have the id to link to for each issue that points at a line.
    """
    before, after = (list_json(value, max_lines=MAX_LINES, max_characters=MAX_CHARACTERS) for value in (old, new))
    if before.is_cut or after.is_cut:
        return None
    anchors = after.mark(marks)
    comparison = _Comparison(before, after)
    comparison.compare(old, new, "", "")
    blocks = list(_cut(_fold(comparison.lines)))
    shown = [line for block in blocks if not block["is_folded"] for line in block["lines"]]
    return {
        "blocks": blocks,
        "counts": comparison.counts,
        "is_same": not any(comparison.counts.values()),
        "is_tall": len(shown) > 80 or sum(len(line.value) + len(line.old or "") for line in shown) > 8_000,
        "left_out": len(comparison.lines) - sum(block["count"] for block in blocks),
        "anchors": anchors,
    }


class _Comparison:
    """Walks both values at once and collects lines; ``at_old`` and ``at_new`` are JSON pointers."""

    def __init__(self, old: Listing, new: Listing) -> None:
        self._old = old
        self._new = new
        self._prints = Fingerprints()
        self._words_left = _MAX_ALL_WORDS
        self.lines: list[Line] = []
        self.counts = dict.fromkeys((Change.CHANGED, Change.ADDED, Change.REMOVED), 0)

    def compare(self, old: Any, new: Any, at_old: str, at_new: str) -> None:
        """Add the lines of two values that are in the same place."""
        before, after = self._list_lines(self._old, old, at_old), self._list_lines(self._new, new, at_new)
        if self._prints.of(old) == self._prints.of(new):
            self.lines += after
        elif type(old) is type(new) and isinstance(new, dict | list) and old and new:
            self.lines.append(after[0])
            if isinstance(new, dict):
                self._compare_objects(old, new, at_old, at_new)
            else:
                self._compare_lists(old, new, at_old, at_new)
            self.lines.append(after[-1])
        else:
            self.counts[Change.CHANGED] += 1
            if len(before) == len(after) == 1:
                self._change(before[0], after[0])
            else:
                self._add(Change.REMOVED, before)
                self._add(Change.ADDED, after)

    def _compare_objects(self, old: dict[str, Any], new: dict[str, Any], at_old: str, at_new: str) -> None:
        # What is gone is shown behind the key that it was behind.
        gone: dict[str | None, list[str]] = {}
        last: str | None = None
        for key in old:
            if key in new:
                last = key
            else:
                gone.setdefault(last, []).append(key)
        for here in (None, *new):
            if here is not None:
                part = format_pointer([here])
                if here in old:
                    self.compare(old[here], new[here], at_old + part, at_new + part)
                else:
                    self._add_value(Change.ADDED, new[here], at_new + part)
            for key in gone.get(here, ()):
                self._add_value(Change.REMOVED, old[key], at_old + format_pointer([key]))

    def _compare_lists(self, old: list[Any], new: list[Any], at_old: str, at_new: str) -> None:
        for i, j in pair_items(old, new, self._prints):
            if i is not None and j is not None:
                self.compare(old[i], new[j], f"{at_old}/{i}", f"{at_new}/{j}")
            elif i is not None:
                self._add_value(Change.REMOVED, old[i], f"{at_old}/{i}")
            elif j is not None:
                self._add_value(Change.ADDED, new[j], f"{at_new}/{j}")

    def _add_value(self, change: Change, value: Any, pointer: str) -> None:
        """A value that only one of the outputs has."""
        self.counts[change] += 1
        self._add(change, self._list_lines(self._old if change is Change.REMOVED else self._new, value, pointer))

    def _list_lines(self, listing: Listing, value: Any, pointer: str) -> Sequence[Line]:
        start = listing.places[pointer].number - 1
        return listing.lines[start : start + self._prints.lines_of(value)]

    def _add(self, change: Change, lines: Sequence[Line]) -> None:
        """Lines that only one of the outputs has."""
        for line in lines:
            line.change = change
            if change is Change.REMOVED:
                line.number = 0
        self.lines += lines

    def _change(self, old: Line, new: Line) -> None:
        new.change, new.old = Change.CHANGED, old.value
        new.parts = self._mark_words(old.value, new.value)
        self.lines.append(new)

    def _mark_words(self, old: str, new: str) -> Sequence[tuple[Change, ShownText]]:
        """Both texts in one, by words; nothing for what is not a text, or has too little in common."""
        if not (old.startswith('"') and new.startswith('"')):
            return ()
        before, after = (list(_WORDS.finditer(text)) for text in (old, new))
        count = len(before) + len(after)
        if count > min(_MAX_WORDS, self._words_left):
            return ()
        self._words_left -= count
        stretches = compare_sequences([word[0] for word in before], [word[0] for word in after])
        same = sum(len(word[0]) for one in stretches if one.is_same for word in before[one.old]) - 2
        if same < _MIN_IN_COMMON * max(len(old), len(new)) or len(stretches) < 2:
            return ()
        return [(change, ShownText(text)) for change, text in _join_words(old, new, before, after, stretches) if text]


def _join_words(
    old: str, new: str, before: Sequence[re.Match[str]], after: Sequence[re.Match[str]], stretches: Sequence[Stretch]
) -> Iterator[tuple[Change, str]]:
    """The parts of a text in order: what was removed, then what came in its place, then what stayed."""
    for one in stretches:
        gone, come = before[one.old], after[one.new]
        text = new[come[0].start() : come[-1].end()] if come else ""
        following = new[come[-1].end() : _find_start(new, after, one.new.stop)] if come else ""
        if one.is_same:
            yield Change.SAME, text + following
            continue
        if gone:
            # Words that nothing replaced go with the space behind them.
            end = gone[-1].end() if come else _find_start(old, before, one.old.stop)
            yield Change.REMOVED, old[gone[0].start() : end]
        yield Change.ADDED, text
        yield Change.SAME, following


def _find_start(text: str, words: Sequence[re.Match[str]], index: int) -> int:
    return words[index].start() if index < len(words) else len(text)


def _fold(lines: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Blocks in which what is unchanged, without a mark, and not near a change, is folded.

    A fold of ``count`` lines may be too long to have them.
    """
    shown = bytearray(len(lines))
    for position, line in enumerate(lines):
        reach = CONTEXT if line.change is not Change.SAME else 0 if line.marks else -1
        for near in range(max(position - reach, 0), min(position + reach + 1, len(lines))):
            shown[near] = 1
    for is_shown, places in groupby(range(len(lines)), shown.__getitem__):
        own = [lines[place] for place in places]
        is_folded = not is_shown and len(own) >= _MIN_FOLD
        shown_lines = [] if is_folded and len(own) > MAX_FOLDED_LINES else own
        yield {"lines": shown_lines, "count": len(own), "is_folded": is_folded}


def _cut(blocks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The first of these blocks, up to ``MAX_SHOWN_LINES``."""
    remaining = MAX_SHOWN_LINES
    for block in blocks:
        if remaining <= 0:
            return
        lines = block["lines"]
        if block["is_folded"]:
            yield block
            remaining -= 1 + len(lines) // 4
        else:
            yield {**block, "lines": lines[:remaining], "count": len(lines[:remaining])}
            remaining -= len(lines)
