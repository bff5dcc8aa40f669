"""What another definition of a flow would have decided over stored runs, at zero tokens.

Each run is first judged again by its own definition: what does not come out as stored is left out and counted. Then the
candidate decides attempt by attempt over the same outputs, until it ends or history can't answer any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from flows.engine.backtest_result import (
    AuditChange,
    BacktestKind,
    BacktestReason,
    BacktestResult,
    RunBacktest,
    add_audits,
)
from flows.engine.differences import pair_steps
from flows.engine.errors import ExpressionError, Problem
from flows.engine.evaluation import prepare_input, step_variables
from flows.engine.history import (
    CLEANED_OUTPUT,
    COUNTED,
    Attempt,
    History,
    Issue,
    Outcome,
    subtract_issues,
    sum_usage,
)
from flows.engine.json_values import dump_json, format_pointer
from flows.engine.judging import compute_output, judge_output
from flows.engine.planner import Action, Call, Compute, EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import PREFIX, Registry
from flows.engine.plugins import registry as default_registry
from flows.engine.prompt import build_own_message, build_sections, render_issue, select_attempts
from flows.engine.redaction import Redactor
from flows.engine.result import FoundIssue
from flows.engine.settling import find_accepted, find_called_step, find_deciding
from flows.engine.spec import FlowSpec, StepSpec

PastRun = tuple[FlowSpec, History]
"""A stored run: the executable spec that it ran under, with its own limits, and its history."""

_BATCH_SIZE = 100
"""Runs that are added up at once."""
_MODEL_FIELDS = ("model", "temperature", "max_tokens", "reasoning_effort", "service_tier")
_PROMPT_FIELDS = ("system_message", "description", "include_results", "issue_severity_filter")
_INPUT_FIELDS = ("input_expression", "input_sanitizer")
_JUDGED_FIELDS = (
    *("name", "compute", "output_sanitizer", "output_schema", "output_type"),
    *("pass_expression", "failure_reason_expression", "audits", *_INPUT_FIELDS),
)

_STEP_EXPRESSIONS = (
    *("compute", "input_expression", "input_sanitizer", "output_sanitizer"),
    *("pass_expression", "failure_reason_expression"),
)
_AUDIT_EXPRESSIONS = ("rule", "for_each", "message", "suggestions", "path")
"""What may name a plug-in."""

_OUTPUT_FIELDS = ("name", "compute", "output_sanitizer", "output_schema", "output_type")
"""What decides about the output that audits are asked of."""

_SENTENCES = {
    BacktestReason.INPUT_DIFFERS: "From step {step} on the model would have been given something else.",
    BacktestReason.NOT_REACHED: "The run would go on to step {step}, which it did not reach.",
    BacktestReason.NEW_STEP: "Step {step} would ask a model for what this run never asked.",
    BacktestReason.OTHER_MODEL: "The next try of step {step} would have asked another model.",
    BacktestReason.IMPURE_PLUGIN: "A plug-in of step {step} is registered as not pure, so it is not called again.",
    BacktestReason.MISSING_PLUGIN: "Attempt {number} of step {step} was judged by a plug-in that is not there now.",
    BacktestReason.PLUGIN_CHANGED: "Attempt {number} of step {step} comes out otherwise: a plug-in has changed.",
    BacktestReason.REDACTED: "Attempt {number} of step {step} comes out otherwise: parts of the run were redacted.",
    BacktestReason.DIFFERS: "Attempt {number} of step {step} comes out otherwise under the run's own definition.",
    BacktestReason.OUTPUTS_REMOVED: "The outputs of this run were removed.",
}


async def backtest_run(
    spec: FlowSpec,
    candidate: FlowSpec,
    history: History,
    *,
    registry: Registry = default_registry,
    is_removed: bool = False,
) -> RunBacktest:
    """What ``candidate`` would have made of a run under ``spec`` with that ``history``.

    Both specs are prepared (``prepare_spec``) and have the limits that hold for the run (``with_limits``). What the
    candidate asks of a model otherwise is not taken into account: see ``find_untestable``. ``is_removed`` says that
    outputs were removed from the history. Never raises for what a rule or a plug-in does.
    """
    past = _Past(spec, history, registry)
    return (await past.find_obstacle(is_removed=is_removed)) or await _Walk(past, candidate).walk()


async def backtest_runs(
    candidate: FlowSpec, runs: Iterable[PastRun], *, registry: Registry = default_registry
) -> BacktestResult:
    """The totals of ``backtest_run`` over many runs, which are taken one by one."""
    result, batch = BacktestResult(), []
    for spec, history in runs:
        batch.append(await backtest_run(spec, candidate, history, registry=registry))
        if len(batch) == _BATCH_SIZE:
            result, batch = result + BacktestResult.of(batch), []
    return result + BacktestResult.of(batch)


def backtest_runs_sync(candidate: FlowSpec, runs: Iterable[PastRun], **options: Any) -> BacktestResult:
    """``backtest_runs`` for scripts without an event loop; takes the same options."""
    return asyncio.run(backtest_runs(candidate, runs, **options))


async def leave_one_out(
    spec: FlowSpec, runs: Iterable[PastRun], *, registry: Registry = default_registry
) -> dict[tuple[int, str], BacktestResult]:
    """What each audit of ``spec`` does, by step and name: a backtest without it. The figures don't add up.

    ``spec`` is prepared. The runs may be those of other versions, too.
    """
    candidates = dict(_leave_each_out(spec))
    results = dict.fromkeys(candidates, BacktestResult())
    for own, history in runs:
        past = _Past(own, history, registry)
        obstacle = await past.find_obstacle()
        for key, candidate in candidates.items():
            found = obstacle
            if found is None and own == spec and not past.has_fired(*key):
                found = RunBacktest(BacktestKind.SAME, ended=past.end, ends=past.end)
            results[key] += BacktestResult.of([found or await _Walk(past, candidate).walk()])
    return results


def _leave_each_out(spec: FlowSpec) -> Iterator[tuple[tuple[int, str], FlowSpec]]:
    for index, step in enumerate(spec.steps):
        for audit in step.audits:
            rest = tuple(other for other in step.audits if other is not audit)
            steps = list(spec.steps)
            steps[index] = step.model_copy(update={"audits": rest})
            yield (index + 1, audit.name), spec.model_copy(update={"steps": tuple(steps)})


def find_untestable(spec: FlowSpec, candidate: FlowSpec) -> list[Problem]:
    """What history can't say anything about, by JSON pointers into the candidate: changed prompts, models and inputs.

    Only a trial can: another question brings another answer. Where an input expression comes out the same for a run,
    the run is not affected.
    """
    found = [
        Problem(f"/{field}", "Runs that are over can't tell what this changes.")
        for field in ("input_schema", "redact", "time_limit")
        if getattr(spec, field) != getattr(candidate, field)
    ]
    origins = {after: before for before, after in pair_steps(spec.steps, candidate.steps).items()}
    for index, step in enumerate(candidate.steps):
        if step.is_local:
            continue
        old = spec.steps[origins[index]] if index in origins else None
        if old is None or old.is_local:
            message = "This step asks a model for what the runs never asked."
            found.append(Problem(format_pointer(("steps", index)), message))
            continue
        message = "Another question brings another answer; only a trial can tell what this changes."
        for field in (*_PROMPT_FIELDS, *_INPUT_FIELDS, "tool_name", "time_limit", "last_model", *_MODEL_FIELDS):
            if _find_setting(spec, old, field) != _find_setting(candidate, step, field):
                is_own = field not in _MODEL_FIELDS or getattr(old, field) != getattr(step, field)
                pointer = format_pointer(("steps", index, field)) if is_own else f"/{field}"
                found.append(Problem(pointer, message))
    return list(dict.fromkeys(found))


def _find_setting(spec: FlowSpec, step: StepSpec, field: str) -> Any:
    own = getattr(step, field)
    return getattr(spec, field) if own is None and field in _MODEL_FIELDS else own


# ---------------------------------------------------------------------------------------------------------------
# The run as it was


class _Past:
    """A stored run, and whether it comes out as stored."""

    def __init__(self, spec: FlowSpec, history: History, registry: Registry) -> None:
        self.spec = spec
        self.history = history
        self.registry = registry
        action = _skip_wait(next_action(spec, history))
        self.end = action.status if isinstance(action, Finish) else None
        """How it ended; None if that came from outside: it was cancelled, out of time, without an input."""
        keys: list[Any] = [(attempt.step, attempt.number) for attempt in history]
        self.wanted = self.end or (action.step, action.number)  # type: ignore[union-attr]  # no end: an attempt
        """What its own definition wants behind the last attempt: to end so, or another attempt."""
        self.following = dict(pairwise([*keys, self.wanted]))
        self.found: dict[tuple[int, int], Mapping[str, Sequence[Issue]]] = {}
        """The issues that each audit raised in an attempt when it was judged again."""
        self._redactor = Redactor.of(spec.redact, history.initial_input)

    async def find_obstacle(self, *, is_removed: bool = False) -> RunBacktest | None:
        """Why nothing can be said of the run, if so."""
        attempts = list(self.history)[1:]
        if is_removed or any(one.output is None and one.outcome in _WITH_OUTPUT for one in attempts):
            return _end_without_answer(BacktestKind.REMOVED, BacktestReason.OUTPUTS_REMOVED)
        for index in range(1, len(self.history.steps)):
            if has_impure_plugin(self.spec.step(index), self.registry):
                return _end_without_answer(BacktestKind.NOT_REPRODUCIBLE, BacktestReason.IMPURE_PLUGIN, index)
        before = History(self.history.run_id, self.history.steps[:1])
        for stored in attempts:
            reason = await self._find_difference(before, stored)
            if reason is not None:
                return _end_without_answer(BacktestKind.NOT_REPRODUCIBLE, reason, stored.step, stored.number)
            before = before.append(stored)
        return None

    def has_fired(self, step: int, audit: str) -> bool:
        """Whether an audit raised an issue when the run was judged again."""
        return any(found.get(audit) for (index, _), found in self.found.items() if index == step)

    async def _find_difference(self, before: History, stored: Attempt) -> BacktestReason | None:
        action = _skip_wait(next_action(self.spec, before))
        is_next = not isinstance(action, Finish) and (action.step, action.number) == (stored.step, stored.number)
        again = None
        if is_next:
            with suppress(ExpressionError):
                again, found = await self.judge(self.spec, before, stored.step, stored)
                self.found[stored.step, stored.number] = found
            if again is not None and _verdict(again) == _verdict(stored):
                return None
        used = again.plugins if again is not None else {}
        for name, mark in stored.plugins.items():
            marks = {used[name]} if name in used else set(_list_fingerprints(name, self.registry))
            if mark not in marks:
                return BacktestReason.PLUGIN_CHANGED if marks else BacktestReason.MISSING_PLUGIN
        return BacktestReason.REDACTED if self.spec.redact else BacktestReason.DIFFERS

    async def judge(
        self,
        spec: FlowSpec,
        history: History,
        index: int,
        stored: Attempt | None,
        known: Mapping[str, Sequence[Issue]] = MappingProxyType({}),
    ) -> tuple[Attempt, Mapping[str, Sequence[Issue]]]:
        """The next attempt of step ``index`` of ``spec``: what it brought, judged again; computed where it is local.

        Beside it stand the issues that each audit raised. Those of audits that are ``known`` are not looked for. Raises
        ``ExpressionError`` if a local step has no input.
        """
        step, number = spec.step(index), len(history.attempts(index)) + 1
        if stored is not None and stored.outcome not in COUNTED:
            return stored.model_copy(update={"step": index, "number": number}), {}
        variables = step_variables(spec, history, index)
        notes: tuple[Issue, ...] = ()
        plugins: dict[str, str] = {}
        if step.is_local:
            step_input, plugins = await prepare_input(spec, history, index, self.registry)
            judgement = await compute_output(step, step_input, variables, self.registry)
            stored = stored or Attempt(step=index, number=number, outcome=judgement.outcome)
            stored = stored.model_copy(update={"input": step_input})
        else:
            assert stored is not None
            raw = stored.output if stored.raw_output is None else stored.raw_output
            if not isinstance(raw, dict):
                return stored.model_copy(update={"step": index, "number": number}), {}
            judgement = await judge_output(step, raw, variables, self.registry, known=known)
            notes = _find_reply_notes(stored.issues, judgement.issues)
        update = {
            "step": index,
            "number": number,
            "outcome": judgement.outcome,
            "output": judgement.output,
            "raw_output": judgement.raw_output,
            "issues": (*notes, *judgement.issues),
            "failure_reason": judgement.failure_reason,
            "plugins": {**plugins, **judgement.plugins},
        }
        return self._redactor.redact_attempt(stored.model_copy(update=update)), judgement.found


_WITH_OUTPUT = (Outcome.PASSED, Outcome.FAILED)


def has_impure_plugin(step: StepSpec, registry: Registry) -> bool:
    """Whether an audit or a function of a step is registered with ``pure=False``."""
    named = [(field, getattr(step, field)) for field in _STEP_EXPRESSIONS]
    named += [(field, getattr(audit, field)) for audit in step.audits for field in _AUDIT_EXPRESSIONS]
    for field, text in named:
        if text is not None and text.startswith(PREFIX):
            try:
                if not registry.find_function(text, field).is_pure:
                    return True
            except ExpressionError:
                continue  # what is not registered is an issue of each attempt
    return False


def _list_fingerprints(name: str, registry: Registry) -> Iterator[str]:
    """Those of the plug-ins that are registered under the name that an attempt has them by."""
    bare = name.removeprefix(PREFIX)
    kinds = (registry.output_types,) if bare == name else (registry.audits, registry.functions)
    return (kind[bare].fingerprint for kind in kinds if bare in kind)


def _find_reply_notes(stored: tuple[Issue, ...], judged: tuple[Issue, ...]) -> tuple[Issue, ...]:
    """The notes of what was replaced in a reply as it came, which its stored form doesn't show any more.

    They stand before those of the sanitizer, which come up again.
    """
    counts = [sum(_is_note(issue) for issue in issues) for issues in (stored, judged)]
    return tuple(issue for issue in stored if _is_note(issue))[: max(0, counts[0] - counts[1])]


def _is_note(issue: Issue) -> bool:
    return issue.code == CLEANED_OUTPUT and not issue.audit


def _verdict(attempt: Attempt) -> Any:
    return attempt.outcome, attempt.output, attempt.issues, attempt.failure_reason or None


def _skip_wait(action: Action) -> Call | Compute | Finish:
    return action.then if isinstance(action, Wait) else action


def _end_without_answer(kind: BacktestKind, reason: BacktestReason, step: int = 0, number: int = 0) -> RunBacktest:
    sentence = _SENTENCES[reason].format(step=step, number=number)
    return RunBacktest(kind, step or None, number or None, reason=reason, sentence=sentence)


# ---------------------------------------------------------------------------------------------------------------
# The run as it would have been


_RANKS = {EndStatus.ERRORED: 0, EndStatus.FAILED: 1, None: 2, EndStatus.SUCCEEDED: 3}
"""How well runs end. One that is cancelled may still have passed, so that any other end but that is worse."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """Where the walk ends before the candidate does: why history can't answer, or that one more call is needed.

    With neither the run itself was ended there from outside.
    """

    reason: BacktestReason | None = None
    needs_call: bool = False


class _Walk:
    """Takes a candidate through a stored run."""

    def __init__(self, past: _Past, candidate: FlowSpec) -> None:
        self.past = past
        self.candidate = candidate
        self.origins = {after + 1: before + 1 for before, after in pair_steps(past.spec.steps, candidate.steps).items()}
        self.judged = History(past.history.run_id, past.history.steps[:1])
        self.place = (0, 1)
        """The stored attempt that was judged last."""
        self.has_changed = False
        """Whether what was judged differs from what is stored, for any step that comes later."""
        self.began_changed = False
        """Whether that was so when the current step began: what it is judged by may be different."""
        self.first: tuple[int, int] | None = None
        self.saved: list[Attempt] = []
        self.settled: set[int] = set()
        """The stored steps that a step of the candidate was compared with."""
        self.blocking: tuple[int, int] | None = None
        self.is_sooner = self.is_refused = self.is_hypothetical = False
        self.gone: list[FoundIssue] = []
        self.new: list[FoundIssue] = []
        self.audits: list[AuditChange] = []

    async def walk(self) -> RunBacktest:
        """Walk to the end."""
        current = 0
        while True:
            action = _skip_wait(next_action(self.candidate, self.judged))
            self._note_decision(action)
            following = None if isinstance(action, Finish) else action.step
            if current and following != current:
                self._settle(current)
            if isinstance(action, Finish):
                return self._end(action)
            current = action.step
            stop = await self._take(action)
            if isinstance(stop, Finish):
                return self._end(stop)
            if isinstance(stop, _Stop):
                return self._stop(stop, action)

    def _find_stored(self, index: int) -> tuple[Attempt, ...]:
        """The stored attempts that a step of the candidate is about; none where there is no such step."""
        origin = self.origins.get(index)
        if origin is None or self.past.spec.step(origin).is_local != self.candidate.step(index).is_local:
            return ()
        return self.past.history.attempts(origin)

    def _note_decision(self, action: Call | Compute | Finish) -> None:
        wanted = action.status if isinstance(action, Finish) else (self.origins.get(action.step), action.number)
        if self.first is None and wanted != self.past.following[self.place]:
            self.first = self.place

    # One attempt

    async def _take(self, action: Call | Compute) -> Finish | _Stop | None:
        index, number = action.step, action.number
        step, stored = self.candidate.step(index), self._find_stored(index)
        if number == 1:
            self.began_changed = self.has_changed
        base = stored[number - 1] if number <= len(stored) else None
        if base is None and self.past.wanted == (self.origins.get(index), number):
            return _Stop()
        is_judged = base is not None or isinstance(action, Compute)
        if is_judged and has_impure_plugin(step, self.past.registry):
            return _Stop(BacktestReason.IMPURE_PLUGIN)
        if isinstance(action, Call):
            stop = await self._ask_first(index, stored) if number == 1 else self._ask_again(index, number, stored)
            if stop is not None:
                return stop
        is_alike = base is not None and self._is_judged_alike(index, _JUDGED_FIELDS)
        if base is not None and is_alike and not self.began_changed:
            attempt = base
        else:
            known = self._find_known(index, base) if base is not None else {}
            try:
                attempt, _ = await self.past.judge(self.candidate, self.judged, index, base, known)
            except ExpressionError as error:
                return Finish(EndStatus.ERRORED, EndReason.EXPRESSION_ERROR, str(error))
            is_alike = is_alike and base is not None and _verdict(attempt) == _verdict(base)
            self.has_changed = self.has_changed or not is_alike
        self.judged = self.judged.append(attempt)
        if base is not None:
            self.place = (base.step, base.number)
            self._compare(index, base, attempt)
        return None

    def _is_judged_alike(self, index: int, names: Iterable[str]) -> bool:
        """Whether a step stands where it stood, with the same in these fields."""
        if self.origins.get(index) != index:
            return False
        own, step = self.past.spec.step(index), self.candidate.step(index)
        return all(getattr(own, name) == getattr(step, name) for name in names)

    def _find_known(self, index: int, base: Attempt) -> dict[str, Sequence[Issue]]:
        """The issues of the audits that find just what they found."""
        if self.began_changed or not self._is_judged_alike(index, _OUTPUT_FIELDS):
            return {}
        found = self.past.found.get((base.step, base.number), {})
        same = set(self.past.spec.step(index).audits) & set(self.candidate.step(index).audits)
        return {audit.name: found[audit.name] for audit in same if audit.name in found}

    async def _ask_first(self, index: int, stored: tuple[Attempt, ...]) -> Finish | _Stop | None:
        """Whether the first call of a step is the one that was made."""
        origin = self.origins.get(index)
        if origin is None or self.past.spec.step(origin).is_local:
            return _Stop(BacktestReason.NEW_STEP)
        if not stored:
            return _Stop(BacktestReason.NOT_REACHED)
        own, step = self.past.spec.step(origin), self.candidate.step(index)
        is_same_prompt = all(getattr(own, name) == getattr(step, name) for name in _PROMPT_FIELDS)
        self.is_hypothetical |= not is_same_prompt or own.output_schema != step.output_schema
        is_same_input = all(getattr(own, name) == getattr(step, name) for name in _INPUT_FIELDS)
        if not self.has_changed and origin == index and is_same_input:
            return None
        before = History(self.past.history.run_id, self.past.history.steps[:origin])
        try:
            asked: Any = await self._describe_call(self.past.spec, before, origin, with_prompt=is_same_prompt)
        except ExpressionError:
            # What is redacted may not be enough to make the input of again.
            asked = None
        try:
            wanted = await self._describe_call(self.candidate, self.judged, index, with_prompt=is_same_prompt)
        except ExpressionError as error:
            return Finish(EndStatus.ERRORED, EndReason.EXPRESSION_ERROR, str(error)) if asked else None
        return None if asked == wanted else _Stop(BacktestReason.INPUT_DIFFERS)

    async def _describe_call(self, spec: FlowSpec, history: History, index: int, *, with_prompt: bool) -> Any:
        step_input, _ = await prepare_input(spec, history, index, self.past.registry)
        if not with_prompt:
            return dump_json(step_input)
        sections = build_sections(spec, history, index)
        earlier = [(one.output, *map(render_issue, one.issues)) for section in sections for one in section.attempts]
        return dump_json(step_input), build_own_message(spec, history, index), earlier

    def _ask_again(self, index: int, number: int, stored: tuple[Attempt, ...]) -> _Stop | None:
        """Whether there is an answer to a further call of a step, and whether it got the same feedback."""
        if number > len(stored):
            return _Stop(needs_call=True)
        if _is_last_model(self.past.spec.step(self.origins[index]), stored[: number - 1]) != _is_last_model(
            self.candidate.step(index), self.judged.attempts(index)
        ):
            return _Stop(BacktestReason.OTHER_MODEL)
        if not self.is_hypothetical:
            told = _describe_feedback(self.past.spec.step(self.origins[index]), stored[: number - 1])
            self.is_hypothetical = told != _describe_feedback(self.candidate.step(index), self.judged.attempts(index))
        return None

    def _compare(self, index: int, base: Attempt, attempt: Attempt) -> None:
        gone = subtract_issues(base.issues, attempt.issues)
        new = subtract_issues(attempt.issues, base.issues)
        self.gone += [FoundIssue(base.step, base.number, issue) for issue in gone]
        self.new += [FoundIssue(base.step, base.number, issue) for issue in new]
        for name in {issue.audit for issue in (*base.issues, *attempt.issues)}:
            fired = [any(issue.audit == name for issue in one.issues) for one in (base, attempt)]
            counts = [sum(issue.audit == name for issue in issues) for issues in (gone, new)]
            self.audits.append(AuditChange(index, name, *fired, *counts))

    # One step, and the end

    def _settle(self, index: int) -> None:
        """Compare how a step ends with how it ended."""
        stored, walked = self._find_stored(index), self.judged.attempts(index)
        if not stored:
            return
        self.settled.add(self.origins[index])
        saved = stored[len(walked) :]
        self.saved += saved
        own, step = self.past.spec.step(self.origins[index]), self.candidate.step(index)
        if _is_good(own, stored) and not _is_good(step, walked):
            self._refuse()
        elif saved:
            self.is_sooner = True
        before, after = find_deciding(own, stored), find_deciding(step, walked)
        counts_another = (before and before.number) != (after and after.number)
        self.has_changed = self.has_changed or bool(saved) or counts_another

    def _refuse(self) -> None:
        self.is_refused = True
        self.blocking = self.blocking or self.place

    def _end(self, finish: Finish) -> RunBacktest:
        before, after = _RANKS[self.past.end], _RANKS[finish.status]
        if after < before:
            self._refuse()
        elif not self.is_refused:
            # Nothing comes behind the end of a run, so that steps which the candidate doesn't make count, too.
            rest = [attempt for attempt in self.past.history if attempt.step and attempt.step not in self.settled]
            self.saved += rest
            self.is_sooner = self.is_sooner or bool(rest) or after > before
        return self._build(None, None, ends=finish.status)

    def _stop(self, stop: _Stop, action: Call | Compute) -> RunBacktest:
        if stop.reason is BacktestReason.IMPURE_PLUGIN:
            return _end_without_answer(BacktestKind.NOT_REPRODUCIBLE, stop.reason, action.step)
        if not stop.needs_call:
            return self._build(stop, action)
        self._refuse()
        answered = [attempt.usage for attempt in self._find_stored(action.step) if attempt.counts]
        further = sum_usage([min(answered, key=lambda usage: usage.total)] if answered else [])
        return replace(self._build(stop, action), further_calls=1, further=further)

    def _is_retry(self, attempt: Attempt) -> bool:
        earlier = self.past.history.attempts(attempt.step)[: attempt.number - 1]
        return attempt.counts and any(one.counts for one in earlier)

    def _build(
        self, stop: _Stop | None, action: Call | Compute | None, *, ends: EndStatus | None = None
    ) -> RunBacktest:
        reason = stop.reason if stop is not None else None
        kind = BacktestKind.SAME if reason is None else BacktestKind.BEYOND
        if self.is_refused or self.is_sooner:
            kind = BacktestKind.REFUSED if self.is_refused else BacktestKind.SOONER
        step, number = self.first or (None, None)
        return RunBacktest(
            kind=kind,
            step=step,
            attempt=number,
            blocking=self.blocking if kind is BacktestKind.REFUSED else None,
            reason=reason,
            sentence=_SENTENCES[reason].format(step=action.step if action else 0) if reason else "",
            attempts_saved=len(self.saved),
            retries_saved=sum(self._is_retry(attempt) for attempt in self.saved),
            saved=sum_usage(attempt.usage for attempt in self.saved),
            ended=self.past.end,
            ends=ends,
            is_hypothetical=self.is_hypothetical,
            gone=tuple(self.gone),
            new=tuple(self.new),
            audits=add_audits(self.audits),
        )


def _is_good(step: StepSpec, attempts: tuple[Attempt, ...]) -> bool:
    return any(attempt.passed for attempt in attempts) or find_accepted(step, attempts) is not None


def _is_last_model(step: StepSpec, attempts: tuple[Attempt, ...]) -> bool:
    return find_called_step(step, attempts) is not step


def _describe_feedback(step: StepSpec, attempts: tuple[Attempt, ...]) -> Any:
    shown = select_attempts(step, attempts, step.issue_severity_filter)
    return [
        (number, dump_json(one.output), one.raw_output if one.output is None else None, [*map(render_issue, issues)])
        for number, one, issues in shown
    ]
