"""Which item of a list became which item of another one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from flows.engine.differences import compare_sequences, find_increasing
from flows.engine.json_values import format_pointer, parse_pointer

_MAX_PAIRS = 2_500
"""Candidates whose likeness is computed; beyond that items are paired by their order."""

_MIN_LIKENESS = 0.4
_NAMES = ("id", "key", "name", "title", "code")
"""Keys whose value identifies an object among its neighbours: the first that both share says whether they are one."""

_MAX_TEXT_LENGTH = 1_000
_WORDS = re.compile(r"\w+")


class Fingerprints:
    """Numbers for JSON values: the same for values that are equal, whatever the order of their keys.

    Unlike Python it distinguishes 1, 1.0 and true. A value must not change, nor go, while its number is in use.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, tuple[int, int]] = {}
        self._traits: dict[int, frozenset[str]] = {}

    def of(self, value: Any) -> int:
        """The number of a value."""
        return self._measure(value)[0]

    def lines_of(self, value: Any) -> int:
        """How many lines a value takes, one for each scalar and each bracket of what is not empty."""
        return self._measure(value)[1]

    def traits_of(self, value: Any) -> frozenset[str]:
        """The words in a value, with their keys."""
        number = self.of(value)
        if number not in self._traits:
            self._traits[number] = _collect_traits(value)
        return self._traits[number]

    def _measure(self, value: Any) -> tuple[int, int]:
        if not isinstance(value, dict | list):
            return self._number(("scalar", type(value), value)), 1
        if (known := self._known.get(id(value))) is not None:
            return known
        form: Hashable
        if isinstance(value, dict):
            measured = [self._measure(item) for item in value.values()]
            form = ("object", frozenset(zip(value, (number for number, _ in measured), strict=True)))
        else:
            measured = [self._measure(item) for item in value]
            form = ("list", tuple(number for number, _ in measured))
        lines = 2 + sum(lines for _, lines in measured) if measured else 1
        result = self._known[id(value)] = self._number(form), lines
        return result

    def _number(self, form: Hashable) -> int:
        return self._numbers.setdefault(form, len(self._numbers))


def pair_items(old: list[Any], new: list[Any], prints: Fingerprints) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of positions in the old and the new list, in order; None where an item is in one of them only."""
    for stretch in compare_sequences([prints.of(item) for item in old], [prints.of(item) for item in new]):
        before = range(*stretch.old.indices(len(old)))
        after = range(*stretch.new.indices(len(new)))
        if stretch.is_same:
            yield from zip(before, after, strict=True)
            continue
        alike = _pair_alike(old, new, before, after, prints)
        from_old, from_new = before.start, after.start
        for i, j in [*alike, (before.stop, after.stop)]:
            yield from _pair_rest(old, new, range(from_old, i), range(from_new, j))
            if i < before.stop:
                yield i, j
            from_old, from_new = i + 1, j + 1


def find_same_items(old: list[Any], new: list[Any], prints: Fingerprints) -> dict[int, int]:
    """Where items of the new list were in the old one, by their positions; without those that are not known there.

    What was wholly changed is the same item only where it stayed in its place. An item that changed places with others
    is known by its name or, where it has none, by its value.
    """
    origins: dict[int, int] = {}
    gone, come = [], []
    for i, j in pair_items(old, new, prints):
        if i is not None and j is not None and (i == j or _find_likeness(old[i], new[j], prints) >= _MIN_LIKENESS):
            origins[j] = i
            continue
        gone += [i] if i is not None else []
        come += [j] if j is not None else []
    left = _index_single({i: _identify(old[i], prints) for i in gone})
    for mark, j in _index_single({j: _identify(new[j], prints) for j in come}).items():
        if mark in left:
            origins[j] = left[mark]
    return origins


def _identify(item: Any, prints: Fingerprints) -> Hashable:
    """The name of an object; the value of what has none."""
    for key in _NAMES:
        if isinstance(item, dict) and isinstance(item.get(key), str | int):
            return key, item[key]
    return prints.of(item)


def _index_single(marks: dict[int, Hashable]) -> dict[Hashable, int]:
    """Positions by their mark, as far as no other has the same."""
    counts = Counter(marks.values())
    return {mark: position for position, mark in marks.items() if counts[mark] == 1}


def _pair_alike(
    old: list[Any], new: list[Any], before: range, after: range, prints: Fingerprints
) -> list[tuple[int, int]]:
    """Pairs of items that have much in common, the most that don't cross."""
    if len(before) * len(after) > _MAX_PAIRS:
        return []
    candidates = [(_find_likeness(old[i], new[j], prints), i, j) for i in before for j in after]
    found: dict[int, int] = {}
    taken: set[int] = set()
    # The likest first; among equals those that are nearest to each other.
    for likeness, i, j in sorted(candidates, key=lambda one: (-one[0], abs(one[1] - one[2]), one[1])):
        if likeness < _MIN_LIKENESS:
            break
        if i not in found and j not in taken:
            found[i] = j
            taken.add(j)
    pairs = sorted(found.items())
    return [pairs[position] for position in find_increasing([j for _, j in pairs])]


def _pair_rest(old: list[Any], new: list[Any], before: range, after: range) -> Iterator[tuple[int | None, int | None]]:
    """As many items as before, of the same kinds, are the same ones, wholly changed; else they came and went."""
    pairs = list(zip(before, after, strict=False))
    is_kindred = all(
        _kind_of(old[i]) is _kind_of(new[j]) and _has_same_name(old[i], new[j]) is not False for i, j in pairs
    )
    if len(before) == len(after) and is_kindred:
        yield from pairs
        return
    yield from ((i, None) for i in before)
    yield from ((None, j) for j in after)


def _kind_of(value: Any) -> type:
    return type(value) if isinstance(value, dict | list) else str


def _find_likeness(old: Any, new: Any, prints: Fingerprints) -> float:
    """From 0 to 1, by the words or the fields that two items have in common; above 1 if they have the same name."""
    if _kind_of(old) is not _kind_of(new):
        return 0.0
    before, after = prints.traits_of(old), prints.traits_of(new)
    likeness = len(before & after) / len(before | after) if before or after else 0.0
    if isinstance(old, dict):
        same = sum(key in new and prints.of(old[key]) == prints.of(new[key]) for key in old)
        likeness = max(likeness, same / (len(old.keys() | new.keys()) or 1))
    return likeness + 1 if _has_same_name(old, new) else likeness


def _has_same_name(old: Any, new: Any) -> bool | None:
    """Whether two objects are called the same; None if they have no name in common, or are not objects."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in _NAMES:
            if isinstance(old.get(key), str | int) and isinstance(new.get(key), str | int):
                return bool(old[key] == new[key])
    return None


def _collect_traits(value: Any, key: str = "") -> frozenset[str]:
    if isinstance(value, dict):
        return frozenset().union(*(_collect_traits(item, name) for name, item in value.items()))
    if isinstance(value, list):
        return frozenset().union(*(_collect_traits(item, key) for item in value))
    words: Sequence[str] = _WORDS.findall(value[:_MAX_TEXT_LENGTH]) if isinstance(value, str) else (str(value),)
    return frozenset(f"{key} {word}" for word in words)


class ItemMoves:
    """Two outputs of a step, the earlier one first. What they hold must not change while this is in use."""

    def __init__(self, old: Any, new: Any) -> None:
        self._old = old
        self._new = new
        self._prints = Fingerprints()
        self._origins: dict[tuple[int, int], dict[int, int]] = {}

    def trace_back(self, pointer: str) -> str | None:
        """The pointer that led to the same place of the same item in the earlier output.

        None where an item on the way is not known to have been there, and for text that is not a pointer.
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
                # What is missing has a place, too.
                origin.append(part)
                old, new = (value.get(part) if isinstance(value, dict) else None for value in (old, new))
        return format_pointer(origin)

    def _find_origins(self, old: list[Any], new: list[Any]) -> dict[int, int]:
        key = id(old), id(new)
        if key not in self._origins:
            self._origins[key] = find_same_items(old, new, self._prints)
        return self._origins[key]
