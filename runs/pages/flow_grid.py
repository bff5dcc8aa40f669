"""The last runs of a flow as a grid: a row a step, a column a run, each cell with how the step came out.

Four queries whatever the flow's history: its newest runs, their steps, the audits that fired, and definitions of
versions that are not cached yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, OuterRef, Q, Subquery
from django.urls import reverse

from flows.engine.history import COUNTED, Outcome
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from runs.formatting import format_cost, format_duration, format_plural
from runs.models import Attempt, Run, RunFacet, RunStatus, Step
from runs.models.facet import FacetKind
from runs.pages.badges import STATES, Badge
from runs.pages.flow_definition import load_specs
from runs.pages.small_charts import format_number

MAX_RUNS = 40
MAX_AUDITS_SHOWN = 4
BARS = 40
"""Pixels of the longest run's bar."""
BARS_TOP = 20
ROW = 23
"""Pixels from one row to the next; a cell is 21 of them high."""
MARK_COLUMNS = 3
"""Columns from one name of a version to the next at least."""
ROWS_TOP = BARS_TOP + BARS + 8
_COLUMNS = ("status", "cancel_requested", "created_at", "started_at", "ended_at", "cost", "unpriced_count")


@dataclass(frozen=True, slots=True)
class Cell:
    """One step of one run. ``kind`` is ``passed``, ``retried``, ``failed``, ``errored``, ``running``, … or ``none``."""

    y: str
    sign_y: str
    kind: str
    sign: str


@dataclass(frozen=True, slots=True)
class Column:
    """One run."""

    id: int
    url: str
    x: str
    width: str
    label: str
    """What assistive technology says of it."""
    state: Badge
    version: str
    created_at: datetime
    facts: tuple[str, ...]
    notable: str
    """The step that needed most attempts, or that ended the run."""
    audits: str
    bar_y: str
    bar_height: str
    is_bad: bool
    cells: tuple[Cell, ...]
    number: str
    """Shown below every tenth run."""
    is_new_version: bool
    """It is of another version than the run before."""
    version_mark: str
    """The name of that version, where there is room for it."""
    is_newest: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """The runs, oldest first; ``rows`` are the names of steps, those of earlier versions only last."""

    rows: tuple[tuple[str, str], ...]
    """Number and name; the number is empty where the step is no longer there."""
    columns: tuple[Column, ...]
    longest: str
    height: str
    numbers_y: str
    count: int

    @property
    def signs(self) -> tuple[tuple[str, str, str], ...]:
        """Kind, sign and words of the legend."""
        return (
            ("passed", "", "First attempt"),
            ("retried", "2", "Retries"),
            ("failed", STATES["failed"].sign, "Failed"),
            ("errored", STATES["errored"].sign, "Errored"),
            ("none", "", "Not reached"),
            ("running", STATES["running"].sign, "Running"),
            ("cut", STATES["cancelled"].sign, "Interrupted or cancelled"),
        )


def load_grid(flow: Flow, shown: FlowVersion | None, *, only: FlowVersion | None, now: datetime) -> Grid | None:
    """The last runs of a flow, or of ``only`` one version; rows are the steps of ``shown``. None without any run."""
    chosen = Run.objects.filter(version=only) if only is not None else Run.objects.filter(flow=flow)
    runs = [*chosen.order_by("-created_at", "-pk").only("version_id", *_COLUMNS)[:MAX_RUNS]][::-1]
    if not runs:
        return None
    keys = {run.version_id for run in runs} | ({shown.pk} if shown else set())
    versions = {one.pk: one for one in FlowVersion.objects.filter(pk__in=keys).only("number", "digest", "flow")}
    specs = load_specs(versions.values())
    steps = _fetch_steps(runs)
    audits = _fetch_audits(runs)
    rows = _list_rows(specs.get(shown.pk) if shown else None, runs, specs, steps)
    longest = max((_measure(run, now) for run in runs), default=0.0) or 1.0
    columns = []
    before: int | None = None
    labelled = -MARK_COLUMNS
    for place, run in enumerate(runs):
        number = versions[run.version_id].number
        has_mark = number != before and place - labelled >= MARK_COLUMNS
        labelled = place if has_mark else labelled
        columns.append(
            _build_column(
                run,
                place,
                count=len(runs),
                version=f"v{number}",
                is_new_version=number != before,
                has_mark=has_mark,
                spec=specs.get(run.version_id),
                found=steps.get(run.pk, {}),
                audits=audits.get(run.pk, []),
                rows=[name for _, name in rows],
                share=_measure(run, now) / longest,
                seconds=_measure(run, now),
            )
        )
        before = number
    bottom = ROWS_TOP + ROW * len(rows)
    return Grid(rows, tuple(columns), format_duration(longest), str(bottom + 20), str(bottom + 12), len(runs))


def _fetch_steps(runs: Sequence[Run]) -> Mapping[int, Mapping[str, tuple[int, str]]]:
    """Of each run and step by name: attempts with an output, and the outcome that decides; empty while it runs."""
    last = Attempt.objects.filter(step=OuterRef("pk")).exclude(outcome=Outcome.INTERRUPTED).order_by("-number")
    rows = (
        Step.objects.filter(run__in=runs)
        .order_by()
        .annotate(
            tries=Count("attempts", filter=Q(attempts__outcome__in=[outcome.value for outcome in COUNTED])),
            last=Subquery(last.values("outcome")[:1]),
        )
        .values_list("run", "name", "tries", "last")
    )
    found: dict[int, dict[str, tuple[int, str]]] = {}
    for run, name, tries, outcome in rows:
        found.setdefault(run, {})[name] = (tries, "interrupted" if outcome is None else outcome)
    return found


def _fetch_audits(runs: Sequence[Run]) -> Mapping[int, list[str]]:
    """The audits that fired in each run that is counted."""
    # Without other kinds and not by this one: databases would read all audits that ever fired off the index of kinds.
    others = [kind for kind in FacetKind if kind is not FacetKind.AUDIT]
    rows = RunFacet.objects.filter(run__in=runs).exclude(kind__in=others).order_by().values_list("run", "value")
    found: dict[int, list[str]] = {}
    for run, audit in sorted(rows):
        found.setdefault(run, []).append(audit)
    return found


def _list_rows(
    shown: FlowSpec | None,
    runs: Sequence[Run],
    specs: Mapping[int, FlowSpec | None],
    steps: Mapping[int, Mapping[str, object]],
) -> tuple[tuple[str, str], ...]:
    """Numbers and names of the rows: steps of the version shown, then those that only other versions have."""
    rows = {step.name: str(number) for number, step in enumerate(shown.steps if shown else (), start=1)}
    for run in reversed(runs):
        spec = specs.get(run.version_id)
        for name in [step.name for step in spec.steps] if spec else steps.get(run.pk, ()):
            rows.setdefault(name, "")
    return tuple((number, name) for name, number in rows.items())


def _measure(run: Run, now: datetime) -> float:
    """Seconds from the start of a run to its end, or to now."""
    if run.started_at is None:
        return 0.0
    return max(((run.ended_at or now) - run.started_at).total_seconds(), 0.0)


def _build_column(
    run: Run,
    place: int,
    *,
    count: int,
    version: str,
    is_new_version: bool,
    has_mark: bool,
    spec: FlowSpec | None,
    found: Mapping[str, tuple[int, str]],
    audits: Sequence[str],
    rows: Sequence[str],
    share: float,
    seconds: float,
) -> Column:
    is_cancelling = run.status == RunStatus.RUNNING and run.cancel_requested
    state = STATES["cancelling" if is_cancelling else run.status]
    own = {step.name for step in spec.steps} if spec else set(found)
    cells = []
    for position, name in enumerate(rows):
        y = ROWS_TOP + ROW * position
        kind, sign = _judge(*found[name]) if name in found else ("none" if name in own else "", "")
        if kind:
            cells.append(Cell(str(y), str(y + 15), kind, sign))
    height = max(share * BARS, 1.0) if seconds else 0.0
    notable = _describe_notable(found)
    facts = [version, format_duration(seconds if run.started_at else None), format_cost(run.cost, run.unpriced_count)]
    words = f"Run {run.pk}: {state.word.lower()}, {', '.join(facts)}"
    shown = [*audits[:MAX_AUDITS_SHOWN], *([f"{len(audits) - MAX_AUDITS_SHOWN} more"] * (len(audits) > 4))]
    return Column(
        id=run.pk,
        url=reverse("runs:page", args=[run.pk]),
        x=f"{format_number(100 * (place + MAX_RUNS - count) / MAX_RUNS)}%",
        width=f"{format_number(100 / MAX_RUNS)}%",
        label=f"{words}. {notable}" if notable else words,
        state=state,
        version=version,
        created_at=run.created_at,
        facts=tuple(facts[1:]),
        notable=notable,
        audits=", ".join(shown),
        bar_y=format_number(BARS_TOP + BARS - height),
        bar_height=format_number(height),
        is_bad=run.status in (RunStatus.FAILED, RunStatus.ERRORED),
        cells=tuple(cells),
        number=f"#{run.pk}" if (count - 1 - place) % 10 == 0 else "",
        is_new_version=is_new_version,
        version_mark=version if has_mark else "",
        is_newest=place == count - 1,
    )


def _judge(tries: int, outcome: str) -> tuple[str, str]:
    """Kind and sign of a step with so many tries, of which ``outcome`` decides."""
    if outcome == Outcome.PASSED:
        return ("retried", str(tries - 1)) if tries > 1 else ("passed", "")
    if not outcome:
        return "running", STATES["running"].sign
    kind = {Outcome.FAILED: "failed", Outcome.INVALID: "failed", Outcome.ERRORED: "errored"}.get(
        Outcome(outcome), "cut"
    )
    return kind, STATES[outcome].sign


def _describe_notable(found: Mapping[str, tuple[int, str]]) -> str:
    """The step that did not pass, or else the one that needed most attempts."""
    for name, (tries, outcome) in found.items():
        if outcome in (Outcome.FAILED, Outcome.INVALID, Outcome.ERRORED):
            return f"{name} {STATES[outcome].word.lower()} after {format_plural(max(tries, 1), 'attempt')}"
    name, (tries, _) = max(found.items(), key=lambda item: item[1][0], default=("", (0, "")))
    return f"{name} needed {format_plural(tries, 'attempt')}" if tries > 1 else ""
