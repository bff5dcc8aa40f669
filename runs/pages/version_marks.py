"""Where versions of a flow came into use: marks on the time axis of its charts, and the same in words for tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from runs.pages.day_charts import Mark, place_marks
from runs.pages.periods import format_day
from runs.statistics.figures import DayRuns
from runs.statistics.sums import Period

MOST_TAKEOVERS = 10
"""Marks of days on which an earlier version took over again: more of them would hide the charts."""


@dataclass(frozen=True, slots=True)
class VersionMarks:
    """What changed of the versions in a period."""

    marks: tuple[Mark, ...]
    notes: Mapping[int, str]
    """In words, by the position of the slot."""
    sentence: str
    """What the marks leave out; empty if they leave out nothing."""


def mark_versions(
    period: Period, days: Sequence[DayRuns], numbers: Mapping[int, int], first_days: Mapping[int, date]
) -> VersionMarks:
    """Mark the days on which the first runs of versions ended, and those from which on another one has most runs.

    What never ran changed nothing, whenever it was saved. ``numbers`` and ``first_days`` are by the versions' keys.
    """
    changes: list[tuple[date, str, str]] = []
    notes: dict[int, list[str]] = {}
    for key, day in sorted(first_days.items(), key=lambda item: numbers[item[0]]):
        name = f"v{numbers[key]}"
        changes.append((day, name, f"{name} since {format_day(day)}"))
        position = period.find_slot(day)
        if position is not None:
            notes.setdefault(position, []).append(name)
    takeovers = list(_find_takeovers(period, days, numbers, first_days))
    for position, key in takeovers:
        notes.setdefault(position, []).append(f"mostly v{numbers[key]}")
    for position, key in takeovers[-MOST_TAKEOVERS:]:
        day, name = period.slots[position].first, f"v{numbers[key]}"
        changes.append((day, name, f"most runs of {name} from {format_day(day)} on"))
    sentence = ""
    if len(takeovers) > MOST_TAKEOVERS:
        sentence = (
            f"Versions that ran before took over {len(takeovers)} times; charts mark the latest {MOST_TAKEOVERS}, "
            "their tables have all."
        )
    return VersionMarks(
        place_marks(period, changes), {position: ", ".join(names) for position, names in notes.items()}, sentence
    )


def _find_takeovers(
    period: Period, days: Sequence[DayRuns], numbers: Mapping[int, int], first_days: Mapping[int, date]
) -> Iterator[tuple[int, int]]:
    """Slots in which another version has most runs than in the last slot before it that has any, with its key.

    The first days of a version are no takeover: its mark stands there already, or in the slot before.
    """
    counts: dict[int, Counter[int]] = {}
    for day in days:
        position = period.find_slot(day.day)
        if position is not None:
            counts.setdefault(position, Counter())[day.version_id] += day.sums.runs
    before: tuple[int, int] | None = None
    for position, runs in sorted(counts.items()):
        leading = _find_leading(runs, numbers, before and before[1])
        if before is not None and leading != before[1]:
            first_day = first_days.get(leading)
            if first_day is None or period.find_slot(first_day) not in (position, before[0]):
                yield position, leading
        before = position, leading


def _find_leading(runs: Mapping[int, int], numbers: Mapping[int, int], before: int | None) -> int:
    """The version with most runs. Of several it is the one that led before, or the latest."""
    return max(runs, key=lambda key: (runs[key], key == before, numbers[key]))
