"""The steps of two runs side by side, their outputs, issues and figures; the older run comes first in pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.urls import reverse

from flows.engine.differences import pair_steps
from flows.engine.history import UNDECIDED, TokenUsage, sum_usage
from flows.engine.spec import FlowSpec
from runs import models
from runs.formatting import NOTHING, format_cost, format_count, format_duration
from runs.history.issues import address_issue, name_issue
from runs.history.json_lines import Mark
from runs.history.matching import judge_attempt, trace_findings
from runs.history.output_diff import compare_outputs
from runs.history.output_view import View, view_output
from runs.history.pairing import ItemMoves
from runs.models import Run
from runs.pages.attempts import list_attempt_rows, load_outputs, view_issue
from runs.pages.badges import LIFECYCLE, SEVERITIES, STATES, Badge, IssueCounts, list_counts
from runs.pages.outline import view_usage

MAX_BYTES = 600_000
"""Bytes of stored outputs that one page compares; further steps are left to the pages of their attempts."""
MAX_ISSUES = 50
"""Issues of one step that are listed."""

_KINDS = ("new", "persisted", "fixed", "unchecked", "all")
"""What became of an issue, in the order of the page; ``all`` where that is not known."""


@dataclass(frozen=True, slots=True)
class Side:
    """A step in one of the runs, by the attempt that counts."""

    run: Run
    letter: str
    """``a`` for the older run, ``b`` for the newer one."""
    id: str
    index: int
    name: str
    is_local: bool
    attempts: Sequence[models.Attempt]
    row: Any
    """The attempt, annotated; None if there is none."""
    badge: Badge
    url: str
    has_output: bool
    has_brought: bool
    """Whether anything came back, be it usable or not."""


def compare_steps(runs: Sequence[Run], specs: Sequence[FlowSpec | None], view: View) -> list[dict[str, Any]]:
    """All steps of both runs. Costs six queries, and reads no more outputs than ``MAX_BYTES``."""
    sides = [_load_sides(run, letter, spec) for run, letter, spec in zip(runs, "ab", specs, strict=True)]
    pairs = [(sides[0].get(old or 0), sides[1].get(new or 0)) for old, new in _pair_steps(runs[0], runs[1], *specs)]
    remaining, read, within = MAX_BYTES, [], []
    for pair in pairs:
        brought = [side.row for side in pair if side and side.has_brought]
        size = sum(row.stored_bytes for row in brought)
        within.append(size <= remaining)
        if within[-1]:
            remaining -= size
            read += brought
    load_outputs(read)
    rows = [side.row for own in sides for side in own.values() if side.row]
    issues: dict[int, list[models.Issue]] = {}
    listed = models.Issue.objects.filter(attempt__in=[row.pk for row in rows]).defer("context", "added_fields")
    for issue in listed.order_by("attempt_id", "position"):
        issues.setdefault(issue.attempt_id, []).append(issue)
    counts: dict[tuple[int, int], Counter[str]] = {}
    every = models.Issue.objects.filter(attempt__step__run__in=[run.pk for run in runs]).order_by()
    keys = every.values_list("attempt__step__run_id", "attempt__step__index", "severity")
    for run_id, index, severity, count in keys.annotate(count=Count("pk")):
        counts.setdefault((run_id, index), Counter())[severity] = count
    return [
        _compare_step(runs, *pair, issues, counts, view, has_room) for pair, has_room in zip(pairs, within, strict=True)
    ]


def _load_sides(run: Run, letter: str, spec: FlowSpec | None) -> dict[int, Side]:
    """The steps of a run by their numbers, with their attempts without outputs."""
    attempts: dict[int, list[models.Attempt]] = {}
    for row in list_attempt_rows(run.pk):
        attempts.setdefault(row.step.index, []).append(row)
    sides = {}
    for index in range(1, run.step_count + 1):
        own, step = attempts.get(index, []), spec.step(index) if spec else None
        name = step.name if step else own[0].step.name if own else "Not begun"
        ended = [row for row in own if row.outcome]
        accepted = [row for row in ended if row.is_accepted]
        decided = accepted or [row for row in ended if row.outcome not in UNDECIDED] or ended
        counted: Any = decided[-1] if decided else None
        is_running = bool(own) and not own[-1].outcome and not run.has_ended
        state = "running" if is_running else "accepted" if accepted else counted.outcome if counted else "waiting"
        sides[index] = Side(
            run=run,
            letter=letter,
            id=f"{letter}{index}",
            index=index,
            name=name,
            is_local=step is not None and step.is_local,
            attempts=own,
            row=counted,
            badge=STATES[state],
            url=reverse("runs:attempt", args=[run.pk, index, counted.number]) if counted else "",
            has_output=counted is not None and counted.has_output,
            has_brought=counted is not None and (counted.has_output or counted.has_raw_output),
        )
    return sides


def _pair_steps(
    old: Run, new: Run, old_spec: FlowSpec | None, new_spec: FlowSpec | None
) -> Iterator[tuple[int | None, int | None]]:
    """The numbers of each step in both runs, in the order of the new one; steps that it lacks keep their place."""
    old_indices, new_indices = (range(1, run.step_count + 1) for run in (old, new))
    if old_spec is not None and new_spec is not None:
        partners = {before + 1: after + 1 for before, after in pair_steps(old_spec.steps, new_spec.steps).items()}
    else:
        partners = {index: index for index in old_indices if index in new_indices}
    origins = {after: before for before, after in partners.items()}
    gone: dict[int, list[int]] = {}
    behind = 0
    for index in old_indices:
        behind = partners.get(index, behind)
        if index not in partners:
            gone.setdefault(behind, []).append(index)
    for after in (0, *new_indices):
        if after:
            yield origins.get(after), after
        yield from ((before, None) for before in gone.get(after, ()))


def _compare_step(
    runs: Sequence[Run],
    old: Side | None,
    new: Side | None,
    issues: Mapping[int, list[models.Issue]],
    counts: Mapping[tuple[int, int], Counter[str]],
    view: View,
    has_room: bool,
) -> dict[str, Any]:
    """One step in both runs, or in one of them if only its version has it.

    Without a ``diff`` a ``sentence`` says why, and ``outputs`` are what can be shown of each run. ``notes`` say what
    the step was called, and where it was, in the older run.
    """
    there = [side for side in (old, new) if side]
    own = [issues.get(side.row.pk, []) if side and side.row else [] for side in (old, new)]
    removed = " and ".join(f"#{run.pk}" for run in runs if run.outputs_removed_at)
    is_known = old and new and old.row and new.row and not (own[0] and own[1] and removed)
    found = _trace(old, new, own, has_room) if is_known and old and new else None
    if found is None:
        found = [("all", side, issue) for side in there if side.row for issue in issues.get(side.row.pk, [])]
    ranks = list(SEVERITIES)
    found.sort(key=lambda one: (ranks.index(one[2].severity), one[1] is old, one[2].position))
    left_out = len(found) - MAX_ISSUES
    listed = sorted(found[:MAX_ISSUES], key=lambda one: _KINDS.index(one[0]))
    marks: dict[str, list[Mark]] = {"a": [], "b": []}
    for number, (_, side, issue) in enumerate(listed, start=1):
        id = f"{side.id}-i{issue.position}"
        marks[side.letter].append(Mark(issue.severity, name_issue(issue), id, issue.path, number, issue.description))
    diff = None
    if has_room and old and new and old.has_output and new.has_output:
        diff = compare_outputs(old.row.output, new.row.output, marks["b"])
    outputs = (
        [] if diff or not has_room else [_show_output(runs, side, marks, view) for side in there if side.has_brought]
    )
    anchors: dict[str, str] = {}
    for shown in (diff, *(output for _, output in outputs)):
        anchors |= shown["anchors"] if shown else {}
    groups = _group_issues(listed, anchors)
    issues_sentence = "" if groups or not any(side.row for side in there) else "No issues in the last attempts."
    if left_out > 0:
        issues_sentence = f"{left_out} less severe issues are not listed."
    elif own[0] and own[1] and removed:
        issues_sentence = f"Which issues are the same is not known: the texts of {removed} were removed."
    notes = []
    if old and new:
        notes += [f"was “{old.name}”"] if old.name != new.name else []
        notes += [f"was step {old.index}"] if old.index != new.index else []
    return {
        "id": there[-1].id,
        "sides": there,
        "shown": there[-1],
        "notes": notes,
        "only_in": "" if old and new else "new" if new else "old",
        "diff": diff,
        "sentence": "" if diff else _explain(there, has_room),
        "outputs": outputs,
        "figures": list(_list_step_figures(old, new, counts)) if old and new else (),
        "groups": groups,
        "issues_sentence": issues_sentence,
    }


def _show_output(
    runs: Sequence[Run], side: Side, marks: Mapping[str, Sequence[Mark]], view: View
) -> tuple[str, dict[str, Any]]:
    """What the last attempt of a step brought, where that can't be compared."""
    output = view_output(
        side.row.output if side.has_output else side.row.unusable_output,
        marks[side.letter],
        view=view,
        prefix=side.id,
        address=f"?a={runs[0].pk}&b={runs[1].pk}&",
        fragment=f"#{side.id}",
        download_url=f"{side.url}?download",
    )
    return f"{'Output' if side.has_output else 'Response that is not a usable output'}, #{side.run.pk}", output


def _explain(sides: Sequence[Side], has_room: bool) -> str:
    """Why there is no difference of two outputs."""
    usable = [side for side in sides if side.has_output]
    removed = [side for side in sides if side.row and side.run.outputs_removed_at]
    if removed:
        names = " and ".join(f"#{side.run.pk}" for side in removed)
        return f"Removed by the retention policy: the output of {names}."
    if not has_room:
        return "Too large to show beside the steps above. Open the attempts instead."
    if len(usable) == 2:
        return "These outputs are too long to compare here. Open the attempts instead."
    begin = f"Only #{usable[0].run.pk} has a" if usable else "There is no"
    return f"{begin} usable output of this step."


# Issues


def _trace(
    old: Side, new: Side, issues: Sequence[list[models.Issue]], has_room: bool
) -> list[tuple[str, Side, models.Issue]] | None:
    """What became of each issue, with the side that it is shown from; None if nothing was judged."""
    judged = [judge_attempt(place + 1, side.row.outcome, issues[place]) for place, side in enumerate((old, new))]
    attempts = [one for one in judged if one is not None]
    if not attempts:
        return None
    is_readable = has_room and old.has_output and new.has_output
    moves = ItemMoves(old.row.output, new.row.output) if is_readable else None
    found = []
    for track in trace_findings(attempts, lambda _old, _new: moves):
        last = track.last
        if last.number == 2:
            kind = "persisted" if len(track.sightings) == 2 else "all" if judged[0] is None else "new"
        else:
            kind = "fixed" if last.fixed_by else "unchecked"
        found.append((kind, (old, new)[last.number - 1], last.finding.issue))
    return found


def _group_issues(
    listed: Sequence[tuple[str, Side, models.Issue]], anchors: Mapping[str, str]
) -> list[tuple[str, Badge, list[dict[str, Any]]]]:
    """Issues by what became of them: its name, its badge, and the issues."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for number, (kind, side, issue) in enumerate(listed, start=1):
        run_url = reverse("runs:page", args=[side.run.pk])
        groups.setdefault(kind, []).append(
            {
                **view_issue(issue, f"{side.id}-i{issue.position}", number, anchors),
                "run_id": side.run.pk,
                "url": f"{run_url}{address_issue(side.index, side.row.number, issue.position)}",
            }
        )
    return [(kind, LIFECYCLE[kind], issues) for kind, issues in groups.items()]


# Figures


def _list_step_figures(
    old: Side, new: Side, counts: Mapping[tuple[int, int], Counter[str]]
) -> Iterator[dict[str, Any]]:
    """The figures that differ."""
    sides = (old, new)
    seconds, usages = [], []
    for side in sides:
        begun = [row.started_at for row in side.attempts if row.started_at]
        ended = [row.ended_at for row in side.attempts if row.ended_at]
        seconds.append((max(ended) - min(begun)).total_seconds() if begun and ended else None)
        usages.append(sum_usage(usage for row in side.attempts if (usage := view_usage(row))))
    figures = compare_figures(
        [len(side.attempts) for side in sides],
        [list_counts(counts.get((side.run.pk, side.index), {})) for side in sides],
        seconds,
        () if old.is_local and new.is_local else usages,
    )
    for figure in figures:
        if figure["delta"] != "same" and ("counts" in figure or figure["old"] != figure["new"]):
            # A step that only one of the runs reached is neither better nor worse in the other.
            is_comparable = bool(old.attempts and new.attempts)
            yield figure if is_comparable else {**figure, "delta": NOTHING, "tone": "quiet"}


def compare_figures(
    attempts: Sequence[int],
    issues: Sequence[IssueCounts],
    seconds: Sequence[float | None],
    usages: Sequence[TokenUsage],
) -> Iterator[dict[str, Any]]:
    """Figures of two runs or steps, the older one first in each pair; none of tokens and costs without ``usages``."""
    yield compare_amounts("Attempts", attempts)
    sums = [sum(count for _, count in counts) for counts in issues]
    yield {**compare_amounts("Issues of all attempts", sums), "counts": issues}
    # Less than a millisecond is not a difference.
    lengths = [None if length is None else round(length, 3) for length in seconds]
    yield compare_amounts("Duration", lengths, format_duration)
    if usages:
        yield compare_amounts("Tokens in", [usage.prompt for usage in usages])
        yield compare_amounts("Tokens out", [usage.completion for usage in usages])
        # The difference of costs that are lower bounds is not known.
        is_partial = any(usage.unpriced for usage in usages)
        costs = compare_amounts("Cost", [None if is_partial else usage.cost for usage in usages], format_cost)
        yield costs | dict(zip(("old", "new"), (format_cost(one.cost, one.unpriced) for one in usages), strict=True))


def compare_amounts(
    name: str, amounts: Sequence[Any], write: Callable[[Any], str] = format_count, *, is_more_better: bool = False
) -> dict[str, Any]:
    """A figure of both. ``delta`` is the new one less the old one, and ``tone`` says whether that is good."""
    old, new = amounts
    delta, tone = NOTHING, "quiet"
    if old is not None and new is not None:
        sign = "+" if new > old else "\N{MINUS SIGN}"
        delta = "same" if old == new else f"{sign}{write(abs(new - old))}"
        tone = "quiet" if old == new else "passed" if (new > old) is is_more_better else "failed"
    return {"name": name, "old": write(old), "new": write(new), "delta": delta, "tone": tone}
