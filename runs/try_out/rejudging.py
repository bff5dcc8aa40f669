"""Past attempts judged again by a step as it is now: the outcome of each then, and now.

Their outputs are those of then: no model is asked, and nothing is stored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q
from django.db.models.functions import Length

from flows.engine.audits import build_type_audit
from flows.engine.evaluation import step_variables
from flows.engine.history import (
    CLEANED_OUTPUT,
    COUNTED,
    UNDECIDED,
    Attempt,
    History,
    Issue,
    Outcome,
    initial_attempt,
    subtract_issues,
)
from flows.engine.json_values import dump_json
from flows.engine.judging import Judgement, is_judged_in_python, judge_output
from flows.engine.judging_process import Case, JudgedCases, judge_in_process
from flows.engine.plugins import Registry
from flows.engine.redaction import find_marks
from flows.engine.spec import FlowSpec, StepSpec
from flows.engine.typed_output import build_type
from flows.models import FlowVersion
from runs import models
from runs.models import Run, RunStatus
from runs.stored_history import build_engine_issue
from runs.try_out.trial import MAX_TRY_SECONDS, begin_time_budget, find_audited_output

MAX_ATTEMPTS = 20
MAX_RUNS = 100
"""The latest runs of a flow, among which the attempts are searched for."""
MAX_LENGTH = 500_000
"""Characters of an output that is judged again."""
REMOVED, REDACTED, TOO_LARGE = "removed", "redacted", "too_large"
"""Why an attempt can't be judged again."""


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that ended with an output, and what it was judged on."""

    run: int
    version: int
    """The number of the run's version."""
    step: int
    """The step's index in its run."""
    number: int
    outcome: Outcome
    issues: tuple[Issue, ...]
    case: Case


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a past attempt, and what it would be now."""

    past: PastAttempt
    now: Judgement

    @property
    def would_change(self) -> bool:
        """Whether it would end otherwise."""
        return self.past.outcome is not self.now.outcome

    @property
    def appeared(self) -> list[Issue]:
        """The issues that it has only now."""
        return subtract_issues(self.now.issues, self.past.issues)

    @property
    def gone(self) -> list[Issue]:
        """The issues that it had only then."""
        return subtract_issues(self.past.issues, self.now.issues)

    def list_blocking(self, step: StepSpec) -> list[Issue]:
        """The issues because of which the output would not pass now; empty if it would."""
        if self.now.outcome is Outcome.PASSED:
            return []
        if self.now.outcome is Outcome.INVALID or step.pass_expression is not None:
            return list(self.now.issues)
        audits = [*step.audits, *([build_type_audit(step.output_type)] if step.output_type else [])]
        blocking = {
            audit.name
            for audit in audits
            if not audit.is_passed_with(issue for issue in self.now.issues if issue.audit == audit.name)
        }
        return [issue for issue in self.now.issues if issue.audit in blocking]


# ---------------------------------------------------------------------------------------------------------------
# From attempts to verdicts


def judge_again(
    step: StepSpec, attempts: Sequence[PastAttempt], registry: Registry, *, in_python: bool = False
) -> tuple[list[Verdict], str]:
    """Judge past attempts by ``step``, whose schema is frozen, in a process of its own.

    Gives the verdicts, the newest attempt first, and why there are none of the last attempts, in a sentence.
    A step that plug-ins judge (``is_judged_in_python``) needs ``in_python``: it is judged in this process, within
    ``MAX_TRY_SECONDS``. Raises ``BusyError`` if the other processes are all taken.
    """
    cases = [attempt.case for attempt in attempts]
    if in_python:
        judged = asyncio.run(_judge_here(step, cases, registry))
    elif is_judged_in_python(step, registry):
        return [], "It is judged in Python."
    else:
        # The process knows no types: what they refuse beyond their schema is found here.
        judged = judge_in_process(step.model_copy(update={"output_type": None}), cases)
        known = registry.find_type(step.output_type)
        if known is not None:
            typed = tuple(_hold_against_type(known.model, judgement) for judgement in judged.judgements)
            judged = JudgedCases(typed, judged.obstacle)
    return [Verdict(past, now) for past, now in zip(attempts, judged.judgements, strict=False)], judged.obstacle


async def _judge_here(step: StepSpec, cases: Iterable[Case], registry: Registry) -> JudgedCases:
    budget = begin_time_budget()
    judgements: list[Judgement] = []
    for case in cases:
        judgement = await judge_output(step, case.output, case.variables, registry, budget)
        if budget.expired or (budget.remaining or 0) <= 0:
            return JudgedCases(tuple(judgements), f"Judging was stopped: it took longer than {MAX_TRY_SECONDS} s.")
        judgements.append(judgement)
    return JudgedCases(tuple(judgements))


def _hold_against_type(model: Any, judgement: Judgement) -> Judgement:
    if judgement.outcome is Outcome.INVALID or judgement.output is None:
        return judgement
    _, issues = build_type(model, judgement.output)
    if not issues:
        return judgement
    notes = [issue for issue in judgement.issues if issue.code == CLEANED_OUTPUT and not issue.audit]
    return replace(judgement, outcome=Outcome.INVALID, issues=(*notes, *issues))


# ---------------------------------------------------------------------------------------------------------------
# From rows to attempts


def match_steps(stored: Mapping[str, int], names: Sequence[str]) -> list[int]:
    """The index that each of the named steps has in a run, 0 where the run did not reach it.

    ``stored`` are the indexes of the run's steps by name. A step that was renamed is found by its position.
    """
    renamed = {index for name, index in stored.items() if name not in names}
    return [stored.get(name, position if position in renamed else 0) for position, name in enumerate(names, start=1)]


def load_past_attempts(
    flow_id: int, spec: FlowSpec, index: int, *, most: int = MAX_ATTEMPTS
) -> tuple[list[PastAttempt], Counter[str]]:
    """The latest attempts of step ``index``, from 1, that ended with an output; and how many of them were left out.

    They are of runs of any version, found by the step's name, else by its number; the newest run and in it the last
    attempt come first. ``REMOVED``, ``REDACTED`` and ``TOO_LARGE`` say why some of the latest are left out.
    """
    return _Loading(flow_id, spec, index).load(most)


class _Loading:
    def __init__(self, flow_id: int, spec: FlowSpec, index: int) -> None:
        self.spec = spec
        self.index = index
        latest = Run.objects.filter(flow=flow_id).exclude(status=RunStatus.QUEUED).order_by("-created_at", "-pk")
        columns = ("pk", "version", "outputs_removed_at", "is_input_redacted")
        self.runs = {row[0]: row[1:] for row in latest.values_list(*columns)[:MAX_RUNS]}
        # What rules do not name is not loaded: inputs and earlier outputs may be long.
        judging = {"audits", "output_sanitizer", "pass_expression", "failure_reason_expression"}
        text = dump_json(spec.step(index).model_dump(mode="json", include=judging))
        self.reads_input, self.reads_steps = "input" in text, "steps" in text

    def load(self, most: int) -> tuple[list[PastAttempt], Counter[str]]:
        places = self.match_runs()
        left_out: Counter[str] = Counter()
        chosen: dict[int, int] = {}
        for key, run, length in self.list_latest(places, most):
            if self.runs[run][1] is not None:
                left_out[REMOVED] += 1
            elif length > MAX_LENGTH:
                left_out[TOO_LARGE] += 1
            else:
                chosen[key] = run
        finals = self.fetch_finals(places, set(chosen.values())) if self.reads_steps else {}
        rows = models.Attempt.objects.filter(pk__in=[*chosen, *finals.values()]).select_related("step")
        fields = ("number", "outcome", "output", "raw_output", "step__index")
        attempts = {row.pk: row for row in rows.only(*fields).prefetch_related("issues")}
        runs = Run.objects.filter(pk__in=set(chosen.values()))
        inputs = dict(runs.values_list("pk", "input")) if self.reads_input or self.reads_steps else {}
        keys = {self.runs[run][0] for run in chosen.values()}
        versions = {one.pk: one for one in FlowVersion.objects.filter(pk__in=keys).only("number", "spec")}
        found = []
        for key, run in chosen.items():
            before = [attempts.get(finals.get((run, place), 0)) for place in places[run][: self.index - 1]]
            variables = self.build_variables(inputs.get(run), before)
            version, is_input_redacted = versions[self.runs[run][0]], self.runs[run][2] and bool(variables)
            past = _read_past(attempts[key], run, version.number, variables)
            if past is None:
                continue
            rules = version.spec.get("redact", ())
            if is_input_redacted or (rules and find_marks([past.case.output, past.case.variables])):
                left_out[REDACTED] += 1
            else:
                found.append(past)
        return found, left_out

    def match_runs(self) -> dict[int, list[int]]:
        """For each run where the steps of the spec are in it."""
        stored: dict[int, dict[str, int]] = {run: {} for run in self.runs}
        for run, name, index in models.Step.objects.filter(run__in=self.runs).values_list("run", "name", "index"):
            stored[run][name] = index
        names = [step.name[:100] for step in self.spec.steps]
        return {run: match_steps(steps, names) for run, steps in stored.items()}

    def list_latest(self, places: Mapping[int, Sequence[int]], most: int) -> list[tuple[int, int, int]]:
        """Key, run and length of the latest attempts of the step that had an output."""
        by_index: dict[int, list[int]] = {}
        for run, indexes in places.items():
            if own := indexes[self.index - 1]:
                by_index.setdefault(own, []).append(run)
        of_step = Q()
        for index, runs in by_index.items():
            of_step |= Q(step__index=index, step__run__in=runs)
        if not of_step:
            return []
        had_output = Q(output__isnull=False) | Q(step__run__outputs_removed_at__isnull=False)
        rows = models.Attempt.objects.filter(of_step, had_output, outcome__in=list(COUNTED))
        latest = rows.order_by("-step__run__created_at", "-step__run", "-number")
        found = latest.annotate(length=Length("output")).values_list("pk", "step__run", "length")[:most]
        return [(key, run, length or 0) for key, run, length in found]

    def fetch_finals(self, places: Mapping[int, Sequence[int]], runs: set[int]) -> dict[tuple[int, int], int]:
        """The attempt that decided about each earlier step, by run and the step's index in it."""
        wanted = {(run, place) for run in runs for place in places[run][: self.index - 1] if place}
        rows = models.Attempt.objects.filter(step__run__in=runs, step__index__in={place for _, place in wanted})
        decided = rows.exclude(outcome__in=["", *UNDECIDED]).order_by("is_accepted", "number")
        found = {(run, place): key for run, place, key in decided.values_list("step__run", "step__index", "pk")}
        return {place: key for place, key in found.items() if place in wanted}

    def build_variables(self, input: Any, before: Sequence[models.Attempt | None]) -> dict[str, Any]:
        """What the rules may read of the run, as far as they name it."""
        if not self.reads_steps:
            return {"input": input} if self.reads_input else {}
        steps = [
            (_read_attempt(row, position),) if row is not None else () for position, row in enumerate(before, start=1)
        ]
        history = History("past", ((initial_attempt(input),), *steps))
        return step_variables(self.spec, history, self.index)


def _read_attempt(row: models.Attempt, position: int) -> Attempt:
    """What later steps see of an attempt."""
    issues = tuple(map(build_engine_issue, row.issues.all()))
    return Attempt(step=position, number=row.number, outcome=Outcome(row.outcome), output=row.output, issues=issues)


def _read_past(row: models.Attempt, run: int, version: int, variables: dict[str, Any]) -> PastAttempt | None:
    """None where what came back was no object."""
    attempt = _read_attempt(row, row.step.index)
    came = find_audited_output(attempt.model_copy(update={"raw_output": row.raw_output}))
    if came is None:
        return None
    return PastAttempt(
        run=run,
        version=version,
        step=row.step.index,
        number=row.number,
        outcome=attempt.outcome,
        issues=attempt.issues,
        case=Case(came, variables),
    )
