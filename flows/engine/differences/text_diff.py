"""The difference of two texts as lines to read: removed and added ones, with the words marked that differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from flows.engine.differences.sequence_matching import Stretch, compare_sequences

CONTEXT = 3
"""Unchanged lines that stay in view before and after a change."""

MOST_LINES = 600
"""Changed lines that one text shows; the rest is counted."""

_MOST_WORDS = 4_000
_LEAST_IN_COMMON = 0.3
"""Lines that have less in common are shown without marks: nearly all of them would be marked."""

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")

# What a browser would not show, or would take for something else.
_VISIBLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    **{code: f"⟨U+{code:04X}⟩" for code in (0x7F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0xFEFF)},
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


class LineKind(StrEnum):
    """What became of a line."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line; marked where it differs from the line in its place."""

    text: str
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the old text, of the new one, or of both."""

    kind: LineKind
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that stand together. Folded ones are unchanged and need not be in view."""

    lines: tuple[Line, ...]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class TextDifference:
    """All blocks of two texts, and how many changed lines are left out since there are too many."""

    blocks: tuple[Block, ...]
    left_out: int = 0


def compare_texts(old: str, new: str) -> TextDifference:
    """The difference of two texts, line by line. Characters without a shape of their own are written as symbols."""
    before, after = old.split("\n") if old else [], new.split("\n") if new else []
    stretches = compare_sequences(before, after)
    blocks: list[Block] = []
    shown = left_out = 0
    for position, stretch in enumerate(stretches):
        if stretch.is_same:
            blocks += _fold(before[stretch.old], is_first=position == 0, is_last=position == len(stretches) - 1)
            continue
        size = stretch.old.stop - stretch.old.start + stretch.new.stop - stretch.new.start
        room = MOST_LINES - shown
        lines = list(_mark(before[stretch.old][:room], after[stretch.new][:room]))[:room]
        shown += len(lines)
        left_out += size - len(lines)
        if lines:
            blocks.append(Block(tuple(lines)))
    return TextDifference(tuple(blocks), left_out)


def show_text(text: str, kind: LineKind = LineKind.SAME) -> TextDifference:
    """A whole text as lines of one kind."""
    lines = text.split("\n")
    shown = tuple(_make_line(kind, line) for line in lines[:MOST_LINES])
    return TextDifference((Block(shown),), left_out=len(lines) - len(shown))


def reveal(text: str) -> str:
    """The text with its invisible characters written as symbols; spaces, tabs and line breaks stay."""
    return text.translate(_VISIBLE)


def _make_line(kind: LineKind, text: str) -> Line:
    return Line(kind, (Piece(reveal(text)),))


def _fold(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Block]:
    same = tuple(_make_line(LineKind.SAME, line) for line in lines)
    before, after = (0 if is_first else CONTEXT), (0 if is_last else CONTEXT)
    hidden = same[before : len(same) - after]
    if len(hidden) < 2:  # a fold of one line takes as much room as the line
        yield Block(same)
        return
    if before:
        yield Block(same[:before])
    yield Block(hidden, is_folded=True)
    if after:
        yield Block(same[-after:])


def _mark(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    """Lines that took each other's place: first the old ones, then the new ones."""
    pairs = [_mark_words(before, after) for before, after in zip(old, new, strict=False)]
    for position, line in enumerate(old):
        pieces = pairs[position][0] if position < len(pairs) else (Piece(reveal(line)),)
        yield Line(LineKind.REMOVED, pieces)
    for position, line in enumerate(new):
        pieces = pairs[position][1] if position < len(pairs) else (Piece(reveal(line)),)
        yield Line(LineKind.ADDED, pieces)


def _mark_words(old: str, new: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    stretches: list[Stretch] = []
    if len(before) + len(after) <= _MOST_WORDS:
        stretches = compare_sequences(before, after)
        same = sum(len("".join(before[one.old]).strip()) for one in stretches if one.is_same)
        if same < _LEAST_IN_COMMON * max(len(old.strip()), len(new.strip())):
            stretches = []
    if not stretches:
        return (Piece(reveal(old)),), (Piece(reveal(new)),)
    return (
        tuple(Piece(reveal("".join(before[one.old])), not one.is_same) for one in stretches if before[one.old]),
        tuple(Piece(reveal("".join(after[one.new])), not one.is_same) for one in stretches if after[one.new]),
    )
