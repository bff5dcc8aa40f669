"""Which step of one spec is which step of another, and the same for audits, whatever they are called meanwhile."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from flows.engine.differences.sequence_matching import find_increasing
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec

_MOST_STEP_PAIRS = 2_500
_MOST_AUDIT_PAIRS = 400
"""Of so many candidates the likeness is computed; beyond that they count as removed and added."""

_LEAST_LIKENESS = 0.5
_LONGEST_TEXT = 1_000
_WORDS = re.compile(r"\w+")

Pairs = dict[int, int]
"""From a place in the old list to the place in the new one, both counted from 0."""


def pair_steps(old: Sequence[StepSpec], new: Sequence[StepSpec]) -> Pairs:
    """The steps that are the same: by name, else by tool name, else by likeness."""
    pairs: Pairs = {}
    _pair_by_key(pairs, old, new, lambda step: step.name)
    _pair_by_key(pairs, old, new, lambda step: step.tool_name)
    _pair_by_likeness(pairs, old, new, most=_MOST_STEP_PAIRS)
    return pairs


class AuditPairing:
    """The audits that are the same, within their step or moved to another one.

    ``within`` has the pairs of each pair of steps; ``moved`` leads from (step, audit) of the old spec to those of the
    new one, all counted from 0.
    """

    def __init__(self, old: FlowSpec, new: FlowSpec, steps: Pairs) -> None:
        self.within: dict[int, Pairs] = {}
        for before, after in steps.items():
            pairs = self.within[before] = {}
            left, right = old.steps[before].audits, new.steps[after].audits
            _pair_by_key(pairs, left, right, lambda audit: audit.name)
            _pair_by_key(pairs, left, right, lambda audit: audit.rule)
        self.moved = self._find_moved(old, new, steps)
        for before, after in steps.items():
            left, right = old.steps[before].audits, new.steps[after].audits
            taken_old = {place for step, place in self.moved if step == before}
            taken_new = {place for step, place in self.moved.values() if step == after}
            pairs = self.within[before]
            _pair_by_likeness(pairs, left, right, taken_old, taken_new, most=_MOST_AUDIT_PAIRS)

    def _find_moved(self, old: FlowSpec, new: FlowSpec, steps: Pairs) -> dict[tuple[int, int], tuple[int, int]]:
        taken = {(steps[step], place) for step, pairs in self.within.items() for place in pairs.values()}
        waiting: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        for step_place, step in enumerate(new.steps):
            for place, audit in enumerate(step.audits):
                if (step_place, place) not in taken:
                    waiting[audit.name, audit.rule].append((step_place, place))
        moved = {}
        for step_place, step in enumerate(old.steps):
            for place, audit in enumerate(step.audits):
                found = waiting.get((audit.name, audit.rule))
                if found and place not in self.within.get(step_place, {}):
                    moved[step_place, place] = found.pop(0)
        return moved


def find_moved(pairs: Pairs) -> set[int]:
    """The old places of what really moved: the fewest that explain the new order."""
    kept = sorted(pairs)
    staying = {kept[position] for position in find_increasing([pairs[place] for place in kept])}
    return set(kept) - staying


def _pair_by_key(
    pairs: Pairs,
    old: Sequence[Any],
    new: Sequence[Any],
    key: Callable[[Any], Hashable],
) -> None:
    taken = set(pairs.values())
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(new):
        if place not in taken and key(item) is not None:
            waiting[key(item)].append(place)
    for place, item in enumerate(old):
        if place not in pairs and waiting.get(key(item)):
            pairs[place] = waiting[key(item)].pop(0)


def _pair_by_likeness(
    pairs: Pairs,
    old: Sequence[StepSpec] | Sequence[AuditSpec],
    new: Sequence[StepSpec] | Sequence[AuditSpec],
    taken_old: Iterable[int] = (),
    taken_new: Iterable[int] = (),
    *,
    most: int,
) -> None:
    left = [place for place in range(len(old)) if place not in pairs and place not in set(taken_old)]
    gone = {*pairs.values(), *taken_new}
    right = [place for place in range(len(new)) if place not in gone]
    if not left or not right or len(left) * len(right) > most:
        return
    words_old = {place: _collect_words(old[place]) for place in left}
    words_new = {place: _collect_words(new[place]) for place in right}
    candidates = [
        (len(words_old[i] & words_new[j]) / (len(words_old[i] | words_new[j]) or 1), i, j) for i in left for j in right
    ]
    # The likest first; among equals those that stand nearest to each other.
    for likeness, i, j in sorted(candidates, key=lambda one: (-one[0], abs(one[1] - one[2]), one[1])):
        if likeness < _LEAST_LIKENESS:
            return
        if i not in pairs and j not in gone:
            pairs[i] = j
            gone.add(j)


def _collect_words(spec: StepSpec | AuditSpec) -> set[str]:
    words: set[str] = set()
    for name, value in spec:
        if value and name not in ("name", "audits"):
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            words.update(_WORDS.findall(text[:_LONGEST_TEXT]))
    return words
