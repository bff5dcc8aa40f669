"""The geometry of attempts over time. Pure: what goes in are seconds, what comes out are SVG attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flows.engine.errors import ModelErrorCode
from flows.engine.history import Outcome
from runs.formatting import format_duration, format_elapsed
from runs.history.issue_links import anchor_attempt
from runs.pages.badges import STATES
from runs.pages.small_charts import format_number

ROW_HEIGHT = 22
BAR_HEIGHT = 12
TOP = 24
"""Room for the labels of the time axis, in pixels."""
_SHORTEST_WAIT = 0.02
"""Waits under this share of the whole width are not drawn."""
_NARROWEST_BAR = 0.6
"""Per cent of the width: what an attempt of no length still shows."""
_MOST_QUEUE = 1 / 3
"""Of the attempts' time: a longer time in the queue is drawn that long, or the attempts would not be seen beside it."""
_LEAST_WHILE_RUNNING = 10.0
"""Seconds that the axis of a run under way shows at least."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One mark of an axis at ``at`` (per cent from the left, or pixels from the top)."""

    at: str
    label: str
    is_minor: bool = False
    """Left out where there is little room."""


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """When one attempt ran, in seconds since the run began. ``outcome`` is ``running`` while it runs."""

    step: int
    step_name: str
    number: int
    outcome: str
    begin: float
    end: float
    error_code: str = ""
    """What kept the call from bringing an answer, of one that errored."""
    asked_wait: float | None = None
    """Seconds that the provider then asked to wait."""


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """One attempt as a bar, with the wait before it if there is one worth seeing."""

    span: AttemptSpan
    begins_step: bool
    anchor: str
    y: str
    middle: str
    baseline: str
    x: str
    width: str
    end: str
    wait_x: str
    sign: str
    outcome_word: str
    duration: str
    waited: str
    """How long, with the reason where it is known."""
    seconds: str
    """How long it has been running; empty once it has ended. A script counts on from there."""


@dataclass(frozen=True, slots=True)
class QueueMark:
    """A time in the queue, in a row of its own. What is ``open`` lasts still, and is counted on from ``seconds``."""

    y: str
    middle: str
    baseline: str
    x: str
    width: str
    end: str
    duration: str
    is_cut: bool
    """It lasted too long to be drawn to scale beside the attempts."""
    seconds: str = ""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Attempts over time. ``queue`` is the time before the first of them, ``pending`` that since the last."""

    rows: tuple[WaterfallRow, ...]
    queue: QueueMark | None
    pending: QueueMark | None
    ticks: tuple[Tick, ...]
    height: str


def plot_waterfall(
    spans: Sequence[AttemptSpan], *, queued: float = 0.0, pending: float | None = None
) -> Waterfall | None:
    """Lay out attempts, in their order, as bars over time; None if there are none.

    ``queued`` are the seconds from the run's creation to its start, which is the zero of the axis. ``pending`` are
    those since it waits again, None if it doesn't.
    """
    if not spans:
        return None
    latest = max(*(span.end for span in spans), 0.001)
    total = latest if pending is None else latest + pending
    if pending is not None or spans[-1].outcome == "running":
        # What lasts still has the rest of the width before it, and an axis that it doesn't outgrow at once.
        total = max(total * 1.15, _LEAST_WHILE_RUNNING)
    shown = min(queued, total * _MOST_QUEUE) if queued > total * _SHORTEST_WAIT else 0.0
    axis = _Axis(begin=-shown, length=shown + total)
    first_row = 0
    queue = None
    if shown:
        first_row = 1
        queue = _mark_time(axis, 0, -shown, 0.0, format_duration(queued), is_cut=shown < queued)
    rows = _lay_out_rows(axis, spans, first_row)
    row_count = first_row + len(rows)
    waiting = None
    if pending is not None:
        begin = max(span.end for span in spans)
        waiting = _mark_time(
            axis, row_count, begin, begin + pending, format_elapsed(pending), seconds=format_number(pending)
        )
        row_count += 1
    step = _time_step(total)
    ticks = []
    moment = 0.0
    while moment <= total * 1.0001:
        ticks.append(Tick(axis.place(moment), _format_tick(moment, step)))
        moment += step
    return Waterfall(rows, queue, waiting, tuple(ticks), format_number(TOP + row_count * ROW_HEIGHT + 4))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Seconds from ``begin`` on, ``length`` of them, over the whole width."""

    begin: float
    length: float

    def percent(self, moment: float) -> float:
        return (moment - self.begin) / self.length * 100

    def place(self, moment: float) -> str:
        return f"{format_number(self.percent(moment))}%"


def _lay_out_rows(axis: _Axis, spans: Sequence[AttemptSpan], first_row: int) -> tuple[WaterfallRow, ...]:
    rows = []
    earlier_end = 0.0
    earlier: AttemptSpan | None = None
    for position, span in enumerate(spans, start=first_row):
        y, middle = _row_places(position)
        wait = span.begin - earlier_end
        badge = STATES[span.outcome]
        end = max(axis.percent(span.end), axis.percent(span.begin) + _NARROWEST_BAR)
        reason = _explain_wait(earlier) if earlier is not None and earlier.step == span.step else ""
        waited = format_duration(wait) if wait >= 0.001 else ""
        lasted, is_running = span.end - span.begin, span.outcome == "running"
        rows.append(
            WaterfallRow(
                span=span,
                begins_step=earlier is None or span.step != earlier.step,
                anchor=anchor_attempt(span.step, span.number),
                y=format_number(y),
                middle=format_number(middle),
                baseline=format_number(middle + 4),
                x=axis.place(span.begin),
                width=f"{format_number(end - axis.percent(span.begin))}%",
                end=f"{format_number(end)}%",
                wait_x=axis.place(earlier_end) if wait > axis.length * _SHORTEST_WAIT else "",
                sign=badge.sign,
                outcome_word=badge.word,
                duration=format_elapsed(lasted) if is_running else format_duration(lasted),
                waited=f"{waited}{reason}" if waited else "",
                seconds=format_number(lasted) if is_running else "",
            )
        )
        earlier_end, earlier = max(span.end, earlier_end), span
    return tuple(rows)


def _explain_wait(earlier: AttemptSpan) -> str:
    """What a step waited for after an attempt, in words that follow how long; empty where nothing tells."""
    if earlier.outcome == Outcome.INTERRUPTED:
        return ", until a worker took over after the interruption"
    if earlier.outcome != Outcome.ERRORED:
        return ""
    asked = f"; the provider asked for {format_duration(earlier.asked_wait)}" if earlier.asked_wait else ""
    if earlier.error_code == ModelErrorCode.RATE_LIMITED:
        return f", for the provider’s rate limit{asked}"
    return f", to try again after an error{asked}"


def _mark_time(
    axis: _Axis, row: int, begin: float, end: float, duration: str, *, is_cut: bool = False, seconds: str = ""
) -> QueueMark:
    y, middle = _row_places(row)
    width = max(axis.percent(end) - axis.percent(begin), _NARROWEST_BAR)
    return QueueMark(
        y=format_number(y),
        middle=format_number(middle),
        baseline=format_number(middle + 4),
        x=axis.place(begin),
        width=f"{format_number(width)}%",
        end=f"{format_number(axis.percent(begin) + width)}%",
        duration=duration,
        is_cut=is_cut,
        seconds=seconds,
    )


def _row_places(row: int) -> tuple[float, float]:
    """The top and the middle of the bar in a row, in pixels."""
    y = TOP + row * ROW_HEIGHT + (ROW_HEIGHT - BAR_HEIGHT) / 2
    return y, y + BAR_HEIGHT / 2


_TIME_STEPS = (
    *(base * 10**power for power in range(-3, 1) for base in (1, 2, 5)),
    *(10, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400),
)


def _time_step(total: float) -> float:
    """Seconds between two marks, so that there are at most seven."""
    return next((step for step in _TIME_STEPS if total / step <= 6), 86_400 * -(-total // (6 * 86_400)))


def _format_tick(seconds: float, step: float) -> str:
    if seconds == 0:
        return "0"
    if step < 1:
        return f"{round(seconds * 1000)} ms" if step < 0.1 else f"{seconds:.1f} s"
    if step < 60:
        return f"{round(seconds)} s"
    if step < 3_600:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3_600)} h"
