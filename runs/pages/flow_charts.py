"""The charts of a flow's page: what was counted, by slots of its period, laid out with a table of the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runs.formatting import format_cost, format_count, format_duration, format_plural, format_share, format_short_count
from runs.pages.badges import STATES, Badge
from runs.pages.day_charts import DayColumns, DayLines, Mark, plot_columns, plot_durations, plot_rates
from runs.pages.periods import describe_slot
from runs.statistics.sums import TITLES, Period, RunSums, StepSums, Use, use_of_runs

STATUSES = ("succeeded", "failed", "errored", "cancelled")
SlotSums = Sequence[RunSums | None] | Sequence[StepSums | None]
_Pair = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One kind that a chart shows; with ``badge`` it is a state."""

    kind: str
    words: str
    badge: Badge | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """The numbers of one slot as text; ``cells`` is empty where nothing was counted."""

    words: str
    """Which slot it is."""
    cells: tuple[str, ...]
    note: str
    """What changed in the slot."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its legend, and its numbers as a table."""

    id: str
    title: str
    drawing: DayColumns | DayLines
    legend: tuple[LegendEntry, ...]
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    is_lines: bool = False


class ChartMaker:
    """Makes the charts of one page, which share their time axis and its marks."""

    def __init__(self, period: Period, marks: Sequence[Mark], notes: Mapping[int, str]) -> None:
        """``notes`` are what changed, by the position of the slot."""
        self._period = period
        self._marks = marks
        self._notes = notes
        self._slots = [describe_slot(slot) for slot in period.slots]

    def chart_runs(self, slots: Sequence[RunSums | None]) -> Chart:
        """Runs by status."""
        values = [None if sums is None else {status: getattr(sums, status) for status in STATUSES} for sums in slots]
        words = [f"{STATES[status].word}" for status in STATUSES]
        return self._chart_counts("runs", "Runs", "run", values, dict(zip(STATUSES, words, strict=True)))

    def chart_attempts(self, slots: Sequence[StepSums | None]) -> Chart:
        """Attempts by whether they passed."""
        values = [
            None if sums is None else {"passed": sums.passed, "failed": max(sums.attempts - sums.passed, 0)}
            for sums in slots
        ]
        return self._chart_counts("runs", "Attempts", "attempt", values, {"passed": "Passed", "failed": "Not passed"})

    def chart_run_rates(self, slots: Sequence[RunSums | None]) -> Chart:
        """The pass rate of runs, and that of runs without any retry."""
        rates = [None if sums is None else (sums.pass_rate, sums.first_rate) for sums in slots]
        return self._chart_rates("Runs that passed", "Pass rate", rates)

    def chart_durations(self, slots: Sequence[RunSums | None]) -> Chart:
        """How long runs took: half of them, and 95 of 100."""
        lengths = [None if sums is None else (sums.median, sums.p95) for sums in slots]
        words = {"median": "p50", "p95": "p95"}
        return self._chart_lines("durations", "Duration", words, lengths, format_duration, plot_durations)

    def chart_attempt_rates(self, slots: Sequence[StepSums | None]) -> Chart:
        """The pass rate of attempts, and that of first ones."""
        rates = [None if sums is None else (sums.attempt_rate, sums.first_rate) for sums in slots]
        return self._chart_rates("Attempts that passed", "All attempts", rates)

    def _chart_rates(self, title: str, word: str, slots: Sequence[_Pair | None]) -> Chart:
        words = {"pass": word, "first": "First-attempt pass rate"}
        return self._chart_lines("rates", title, words, slots, format_share, plot_rates)

    def _chart_lines(
        self,
        id: str,
        title: str,
        words: Mapping[str, str],
        slots: Sequence[_Pair | None],
        format_value: Callable[[float | None], str],
        plot: Callable[..., DayLines],
    ) -> Chart:
        """Two lines, called by ``words``, as ``plot`` draws them."""
        series = {
            kind: [None if pair is None else pair[position] for pair in slots] for position, kind in enumerate(words)
        }
        cells = [() if pair is None else tuple(format_value(value) for value in pair) for pair in slots]
        titles = self._titles(cells, tuple(words.values()))
        return Chart(
            id=id,
            title=title,
            drawing=plot(self._period, series, titles, marks=self._marks),
            legend=tuple(LegendEntry(kind, text) for kind, text in words.items()),
            columns=tuple(words.values()),
            rows=self._rows(cells),
            is_lines=True,
        )

    def chart_use(self, slots: SlotSums, *, measure: str) -> Chart:
        """Tokens or cost (``measure``), of runs by the part of the bill."""
        is_cost = measure == "cost"
        has_parts = any(isinstance(sums, RunSums) for sums in slots)
        words = dict(TITLES) if has_parts else {"first": "All attempts"}
        values: list[dict[str, float] | None] = []
        cells: list[tuple[str, ...]] = []
        for sums in slots:
            if sums is None:
                values.append(None)
                cells.append(())
                continue
            parts = use_of_runs(sums) if isinstance(sums, RunSums) else {}
            whole = Use(sums.total_tokens, sums.known_cost, sums.unpriced)
            used = {kind: _measure(part, is_cost) for kind, part in parts.items()}
            values.append(used or {"first": _measure(whole, is_cost)})
            cells.append(tuple(_describe(part, is_cost) for part in (whole, *parts.values())))
        columns = ("All", *words.values()) if has_parts else ("All",)
        drawing = plot_columns(
            self._period,
            values,
            self._titles(cells, columns),
            format_value=format_dollars if is_cost else _format_counts,
            marks=self._marks,
            is_whole=not is_cost,
        )
        return Chart(
            id="use",
            title="Cost" if is_cost else "Tokens",
            drawing=drawing,
            legend=tuple(LegendEntry(kind, text) for kind, text in words.items()) if has_parts else (),
            columns=columns,
            rows=self._rows(cells),
        )

    def _chart_counts(
        self, id: str, title: str, noun: str, slots: Sequence[Mapping[str, int] | None], words: Mapping[str, str]
    ) -> Chart:
        cells = [
            ()
            if values is None
            else (format_count(sum(values.values())), *(format_count(values[kind]) for kind in words))
            for values in slots
        ]
        titles = [
            f"{slot}: "
            + (
                f"no {noun}s"
                if values is None
                else ", ".join(
                    (
                        format_plural(sum(values.values()), noun),
                        *(
                            f"{format_count(values[kind])} {text.lower()}"
                            for kind, text in words.items()
                            if values[kind]
                        ),
                    )
                )
            )
            for slot, values in zip(self._slots, slots, strict=True)
        ]
        drawing = plot_columns(
            self._period,
            [None if values is None else {kind: float(values[kind]) for kind in words} for values in slots],
            titles,
            format_value=_format_counts,
            marks=self._marks,
        )
        shown = [kind for kind in words if any(values and values[kind] for values in slots)] or list(words)[:1]
        return Chart(
            id=id,
            title=title,
            drawing=drawing,
            legend=tuple(LegendEntry(kind, words[kind], STATES[kind]) for kind in shown),
            columns=(title, *words.values()),
            rows=self._rows(cells),
        )

    def _titles(self, cells: Sequence[tuple[str, ...]], columns: Sequence[str]) -> list[str]:
        names = [column.lower() for column in columns]
        return [
            f"{slot}: "
            + (
                ", ".join([f"{name} {cell}" for name, cell in zip(names, texts, strict=True)])
                if texts
                else "nothing ran"
            )
            for slot, texts in zip(self._slots, cells, strict=True)
        ]

    def _rows(self, cells: Sequence[tuple[str, ...]]) -> tuple[TableRow, ...]:
        return tuple(
            TableRow(slot, texts, self._notes.get(position, ""))
            for position, (slot, texts) in enumerate(zip(self._slots, cells, strict=True))
        )


def _measure(use: Use, is_cost: bool) -> float:
    """How much was used, for drawing."""
    return float(use.cost or 0) if is_cost else float(use.tokens)


def _describe(use: Use, is_cost: bool) -> str:
    """How much was used, in words."""
    return format_cost(use.cost, use.unpriced) if is_cost else format_count(use.tokens)


def _format_counts(value: float, _step: float) -> str:
    return format_short_count(round(value))


def format_dollars(value: float, step: float) -> str:
    """A tick of a cost axis, with the digits that its step needs: ``$0.05``, ``$20``."""
    places = max(2, -math.floor(math.log10(step) + 1e-9)) if step < 1 else 0
    return f"${value:.{places}f}"
