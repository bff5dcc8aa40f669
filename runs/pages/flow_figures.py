"""Figures of flows on pages: cells of tables, what was counted in a period, trends, and marks where versions begin.

A day without data (None) is a gap, which is not a zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from runs.formatting import (
    NOTHING,
    format_cost,
    format_count,
    format_duration,
    format_large,
    format_mean,
    format_number,
    format_plural,
    format_share,
)
from runs.statistics.figures import (
    DayRuns,
    Scope,
    StepGroup,
    fetch_runs,
    fetch_steps,
    fetch_steps_by_day,
    sum_models,
)
from runs.statistics.sums import (
    TITLES,
    Period,
    RunSums,
    Slot,
    StepSums,
    split_cost_of_runs,
    sum_by,
    sum_by_slot,
)

WIDTH = 1_000
"""Drawings that are stretched to their box are so wide, in units of their own."""
SPARK_HEIGHT = 28
TREND_TOP, TREND_HEIGHT = 14, 44
"""Pixels above a trend, for names of versions, and of the trend itself."""
MAX_MARKS = 10
"""Changes of version that a trend marks, the latest: more of them would hide it."""


class Column(NamedTuple):
    """A figure of sums by the name of their property. Money has no ``format_value``."""

    title: str
    name: str
    format_value: Callable[[Any], str] | None = None


RUNS = Column("Runs", "runs", format_count)
PASS_RATE = Column("Pass rate", "pass_rate", format_share)
FIRST_RATE = Column("First-attempt pass rate", "first_rate", format_share)
FIRST_ATTEMPT = Column("First attempt", "first_rate", format_share)
TOKENS, COST = Column("Tokens", "total_tokens", format_large), Column("Cost", "known_cost")
ATTEMPTS = Column("Attempts", "attempts", format_count)
ATTEMPTS_PER_STEP = Column("Attempts per step", "attempts_per_step", format_mean)
ATTEMPT_RATE = Column("Attempts that passed", "attempt_rate", format_share)
P50, P95 = Column("p50", "median", format_duration), Column("p95", "p95", format_duration)
COST_PER_ACCEPTED = Column("Cost per accepted output", "cost_per_accepted")
TOKENS_PER_ACCEPTED = Column("Tokens per accepted output", "tokens_per_accepted", format_large)
COST_PER_PASSED = Column("Cost per passed attempt", "cost_per_passed")
TOKENS_PER_PASSED = Column("Tokens per passed attempt", "tokens_per_passed", format_large)

OF_FLOW = (RUNS, PASS_RATE, FIRST_ATTEMPT, COST)
OF_VERSION = (RUNS, PASS_RATE, FIRST_RATE, COST_PER_ACCEPTED, TOKENS_PER_ACCEPTED, COST)
OF_VERSION_BY_MODEL = (ATTEMPTS, ATTEMPT_RATE, FIRST_RATE, COST_PER_PASSED)
OF_RUNS = (
    *(RUNS, PASS_RATE, FIRST_ATTEMPT, ATTEMPTS_PER_STEP, P50, P95),
    Column("Tokens per run", "tokens_per_run", format_large),
    TOKENS_PER_ACCEPTED,
    Column("Cost per run", "cost_per_run"),
    COST_PER_ACCEPTED,
)
OF_DAY = (
    *(
        Column(name.capitalize(), name, format_count)
        for name in ("runs", "succeeded", "accepted", "failed", "errored", "cancelled")
    ),
    *(PASS_RATE, FIRST_ATTEMPT, P50, P95, TOKENS, COST),
)
OF_COST = (Column("Share", "share", format_share), Column("Tokens", "tokens", format_large), Column("Cost", "cost"))
OF_STEP = (
    Column("With an output", "begun", format_count),
    Column("Passed in the end", "pass_rate", format_share),
    *(FIRST_ATTEMPT, ATTEMPTS_PER_STEP, TOKENS),
    Column("Tokens per step", "tokens_per_step", format_large),
    COST,
    Column("Cost per passed step", "cost_per_passed"),
)
OF_ATTEMPTS = (
    *(ATTEMPTS, ATTEMPT_RATE, FIRST_ATTEMPT),
    Column("Attempts per passed attempt", "attempts_per_passed", format_mean),
    TOKENS,
    Column("Tokens per attempt", "tokens_per_attempt", format_large),
    *(COST, COST_PER_PASSED),
)
"""Columns for one model, of which only attempts are known."""


def list_cells(columns: Iterable[Column], sums: Any, *, is_simulated: bool) -> list[str]:
    """The figures of a row; dashes where nothing was counted, and for the cost of simulated runs."""
    cells = []
    for column in columns:
        value = None if sums is None else getattr(sums, column.name)
        if value is None or (is_simulated and not column.format_value):
            cells.append(NOTHING)
        else:
            cells.append(column.format_value(value) if column.format_value else format_cost(value, sums.unpriced))
    return cells


# What was counted in a period


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted of a flow, or of one of its versions, in a period: of all models, or of ``model``."""

    period: Period
    is_simulated: bool
    days: Sequence[DayRuns]
    """All models, as in ``groups`` and ``runs``."""
    groups: Sequence[StepGroup]
    runs: RunSums
    model: str
    whole: RunSums | StepSums
    slots: Sequence[RunSums | StepSums | None]
    """The parts of ``whole``."""

    @property
    def has_cost(self) -> bool:
        """Whether any of it is known to have cost anything."""
        return not self.is_simulated and bool(self.whole.cost)

    def list_cells(self, columns: Iterable[Column], sums: Any) -> list[str]:
        """The figures of a row of a table."""
        return list_cells(columns, sums, is_simulated=self.is_simulated)


def load_counted(scope: Scope, period: Period, model: str) -> Counted:
    """Read what was counted; all models count if none answered by that name. Two queries, three for a model."""
    days, groups = fetch_runs(scope), fetch_steps(scope)
    runs = RunSums.join(day.sums for day in days) if days else RunSums()
    own = [group.sums for group in groups if group.model == model]
    if not (model and own):
        slots = sum_by_slot(period, ((day.day, day.sums) for day in days))
        return Counted(period, scope.is_simulated, days, groups, runs, "", runs, slots)
    attempts = sum_by_slot(period, fetch_steps_by_day(scope, model))
    return Counted(period, scope.is_simulated, days, groups, runs, model, StepSums.join(own), attempts)


def build_figures(counted: Counted, *, by_cost: bool, versions: Sequence[RunSums | StepSums]) -> list[Any]:
    """Two rates, and the cost or the tokens of a result, each with its trend and what the latest version changed.

    ``versions`` are those that ran, the newest first.
    """
    if isinstance(counted.whole, RunSums):
        columns = PASS_RATE, FIRST_RATE, COST_PER_ACCEPTED if by_cost else TOKENS_PER_ACCEPTED
        notes = [format_plural(counted.whole.runs, "run"), "without any retry"]
    else:
        columns = ATTEMPT_RATE, FIRST_RATE, COST_PER_PASSED if by_cost else TOKENS_PER_PASSED
        notes = [format_plural(counted.whole.attempts, "attempt"), "of first attempts"]
    notes.append(f"{counted.list_cells([COST if by_cost else TOKENS], counted.whole)[0]} in all")
    figures = []
    for id, column, note in zip(("pass", "first", "use"), columns, notes, strict=True):
        values = [None if sums is None else getattr(sums, column.name) for sums in counted.slots]
        cells = [counted.list_cells([column], sums)[0] for sums in counted.slots]
        known = [cell for cell, value in zip(cells, values, strict=True) if value is not None]
        numbers = [None if value is None else float(value) for value in values]
        # Rates reach from none to all. Above the highest of other values there is a little room.
        scale = 1.0 if id != "use" else 1.1 * max((number for number in numbers if number), default=0.0)
        change, tone = _compare(column, *versions[1::-1], is_rate=id != "use") if len(versions) > 1 else ("", "")
        figures.append(
            {
                "id": id,
                "title": column.title,
                "value": counted.list_cells([column], counted.whole)[0],
                "note": note,
                "change": change,
                "tone": tone,
                "trend": plot_trend(numbers, scale=scale),
                "known": known,
            }
        )
    return figures


def _compare(column: Column, old: Any, new: Any, *, is_rate: bool) -> tuple[str, str]:
    """What a version changed in words, and whether it is for the better."""
    values = getattr(old, column.name), getattr(new, column.name)
    if None in values or (column.format_value is None and (old.unpriced or new.unpriced)):
        # The difference of costs that are lower bounds is not known.
        return "", ""
    difference = values[1] - values[0]
    points = round(100 * float(abs(difference)))
    if not (points if is_rate else difference):
        return "No change", ""
    size = abs(difference)
    words = format_plural(points, "point") if is_rate else (column.format_value or format_cost)(size)
    sign = "+" if difference > 0 else "\N{MINUS SIGN}"
    return f"{sign}{words}", "passed" if (difference > 0) == is_rate else "failed"


def list_tables(counted: Counted, versions: Mapping[int, int], link_model: Callable[[str], str]) -> list[Any]:
    """The retry cost, days, steps and models; ``versions`` are numbers by slot, as ``find_versions`` gives them."""

    def build(
        id: str, title: str, note: str, head: str, columns: Sequence[Column], rows: Iterable[Any]
    ) -> dict[str, Any]:
        cells = [(name, url, counted.list_cells(columns, sums)) for name, url, sums in rows]
        heads = [head, *(column.title for column in columns)]
        return {"id": id, "title": title, "note": note, "heads": heads, "rows": cells}

    model, (split, by_cost) = counted.model, split_cost_of_runs(counted.runs)
    shown = [group for group in counted.groups if not model or group.model == model]
    by_step = sum_by(((group.step, group.name), group.sums) for group in shown)
    by_model = sum_by((group.model, group.sums) for group in counted.groups)
    parts = [(TITLES[kind], "", part) for kind, part in split.items()]
    days = [
        (f"{describe_slot(slot)}{f', v{versions[place]}' if place in versions else ''}", "", sums)
        for place, (slot, sums) in enumerate(zip(counted.period.slots, counted.slots, strict=True))
    ]
    steps = [(f"{step}. {name}", "", sums) for (step, name), sums in sorted(by_step.items())]
    asked = [
        (
            name or ("Several models" if has_several else "None: local steps only"),
            link_model(name) if name in by_model else "",
            sums,
        )
        for (name, has_several), sums in sum_models(counted.days).items()
    ]
    answered = [
        (name or "None: local or no answer", link_model(name), sums)
        for name, sums in sorted(by_model.items(), key=lambda item: (not item[0], -item[1].attempts, item[0]))
    ]
    shares = f"Shares of {'the cost' if by_cost else 'tokens'}. "
    shares += "A retry led to a pass if its step passed in the end."
    unit, of_all = counted.period.unit.capitalize(), "Counted for all models." if model else ""
    return [
        build("cost", "Retry cost", shares, "Part", OF_COST, [] if model or not counted.runs.total_tokens else parts),
        build("days", f"{unit}s", "", unit, OF_ATTEMPTS if model else OF_DAY, days[::-1]),
        build("steps", "Steps", "", "Step", OF_ATTEMPTS if model else OF_STEP, steps),
        build("models", "Runs by the model that their steps ask", of_all, "Model asked", OF_RUNS, asked),
        build("answers", "Attempts by the model that answered", of_all, "Model", OF_ATTEMPTS, answered),
    ]


# Drawings


def plot_sparkline(values: Sequence[float | None], *, most: float | None = None, kind: str = "value") -> dict[str, str]:
    """Values as small columns in a box of ``WIDTH`` by ``SPARK_HEIGHT``, as SVG paths.

    ``most`` is of full height, by default the largest value. ``zeros`` are days with data, but without what is drawn.
    """
    scale = most or max((value for value in values if value), default=0.0) or 1.0
    share = WIDTH / len(values)
    width = format_number(0.7 * share)
    paths: dict[bool, str] = {True: "", False: ""}
    for position, value in enumerate(values):
        if value is not None:
            # What is there is seen, however little it is beside the others.
            height = max(min(value / scale, 1.0) * SPARK_HEIGHT, 1.0)
            x, y = format_number(share * (position + 0.15)), format_number(SPARK_HEIGHT - height)
            paths[bool(value)] += f"M{x},{y}h{width}V{SPARK_HEIGHT}h-{width}z"
    return {"kind": kind, "columns": paths[True], "zeros": paths[False]}


def plot_trend(values: Sequence[float | None], *, scale: float) -> dict[str, str] | None:
    """Values from zero to ``scale`` as SVG paths, in a box of ``WIDTH`` by ``TREND_HEIGHT``, and where they end.

    None if there are fewer than two of them.
    """
    if sum(value is not None for value in values) < 2:
        return None
    share = WIDTH / len(values)
    points = [
        None if value is None else (share * (place + 0.5), (1 - min(value / (scale or 1.0), 1.0)) * TREND_HEIGHT)
        for place, value in enumerate(values)
    ]
    line = area = ""
    for is_gap, group in groupby(points, key=lambda point: point is None):
        if is_gap:
            continue
        stretch = [point for point in group if point is not None]
        if len(stretch) == 1:  # A line of one point is none.
            [(x, y)] = stretch
            stretch = [(x - 4, y), (x + 4, y)]
        path = "L".join(f"{format_number(x)},{format_number(y)}" for x, y in stretch)
        begin, end = format_number(stretch[0][0]), format_number(stretch[-1][0])
        line += f"M{path}"
        area += f"M{begin},{TREND_HEIGHT}L{path}L{end},{TREND_HEIGHT}z"
    x, y = [point for point in points if point is not None][-1]
    end_x, end_y = f"{format_number(100 * x / WIDTH)}%", format_number(TREND_TOP + y)
    return {"line": line, "area": area, "end_x": end_x, "end_y": end_y}


def find_versions(period: Period, days: Iterable[DayRuns], numbers: Mapping[int, int]) -> dict[int, int]:
    """The number of the version that most runs of each slot are of, by its position; ``numbers`` are by key."""
    counts: dict[int, Counter[int]] = {}
    for day in days:
        if (position := period.find_slot(day.day)) is not None:
            counts.setdefault(position, Counter())[numbers[day.version_id]] += day.sums.runs
    found: dict[int, int] = {}
    before = 0
    for position, runs in sorted(counts.items()):
        # Of several with as many runs it is the one before, or the latest.
        before = max(runs, key=lambda number: (runs[number], number == before, number))
        found[position] = before
    return found


def mark_versions(period: Period, versions: Mapping[int, int]) -> list[dict[str, str]]:
    """Marks where most runs begin to use another version, from what ``find_versions`` gives.

    The label is empty where it would touch a later one.
    """
    slots = sorted(versions)
    changes = [here for before, here in pairwise(slots) if versions[here] != versions[before]]
    marks: list[dict[str, str]] = []
    taken_from = 100.0
    # The latest changes keep their labels.
    for position in reversed(changes[-MAX_MARKS:]):
        at, label = 100 * position / len(period.slots), f"v{versions[position]}"
        end = at + 2.0 + 3.0 * len(label)  # Per cent that it takes on a phone.
        title = f"Most runs use {label} from {format_day(period.slots[position].first)}"
        # Right of the axis there is room for the one at its end.
        is_shown = end <= taken_from or not marks
        marks.append({"at": f"{format_number(at)}%", "label": label if is_shown else "", "title": title})
        taken_from = at if is_shown else taken_from
    return marks[::-1]


def describe_slot(slot: Slot) -> str:
    """A day or a week in words: ``Mon 12 May 2026``, or ``12 May 2026 to 18 May 2026``."""
    if slot.first == slot.last:
        return f"{slot.first:%a} {format_day(slot.first)}"
    return f"{format_day(slot.first)} to {format_day(slot.last)}"


def format_day(day: date) -> str:
    """A day with its year: ``5 May 2026``."""
    return f"{day.day} {day:%b %Y}"
