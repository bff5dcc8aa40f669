"""The steps of two runs of a flow: how the outputs of their last attempts differ, and which issues are new or fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.template.defaultfilters import filesizeformat
from django.urls import reverse

from flows.engine.history import UNREPORTED_USAGE, sum_usage
from runs import models
from runs.formatting import NOTHING
from runs.history.issue_links import address_attempt, address_issue, name_issue
from runs.history.json_lines import Mark
from runs.history.matching import Finding, judge_attempt, trace_findings
from runs.history.output_diff import OutputDiff, compare_outputs
from runs.history.output_view import OutputView, View, view_output
from runs.history.pairing import ItemMoves
from runs.history.texts import CutText, cut_text, show_invisible
from runs.pages.attempt_rows import read_outputs
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.pages.compared_runs import (
    Figure,
    RunRows,
    StepPair,
    compare_counts,
    compare_durations,
    compare_issues,
    compare_usage,
    count_issues,
    load_issues,
    pair_run_steps,
)
from runs.stored_history import read_usage

MAX_BYTES = 600_000
"""Bytes of stored outputs that one page compares; further steps are left to the pages of their attempts."""
MAX_ISSUES = 50
"""Issues of one step that are listed."""


@dataclass(frozen=True, slots=True)
class StepSide:
    """A step in one of the runs, by its last attempt."""

    run_id: int
    index: int
    name: str
    badge: Badge
    title: str
    """Run and attempt: ``#7, attempt 2``."""
    url: str
    """Of the last attempt on the page of the run; empty if there is none."""


@dataclass(frozen=True, slots=True)
class ComparedIssue:
    """One issue of a last attempt. ``number`` is that of its badge in the output, if ``anchor`` leads to one."""

    id: str
    number: int
    severity: Badge
    title: str
    code: str
    description: CutText
    path: str
    anchor: str
    run_id: int
    url: str


@dataclass(frozen=True, slots=True)
class IssueGroup:
    """Issues that share what became of them: ``new``, ``persisted``, ``fixed``, ``unchecked`` or ``all``."""

    kind: str
    title: str
    badge: Badge
    issues: tuple[ComparedIssue, ...]


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """What the last attempt in one of the runs brought."""

    title: str
    output: OutputView


@dataclass(frozen=True, slots=True)
class StepComparison:
    """One step in both runs, or in one of them if only its version has it.

    Without a ``diff`` a ``sentence`` says why, and ``outputs`` are what can be shown of each run.
    """

    id: str
    sides: tuple[StepSide, ...]
    shown: StepSide
    notes: tuple[str, ...]
    """What it was called, and where it stood, in the older run."""
    only_in: str
    """``new`` or ``old`` where only one version has the step; else empty."""
    diff: OutputDiff | None
    sentence: str
    outputs: tuple[ShownOutput, ...]
    figures: tuple[Figure, ...]
    groups: tuple[IssueGroup, ...]
    issues_sentence: str
    """Why there are no issues, no groups, or not all issues; empty where there is nothing to say."""


_GROUPS = {
    "new": ("New", Badge("New", "plus-circle", "failed")),
    "persisted": ("Persisted", Badge("Persisted", "arrow-right-circle", "quiet")),
    "fixed": ("Fixed", Badge("Fixed", "check-circle", "passed")),
    "unchecked": ("Not checked in the newer run", Badge("Not checked", "question-mark-circle", "quiet")),
    "all": ("Issues", Badge("Issues", "information-circle", "quiet")),
}


def compare_steps(old: RunRows, new: RunRows, view: View = View.TEXT) -> tuple[StepComparison, ...]:
    """All steps of both runs: those of the new one in their order, and where they stood those that it lacks.

    Costs four queries, and reads no more outputs than ``MAX_BYTES``.
    """
    pairs = list(pair_run_steps(old, new))
    room = MAX_BYTES
    read: list[models.Attempt] = []
    within: set[StepPair] = set()
    for pair in pairs:
        brought = [row for row in _find_rows(old, new, pair) if row is not None and _has_brought(row)]
        size = sum(row.stored_bytes for row in brought)  # type: ignore[attr-defined]  # annotated
        if size <= room:
            room -= size
            read += brought
            within.add(pair)
    read_outputs(read)
    issues = load_issues([*old.finals.values(), *new.finals.values()])
    counts = count_issues([old.run.pk, new.run.pk])
    steps = []
    for pair in pairs:
        rows = _find_rows(old, new, pair)
        own = tuple(issues.get(row.pk, []) if row is not None else [] for row in rows)
        step = _Step((old, new), pair, rows, own, has_room=pair in within)
        found = [counts.get((run.run.pk, index or 0), Counter()) for run, index in zip((old, new), pair, strict=True)]
        steps.append(step.compare(found, view))
    return tuple(steps)


def _find_rows(old: RunRows, new: RunRows, pair: StepPair) -> tuple[models.Attempt | None, models.Attempt | None]:
    return old.finals.get(pair[0] or 0), new.finals.get(pair[1] or 0)


def _has_output(row: models.Attempt | None) -> bool:
    return row is not None and bool(row.has_output)  # type: ignore[attr-defined]  # annotated


def _has_brought(row: models.Attempt | None) -> bool:
    return _has_output(row) or (row is not None and bool(row.has_raw_output))  # type: ignore[attr-defined]  # annotated


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of both runs, the older one first in every pair."""

    runs: tuple[RunRows, RunRows]
    pair: StepPair
    rows: tuple[models.Attempt | None, models.Attempt | None]
    issues: tuple[list[models.Issue], ...]
    has_room: bool

    def compare(self, counts: Sequence[Counter[str]], view: View) -> StepComparison:
        sides = [_view_side(run, index) for run, index in zip(self.runs, self.pair, strict=True) if index is not None]
        groups, left_out = self._group_issues()
        marks = [_make_marks(groups, run.run.pk) for run in self.runs]
        diff = None
        if self.has_room and all(map(_has_output, self.rows)):
            old, new = (row.output for row in self.rows if row is not None)
            diff = compare_outputs(old, new, marks[1])
        outputs = () if diff else self._show_outputs(marks, view)
        anchors = dict(diff.anchors or {}) if diff else {}
        for shown in outputs:
            anchors |= shown.output.anchors or {}
        groups = tuple(
            replace(group, issues=tuple(replace(one, anchor=anchors.get(one.id, "")) for one in group.issues))
            for group in groups
        )
        is_both = len(sides) == 2
        notes = []
        if is_both and sides[0].name != sides[1].name:
            notes.append(f"was “{sides[0].name}”")
        if is_both and sides[0].index != sides[1].index:
            notes.append(f"was step {sides[0].index}")
        shown_side = sides[-1]
        return StepComparison(
            id=f"{'ab'[self.pair[1] is not None]}{shown_side.index}",
            sides=tuple(sides),
            shown=shown_side,
            notes=tuple(notes),
            only_in="" if is_both else "old" if self.pair[1] is None else "new",
            diff=diff,
            sentence="" if diff else self._explain(),
            outputs=outputs,
            figures=self._list_figures(counts) if is_both else (),
            groups=groups,
            issues_sentence=self._explain_issues(groups, left_out),
        )

    def _show_outputs(self, marks: Sequence[Sequence[Mark]], view: View) -> tuple[ShownOutput, ...]:
        shown = []
        for place, (run, row) in enumerate(zip(self.runs, self.rows, strict=True)):
            value = row.output if row is not None and _has_output(row) else getattr(row, "unusable_output", None)
            if row is None or not self.has_room or value is None:
                continue
            prefix = f"{'ab'[place]}{row.step.index}"
            url = reverse("runs:attempt", args=[run.run.pk, row.step.index, row.number])
            first, second = (side.run.pk for side in self.runs)
            output = view_output(
                value,
                marks[place],
                view=view,
                prefix=prefix,
                address=f"?a={first}&b={second}&",
                fragment=f"#{prefix}",
                download_url=f"{url}?download",
            )
            what = "Output" if _has_output(row) else "Response that is not a usable output"
            shown.append(ShownOutput(f"{what}, #{run.run.pk}", output))
        return tuple(shown)

    def _list_figures(self, counts: Sequence[Counter[str]]) -> tuple[Figure, ...]:
        """The figures that differ."""
        attempts = [run.attempts.get(index or 0, ()) for run, index in zip(self.runs, self.pair, strict=True)]
        usages = [
            sum_usage(read_usage(row.usage) if hasattr(row, "usage") else UNREPORTED_USAGE for row in rows)
            for rows in ([row for row in own if row.outcome] for own in attempts)
        ]
        seconds = [_measure(own) for own in attempts]
        figures = [
            compare_counts("Attempts", len(attempts[0]), len(attempts[1])),
            compare_issues(counts[0], counts[1]),
            compare_durations(seconds[0], seconds[1]),
        ]
        if not all(run.is_local(index or 1) for run, index in zip(self.runs, self.pair, strict=True)):
            figures += compare_usage(usages[0], usages[1])
        figures = [one for one in figures if one.delta != "same" and (one.counts or one.old != one.new)]
        if all(attempts):
            return tuple(figures)
        # A step that only one of the runs reached is neither better nor worse in the other.
        return tuple(replace(figure, delta=NOTHING, tone="quiet") for figure in figures)

    def _group_issues(self) -> tuple[tuple[IssueGroup, ...], int]:
        """The most severe issues by what became of them, and how many more there are."""
        found = self._trace() if all(self.rows) and not (all(self.issues) and self._removed()) else None
        if found is None:
            found = [("all", place, issue) for place in (0, 1) for issue in self.issues[place]]
        ranks = list(SEVERITIES)
        found.sort(key=lambda one: (ranks.index(one[2].severity), -one[1], one[2].position))
        kept = found[:MAX_ISSUES]
        groups = []
        number = 0
        for kind, (title, badge) in _GROUPS.items():
            issues = []
            for place, issue in ((place, issue) for own, place, issue in kept if own == kind):
                number += 1
                issues.append(self._view_issue(place, issue, number))
            if issues:
                groups.append(IssueGroup(kind, title, badge, tuple(issues)))
        return tuple(groups), len(found) - len(kept)

    def _trace(self) -> list[tuple[str, int, models.Issue]] | None:
        """What became of each issue, with the place of the run that it is shown from; None if nothing was judged."""
        old, new = self.rows
        assert old is not None and new is not None
        judged = [judge_attempt(n + 1, row.outcome, self.issues[n]) for n, row in enumerate((old, new))]
        attempts = [one for one in judged if one is not None]
        if not attempts:
            return None
        moves = ItemMoves(old.output, new.output) if self.has_room and _has_output(old) and _has_output(new) else None
        found: list[tuple[str, int, models.Issue]] = []
        for track in trace_findings(attempts, lambda _old, _new: moves):
            last = track.last
            finding: Finding = last.finding
            if last.number == 2:
                is_unsure = judged[0] is None or last.unlisted_before is not None
                kind = "persisted" if len(track.sightings) == 2 else "all" if is_unsure else "new"
                found.append((kind, 1, finding.issue))
            else:
                found.append(("fixed" if last.fixed_by else "unchecked", 0, finding.issue))
        return found

    def _view_issue(self, place: int, issue: models.Issue, number: int) -> ComparedIssue:
        row, run = self.rows[place], self.runs[place].run
        assert row is not None
        index = row.step.index
        return ComparedIssue(
            id=f"{'ab'[place]}{index}-i{issue.position}",
            number=number,
            severity=SEVERITIES[issue.severity],
            title=name_issue(issue),
            code=show_invisible(issue.code),
            description=cut_text(issue.description),
            path="" if issue.path is None else issue.path,
            anchor="",
            run_id=run.pk,
            url=f"{reverse('runs:page', args=[run.pk])}{address_issue(index, row.number, issue.position)}",
        )

    def _removed(self) -> list[str]:
        return [f"#{side.run.pk}" for side in self.runs if side.run.outputs_removed_at]

    def _explain_issues(self, groups: Sequence[IssueGroup], left_out: int) -> str:
        if left_out:
            return f"{left_out} less severe issues are not listed."
        if groups and all(self.rows) and all(self.issues) and (removed := self._removed()):
            return f"Which issues are the same is not known: the texts of {' and '.join(removed)} were removed."
        return "" if groups or not any(self.rows) else "No issues in the last attempts."

    def _explain(self) -> str:
        """Why there is no difference of two outputs."""
        both = list(zip(self.rows, (side.run for side in self.runs), strict=True))
        brought = [(row, run) for row, run in both if row is not None and _has_brought(row)]
        usable = [run for row, run in brought if _has_output(row)]
        removed = [run for row, run in both if row is not None and run.outputs_removed_at]
        if removed:
            return f"Removed by the retention policy{f': the output of #{removed[0].pk}' if brought else ''}."
        if not brought:
            return "This step has no output to compare."
        if not self.has_room:
            sizes = " and ".join(filesizeformat(row.stored_bytes) for row, _ in brought)  # type: ignore[attr-defined]
            return f"Too large to show beside the steps above ({sizes}). Open the attempts instead."
        if len(usable) == 2:
            return "These outputs are too long to compare here. Open the attempts instead."
        if usable:
            return f"Only #{usable[0].pk} has {'a usable' if len(brought) == 2 else 'an'} output of this step."
        if len(brought) == 2:
            return "Neither run has a usable output of this step."
        return f"Only #{brought[0][1].pk} has a response in this step, and it is not a usable output."


def _measure(attempts: Sequence[models.Attempt]) -> float | None:
    """Seconds from the begin of the first attempt to the end of the last one."""
    begun = [row.started_at for row in attempts if row.started_at]
    ended = [row.ended_at for row in attempts if row.ended_at]
    return (max(ended) - min(begun)).total_seconds() if begun and ended else None


def _view_side(rows: RunRows, index: int) -> StepSide:
    attempts = rows.attempts.get(index, ())
    final = rows.finals.get(index)
    is_running = bool(attempts) and not attempts[-1].outcome and not rows.run.has_ended
    state = "running" if is_running else final.outcome if final is not None else "waiting"
    url = f"{reverse('runs:page', args=[rows.run.pk])}{address_attempt(index, final.number)}" if final else ""
    title = f"#{rows.run.pk}" + (f", attempt {final.number}" if final else "")
    return StepSide(rows.run.pk, index, rows.name_step(index), STATES[state], title, url)


def _make_marks(groups: Sequence[IssueGroup], run_id: int) -> list[Mark]:
    return [
        Mark(
            issue.severity.word.lower(), issue.title, issue.id, issue.path or None, issue.number, str(issue.description)
        )
        for group in groups
        for issue in group.issues
        if issue.run_id == run_id
    ]
