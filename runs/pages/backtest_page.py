"""What the page of a backtest shows: the sentence, four figures, what changed, the runs that differ, and the audits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from flows.engine.backtest import find_untestable
from flows.engine.backtest_result import BacktestKind, BacktestResult, KindTotals
from flows.engine.differences import compare_specs, summarise_changes
from flows.engine.errors import SpecError
from flows.engine.spec import FlowSpec
from flows.portability import describe_place
from runs.backtests.totals import (
    UNJUDGED,
    Totals,
    describe_further,
    describe_open,
    describe_saved,
    describe_totals,
    list_pieces,
)
from runs.filter_fields import parse_run_number
from runs.formatting import NOTHING, format_cost, format_count, format_duration, format_plural
from runs.history.texts import cut_text, show_invisible
from runs.models import Attempt, Backtest, BacktestRun, Step, Worker
from runs.pages.addresses import Pager
from runs.pages.attempt_view import quote_value
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.pages.bulk import BADGES, list_filter_words
from runs.pages.flow_version import load_specs

FIRST_ROWS = 3
"""Runs of a kind that the page shows at first."""
PAGE_SIZE = 25
SHOWN_ISSUES = 4
"""Issues of a cell that the template shows; SQLite bounds how many places one query asks for."""
SHORT_TEXT = 240

KINDS: Mapping[str, tuple[Badge, str]] = {
    BacktestKind.REFUSED: (Badge("Refused", "x-circle", "failed"), "would be refused"),
    BacktestKind.BEYOND: (Badge("Unknown", "exclamation-triangle", "errored"), "can’t be judged beyond a step"),
    BacktestKind.NOT_REPRODUCIBLE: (Badge("Not judged", "question-mark-circle", "errored"), "don’t come out as stored"),
    BacktestKind.SOONER: (Badge("Sooner", "check-circle", "passed"), "would end sooner"),
}
"""Kinds of runs that have rows, the most severe first: how they would end, and what a group of them is called."""
_UNJUDGED_WORDS: Mapping[BacktestKind, str] = {
    BacktestKind.BEYOND: "with another input",
    BacktestKind.NOT_REPRODUCIBLE: "not as stored",
    BacktestKind.REMOVED: "without outputs",
}


def load_backtest_page(backtest: Backtest, query: Mapping[str, str]) -> dict[str, Any]:
    """What the page shows."""
    totals = Totals.from_document(backtest.totals)
    spec = _read_spec(backtest)
    context = {
        "backtest": backtest,
        "flow": backtest.flow,
        "candidate": name_candidate(backtest),
        "badge": BADGES[backtest.state],
        "totals": totals,
        "pieces": list_pieces(totals),
        "sentence": describe_found(backtest),
        "filter_words": [one for one in list_filter_words(backtest.query) if one[0] != "Flow"],
        "has_no_worker": backtest.is_unfinished and not Worker.objects.alive().exists(),
    }
    if backtest.is_unfinished:
        return context
    seconds = (backtest.ended_at - backtest.started_at).total_seconds() if _has_times(backtest) else None  # type: ignore[operator]
    context |= {
        "took": format_duration(seconds),
        "is_live": backtest.version_id is not None and backtest.version_id == backtest.flow.live_version_id,
        **_compare_with_base(backtest, spec),
        "audits": _list_audits(totals, spec, backtest),
    }
    if not backtest.leaves_out_each:
        context |= {"bar": plot_bar(totals), "cards": _list_cards(totals), **_load_groups(backtest, totals, query)}
    return context


def _has_times(backtest: Backtest) -> bool:
    return backtest.started_at is not None and backtest.ended_at is not None


def _read_spec(backtest: Backtest) -> FlowSpec | None:
    try:
        return FlowSpec.from_document(backtest.document)
    except SpecError:
        return None


def name_candidate(backtest: Backtest) -> str:
    """What is judged by: ``v4``, or ``Draft``."""
    return f"v{backtest.version.number}" if backtest.version else "Draft"


def describe_found(backtest: Backtest) -> str:
    """What was found, or what keeps it from being found, in a sentence."""
    if backtest.leaves_out_each:
        results = Totals.from_document(backtest.totals).without.values()
        judged = [result.kinds.keys() - set(UNJUDGED) for result in results]
        idle = sum(kinds == {BacktestKind.SAME} for kinds in judged)
        verb = "changes" if idle == 1 else "change"
        return f"Of {format_plural(len(results), 'audit')} {format_count(idle)} {verb} nothing when left out."
    return describe_totals(Totals.from_document(backtest.totals))


def _compare_with_base(backtest: Backtest, spec: FlowSpec | None) -> dict[str, Any]:
    """What the candidate changes against the version that was live, and what of it history can't answer."""
    base = backtest.flow.versions.filter(number=backtest.base_version or 0).defer("spec").first()
    old = load_specs([base])[base.pk] if base else None
    if spec is None or old is None or backtest.leaves_out_each:
        return {}
    places = [describe_place(backtest.document, problem.path) for problem in find_untestable(old, spec)]
    changes = compare_specs(old, spec)
    return {
        "changes": changes,
        "summary": summarise_changes(changes),
        "is_comparable": True,
        "untestable": list(dict.fromkeys(places)),
    }


class Bar(NamedTuple):
    """A part of the bar in a box of 1,000 by 14."""

    kind: str
    x: int
    width: int


def plot_bar(totals: Totals) -> list[Bar]:
    """The parts of the bar: refused, unjudged, sooner, the same. Few runs are not none: each part is seen."""
    counts = {
        "refused": totals.get(BacktestKind.REFUSED).runs,
        "unjudged": totals.unjudged,
        "sooner": totals.get(BacktestKind.SOONER).runs,
        "same": totals.get(BacktestKind.SAME).runs,
    }
    shown = {kind: count for kind, count in counts.items() if count}
    room = 1_000 - 2 * (len(shown) - 1) - 4 * len(shown)
    bars, x = [], 0
    for kind, count in shown.items():
        width = 4 + room * count // max(1, totals.result.runs)
        bars.append(Bar(kind, x, width))
        x += width + 2
    return bars


class Card(NamedTuple):
    """One of the four figures; ``kind`` is that of its list, empty without one."""

    tone: str
    figure: str
    title: str
    note: str
    kind: str


def _list_cards(totals: Totals) -> list[Card]:
    same, sooner, refused = map(totals.get, (BacktestKind.SAME, BacktestKind.SOONER, BacktestKind.REFUSED))
    unjudged = [
        f"{format_count(totals.get(kind).runs)} {words}"
        for kind, words in _UNJUDGED_WORDS.items()
        if totals.get(kind).runs
    ]
    others = f"{format_count(totals.other_issues)} of them with other issues" if totals.other_issues else ""
    first_unjudged = next((kind for kind in UNJUDGED if kind in KINDS and totals.get(kind).runs), "")
    return [
        Card(
            "failed",
            format_count(refused.runs),
            "Would be refused",
            describe_further(refused).strip(" ()"),
            BacktestKind.REFUSED if refused.runs else "",
        ),
        Card("errored", format_count(totals.unjudged), "Can’t be judged", ", ".join(unjudged), first_unjudged),
        Card(
            "passed",
            format_count(sooner.runs),
            "End sooner",
            _describe_sooner(sooner),
            BacktestKind.SOONER if sooner.runs else "",
        ),
        Card("quiet", format_count(same.runs), "End the same", others, ""),
    ]


def _describe_sooner(totals: KindTotals) -> str:
    saved = describe_saved(totals).strip(" ()")
    return (f"{saved} saved" if saved else "") + describe_open(totals).removeprefix("" if saved else ", ")


# ---------------------------------------------------------------------------------------------------------------
# The runs that differ


class IssueLine(NamedTuple):
    """An issue that is gone or new; ``value`` is what it is about, as the stored output has it."""

    badge: Badge
    title: str
    message: str
    value: str


class RunRow(NamedTuple):
    """One run that differs: how it ended, and how it would end."""

    row: BacktestRun
    url: str
    step_name: str
    was: Badge | None
    would: Badge
    would_note: str
    gone: Sequence[IssueLine]
    new: Sequence[IssueLine]
    words: Sequence[str]


class Group(NamedTuple):
    """Runs of one kind; ``more_url`` leads to all of them, empty where these are all."""

    kind: str
    badge: Badge
    title: str
    rows: Sequence[RunRow]
    more: int
    more_url: str


def _load_groups(backtest: Backtest, totals: Totals, query: Mapping[str, str]) -> dict[str, Any]:
    """The first runs of each kind, or a page of one kind."""
    only, before = query.get("kind", ""), parse_run_number(query.get("before", ""))
    kinds = [only] if only in KINDS else list(KINDS)
    url = reverse("runs:backtest", args=[backtest.pk])
    groups, pager = [], Pager()
    for kind in kinds:
        found = BacktestRun.objects.filter(backtest=backtest, kind=kind).select_related("run").order_by("-run_id")
        found = found.only(*_ROW_COLUMNS)
        size = PAGE_SIZE if only in KINDS else FIRST_ROWS
        if only in KINDS and before is not None:
            found = found.filter(run_id__lt=before)
        rows = list(found[: size + 1])
        count = totals.get(BacktestKind(kind)).runs
        more_url = f"{url}?{urlencode({'kind': kind})}#differing"
        if only in KINDS:
            older = (
                f"{url}?{urlencode({'kind': kind, 'before': rows[size - 1].run_id})}#differing"
                if len(rows) > size
                else ""
            )
            pager = Pager(older_url=older, newest_url=more_url if before is not None else "")
            more_url = ""
        if rows:
            badge, words = KINDS[kind]
            more = max(0, count - size) if more_url else 0
            title = f"{format_count(count)} {words}"
            groups.append(Group(kind, badge, title, _build_rows(rows[:size]), more, more_url if more else ""))
    return {"groups": groups, "only": only if only in KINDS else "", "page": pager}


_ROW_COLUMNS = (
    *("kind", "sentence", "step", "attempt", "ended", "ends", "is_hypothetical", "attempts_saved", "cost_saved"),
    *("unpriced", "further_calls", "gone", "new", "backtest", "run__created_at", "run__outputs_removed_at"),
)


def _build_rows(rows: Sequence[BacktestRun]) -> list[RunRow]:
    """Rows with the names of their steps and what their issues are about. Two queries."""
    names = {
        (run_id, index): name
        for run_id, index, name in Step.objects.filter(run__in=[row.run_id for row in rows])
        .order_by()
        .values_list("run_id", "index", "name")
    }
    places = {
        (row.run_id, one["step"], one["attempt"])
        for row in rows
        for one in (*row.gone[:SHOWN_ISSUES], *row.new[:SHOWN_ISSUES])
        if one["path"]
    }
    outputs: dict[tuple[int, int, int], Any] = {}
    if places:
        wanted = Q()
        for run_id, step, attempt in places:
            wanted |= Q(step__run=run_id, step__index=step, number=attempt)
        columns = ("step__run", "step__index", "number", "output")
        outputs = {tuple(key): output for *key, output in Attempt.objects.filter(wanted).values_list(*columns)}
    return [_build_row(row, names.get((row.run_id, row.step or 0), ""), outputs) for row in rows]


def _build_row(row: BacktestRun, step_name: str, outputs: Mapping[tuple[int, int, int], Any]) -> RunRow:
    url = reverse("runs:page", args=[row.run_id])
    if row.step and row.attempt:
        url = reverse("runs:attempt", args=[row.run_id, row.step, row.attempt])
    would_note = ""
    if row.step and row.attempt:
        would_note = f"{'on' if row.kind == BacktestKind.SOONER else 'at'} attempt {row.attempt}"
    would = KINDS[row.kind][0]
    if row.kind == BacktestKind.SOONER and row.ends:
        would = STATES[row.ends]
    return RunRow(
        row=row,
        url=url,
        step_name=step_name,
        was=STATES[row.ended] if row.ended else None,
        would=would,
        would_note=would_note,
        gone=_list_issues(row, row.gone, outputs),
        new=_list_issues(row, row.new, outputs),
        words=list(_describe_row(row)),
    )


def _list_issues(
    row: BacktestRun, issues: Sequence[Mapping[str, Any]], outputs: Mapping[tuple[int, int, int], Any]
) -> list[IssueLine]:
    return [
        IssueLine(
            badge=SEVERITIES[one["severity"]],
            title=show_invisible(one["audit"] or one["code"].replace("_", " ").capitalize()),
            message=str(cut_text(one["description"], SHORT_TEXT)),
            value=quote_value(outputs.get((row.run_id, one["step"], one["attempt"])), one["path"])[1],
        )
        for one in issues
    ]


def _describe_row(row: BacktestRun) -> Iterator[str]:
    """What the row means, in short sentences."""
    if row.kind == BacktestKind.SOONER and row.attempts_saved and not row.gone:
        yield "What blocked no longer does."
    elif row.kind == BacktestKind.REFUSED and not row.new:
        yield "What only warned blocks now."
    if row.sentence:
        yield show_invisible(row.sentence)
    elif row.kind == BacktestKind.REFUSED:
        more = f"At least {format_plural(row.further_calls, 'more call')}." if row.further_calls else ""
        yield more or "Its tries are used up."
    elif row.attempts_saved:
        cost = f" and {format_cost(row.cost_saved, row.unpriced)}" if row.cost_saved else ""
        yield f"{format_plural(row.attempts_saved, 'attempt')}{cost} saved."
    if row.is_hypothetical:
        yield "Hypothetical: its retries were asked in other words."
    if row.run.outputs_removed_at is not None:
        yield "The run’s outputs were removed since."


# ---------------------------------------------------------------------------------------------------------------
# Audits


class AuditLine(NamedTuple):
    """One audit in the runs of the backtest."""

    step: str
    name: str
    severity: Badge | None
    cells: Sequence[tuple[str, str]]
    """Figures, each with its tone."""


def _list_audits(totals: Totals, spec: FlowSpec | None, backtest: Backtest) -> list[AuditLine]:
    """By step and name. Of a backtest that leaves out each audit, what leaving out each would change."""
    known = (
        {(number, audit.name): audit for number, step in enumerate(spec.steps, 1) for audit in step.audits}
        if spec
        else {}
    )
    steps = {number: step.name for number, step in enumerate(spec.steps, 1)} if spec else {}
    lines: dict[tuple[int, str], list[tuple[str, str]]] = {}
    if backtest.leaves_out_each:
        lines = {key: list_without_cells(result) for key, result in totals.without.items()}
    for one in () if backtest.leaves_out_each else totals.result.audits:
        lines[one.step, one.audit] = [
            (format_count(one.fired_before), ""),
            (format_count(one.fired_after), ""),
            (format_count(one.gone), "passed" if one.gone else "quiet"),
            (format_count(one.new), "failed" if one.new else "quiet"),
        ]
    return [
        AuditLine(
            step=f"{step} {steps.get(step, '')}".strip(),
            name=name,
            severity=SEVERITIES[known[step, name].severity.value] if (step, name) in known else None,
            cells=cells,
        )
        for (step, name), cells in sorted(lines.items())
    ]


def list_without_cells(result: BacktestResult) -> list[tuple[str, str]]:
    """What leaving out an audit would change: runs that end sooner, retries and cost saved."""
    if all(kind in UNJUDGED for kind in result.kinds):
        return [(NOTHING, "quiet")] * 3
    sooner = result.kinds.get(BacktestKind.SOONER)
    if sooner is None:
        return [("0", "quiet"), ("0", "quiet"), (NOTHING, "")]
    cost = sooner.saved.cost
    return [
        (format_count(sooner.runs), "passed"),
        (format_count(sooner.retries_saved), "passed"),
        (f"\N{MINUS SIGN}{format_cost(cost, sooner.saved.unpriced)}" if cost else NOTHING, ""),
    ]
