"""A stored run, judged again by its own definition: only what comes out as stored can be judged by another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from flows.engine.backtest_result import BacktestKind, BacktestReason, RunBacktest, end_without_answer
from flows.engine.errors import ExpressionError
from flows.engine.evaluation import MissingInputError, prepare_input, step_variables
from flows.engine.history import CLEANED_OUTPUT, COUNTED, Attempt, History, Issue, Outcome
from flows.engine.judging import compute_output, judge_output
from flows.engine.planner import Action, Call, Compute, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import PREFIX, Registry
from flows.engine.redaction import Redactor
from flows.engine.spec import FlowSpec, StepSpec
from flows.engine.spec_check import AUDIT_EXPRESSIONS, STEP_EXPRESSIONS

_WITH_OUTPUT = (Outcome.PASSED, Outcome.FAILED)


class StoredRun:
    """A stored run, and whether it comes out as stored."""

    def __init__(self, spec: FlowSpec, history: History, registry: Registry) -> None:
        self.spec = spec
        self.history = history
        self.registry = registry
        action = skip_wait(next_action(spec, history))
        self.end = action.status if isinstance(action, Finish) else None
        """How it ended; None if that came from outside: it was cancelled or out of time."""
        self.lacks_input = False
        """Whether it ended because its next step had no input."""
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
            return end_without_answer(BacktestKind.REMOVED, BacktestReason.OUTPUTS_REMOVED)
        for index in range(1, len(self.history.steps)):
            if has_impure_plugin(self.spec.step(index), self.registry):
                return end_without_answer(BacktestKind.NOT_REPRODUCIBLE, BacktestReason.IMPURE_PLUGIN, index)
        before = History(self.history.run_id, self.history.steps[:1])
        for stored in attempts:
            reason = await self._find_difference(before, stored)
            if reason is not None:
                return end_without_answer(BacktestKind.NOT_REPRODUCIBLE, reason, stored.step, stored.number)
            before = before.append(stored)
        action = skip_wait(next_action(self.spec, before))
        if not isinstance(action, Finish) and not has_impure_plugin(self.spec.step(action.step), self.registry):
            self.lacks_input = not await self.has_input(self.spec, before, action.step)
            self.end = EndStatus.ERRORED if self.lacks_input else None
        return None

    async def has_input(self, spec: FlowSpec, history: History, index: int) -> bool:
        """Whether there is anything that step ``index`` of ``spec`` works on behind ``history``."""
        try:
            await prepare_input(spec, history, index, self.registry)
        except MissingInputError:
            return False
        except ExpressionError:
            # What is redacted may not be enough to make the input of again.
            return True
        return True

    def has_fired(self, step: int, audit: str) -> bool:
        """Whether an audit raised an issue when the run was judged again."""
        return any(found.get(audit) for (index, _), found in self.found.items() if index == step)

    async def _find_difference(self, before: History, stored: Attempt) -> BacktestReason | None:
        action = skip_wait(next_action(self.spec, before))
        is_next = not isinstance(action, Finish) and (action.step, action.number) == (stored.step, stored.number)
        again = None
        if is_next:
            with suppress(ExpressionError):
                again, found = await self.judge(self.spec, before, stored.step, stored)
                self.found[stored.step, stored.number] = found
            if again is not None and describe_verdict(again) == describe_verdict(stored):
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

        Beside it are the issues that each audit raised. Audits whose issues are ``known`` are not run again. Raises
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


def has_impure_plugin(step: StepSpec, registry: Registry) -> bool:
    """Whether an audit, a function or the output type of a step is registered with ``pure=False``."""
    output_type = registry.find_type(step.output_type)
    if output_type is not None and not output_type.is_pure:
        return True
    named = [(field, getattr(step, field)) for field in STEP_EXPRESSIONS]
    named += [(field, getattr(audit, field)) for audit in step.audits for field in AUDIT_EXPRESSIONS]
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

    They are before those of the sanitizer, which come up again.
    """
    counts = [sum(_is_note(issue) for issue in issues) for issues in (stored, judged)]
    return tuple(issue for issue in stored if _is_note(issue))[: max(0, counts[0] - counts[1])]


def _is_note(issue: Issue) -> bool:
    return issue.code == CLEANED_OUTPUT and not issue.audit


def describe_verdict(attempt: Attempt) -> Any:
    """What is compared of an attempt that was judged again."""
    return attempt.outcome, attempt.output, attempt.issues, attempt.failure_reason or None


def skip_wait(action: Action) -> Call | Compute | Finish:
    """What a planner wants once its pause is over."""
    return action.then if isinstance(action, Wait) else action
