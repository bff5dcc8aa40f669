"""What two sequences have in common, in time that grows with their length and not with its square."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_MOST_PAIRS = 2_500
"""Between what stands once in both, gaps of up to so many pairs are searched; larger ones count as different."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the old sequence and the part of the new one in its place; the same, or wholly different."""

    old: slice
    new: slice
    is_same: bool


def find_increasing(values: Sequence[int]) -> list[int]:
    """The positions of a longest strictly increasing part of ``values``."""
    lowest: list[int] = []  # the least last value of a part with one, two, … values
    ends: list[int] = []
    before = [-1] * len(values)
    for position, value in enumerate(values):
        length = bisect_left(lowest, value)
        before[position] = ends[length - 1] if length else -1
        lowest[length : length + 1] = [value]
        ends[length : length + 1] = [position]
    found: list[int] = []
    position = ends[-1] if ends else -1
    while position >= 0:
        found.append(position)
        position = before[position]
    return found[::-1]


def compare_sequences(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Stretch]:
    """Both sequences cut into stretches, in order and without gaps; same and different ones alternate."""
    stretches: list[Stretch] = []
    from_old = from_new = 0
    for i, j, size in [*_merge(_match(old, new)), (len(old), len(new), 0)]:
        if i > from_old or j > from_new:
            stretches.append(Stretch(slice(from_old, i), slice(from_new, j), is_same=False))
        if size:
            stretches.append(Stretch(slice(i, i + size), slice(j, j + size), is_same=True))
        from_old, from_new = i + size, j + size
    return stretches


_Block = tuple[int, int, int]
"""Where equal parts begin, in the old and in the new sequence, and how long they are."""


def _merge(blocks: Iterator[_Block]) -> Iterator[_Block]:
    last: _Block | None = None
    for i, j, size in blocks:
        if last is not None and (last[0] + last[2], last[1] + last[2]) == (i, j):
            last = (last[0], last[1], last[2] + size)
        else:
            if last is not None:
                yield last
            last = (i, j, size)
    if last is not None:
        yield last


def _match(old: Sequence[Hashable], new: Sequence[Hashable]) -> Iterator[_Block]:
    start = _count_equal(old, new)
    end = _count_equal(old[start:][::-1], new[start:][::-1])
    until_old, until_new = len(old) - end, len(new) - end
    if start:
        yield 0, 0, start
    from_old = from_new = start
    for i, j in [*_find_anchors(old, new, start, until_old, until_new), (until_old, until_new)]:
        yield from _match_gap(old, new, (from_old, i), (from_new, j))
        if i < until_old:
            yield i, j, 1
        from_old, from_new = i + 1, j + 1
    if end:
        yield until_old, until_new, end


def _find_anchors(
    old: Sequence[Hashable], new: Sequence[Hashable], start: int, until_old: int, until_new: int
) -> list[tuple[int, int]]:
    """What stands once in both, as far as its order is the same."""
    in_old, in_new = Counter(old[start:until_old]), Counter(new[start:until_new])
    places = {new[j]: j for j in range(start, until_new) if in_new[new[j]] == 1}
    pairs = [(i, places[old[i]]) for i in range(start, until_old) if in_old[old[i]] == 1 and old[i] in places]
    return [pairs[position] for position in find_increasing([j for _, j in pairs])]


def _match_gap(
    old: Sequence[Hashable], new: Sequence[Hashable], in_old: tuple[int, int], in_new: tuple[int, int]
) -> Iterator[_Block]:
    left, right = old[slice(*in_old)], new[slice(*in_new)]
    start = _count_equal(left, right)
    end = _count_equal(left[start:][::-1], right[start:][::-1])
    if start:
        yield in_old[0], in_new[0], start
    left, right = left[start : len(left) - end], right[start : len(right) - end]
    if left and right and len(left) * len(right) <= _MOST_PAIRS:
        for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
            if block.size:
                yield in_old[0] + start + block.a, in_new[0] + start + block.b, block.size
    if end:
        yield in_old[1] - end, in_new[1] - end, end


def _count_equal(old: Sequence[Hashable], new: Sequence[Hashable]) -> int:
    """How many items both begin with."""
    count = 0
    for left, right in zip(old, new, strict=False):
        if left != right:
            break
        count += 1
    return count
