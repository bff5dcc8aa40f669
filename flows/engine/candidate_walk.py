"""A candidate taken through a stored run, attempt by attempt, as far as history answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flows.engine.backtest_result import (
    SENTENCES,
    AuditChange,
    BacktestKind,
    BacktestReason,
    RunBacktest,
    add_audits,
    end_without_answer,
)
from flows.engine.differences import pair_steps
from flows.engine.errors import ExpressionError
from flows.engine.evaluation import prepare_input
from flows.engine.history import Attempt, History, Issue, subtract_issues, sum_usage
from flows.engine.json_values import dump_json
from flows.engine.planner import Call, Compute, EndReason, EndStatus, Finish, next_action
from flows.engine.prompt import build_own_message, build_sections, render_issue, select_attempts
from flows.engine.result import FoundIssue
from flows.engine.settling import find_accepted, find_called_step, find_deciding
from flows.engine.spec import FlowSpec, StepSpec
from flows.engine.stored_run import StoredRun, describe_verdict, has_impure_plugin, skip_wait

PROMPT_FIELDS = ("system_message", "description", "include_results", "issue_severity_filter")
INPUT_FIELDS = ("input_expression", "input_sanitizer")
_JUDGED_FIELDS = (
    *("name", "compute", "output_sanitizer", "output_schema", "output_type"),
    *("pass_expression", "failure_reason_expression", "audits", *INPUT_FIELDS),
)
_OUTPUT_FIELDS = ("name", "compute", "output_sanitizer", "output_schema", "output_type")
"""What decides about the output that audits are asked of."""

_RANKS = {EndStatus.ERRORED: 0, EndStatus.FAILED: 1, None: 2, EndStatus.SUCCEEDED: 3}
"""How well runs end. One that is cancelled may still have passed, so that any other end but that is worse."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """Where the walk ends before the candidate does: why history can't answer, or that one more call is needed.

    With neither the run itself was ended there from outside.
    """

    reason: BacktestReason | None = None
    needs_call: bool = False


class Walk:
    """Takes a candidate through a stored run."""

    def __init__(self, past: StoredRun, candidate: FlowSpec) -> None:
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
            action = skip_wait(next_action(self.candidate, self.judged))
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
            if not self.past.lacks_input:
                return _Stop()
            if has_impure_plugin(step, self.past.registry):
                return _Stop(BacktestReason.IMPURE_PLUGIN)
            if not await self.past.has_input(self.candidate, self.judged, index):
                return Finish(EndStatus.ERRORED, EndReason.MISSING_INPUT, "")
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
            is_alike = is_alike and base is not None and describe_verdict(attempt) == describe_verdict(base)
            self.has_changed = self.has_changed or not is_alike
        self.judged = self.judged.append(attempt)
        if base is not None:
            self.place = (base.step, base.number)
            self._compare(index, base, attempt)
        return None

    def _is_judged_alike(self, index: int, names: Iterable[str]) -> bool:
        """Whether a step has its old position, with the same in these fields."""
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
        is_same_prompt = all(getattr(own, name) == getattr(step, name) for name in PROMPT_FIELDS)
        self.is_hypothetical |= not is_same_prompt or own.output_schema != step.output_schema
        is_same_input = all(getattr(own, name) == getattr(step, name) for name in INPUT_FIELDS)
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
            shown = _describe_feedback(self.past.spec.step(self.origins[index]), stored[: number - 1])
            self.is_hypothetical = shown != _describe_feedback(self.candidate.step(index), self.judged.attempts(index))
        return None

    def _compare(self, index: int, base: Attempt, attempt: Attempt) -> None:
        gone = subtract_issues(base.issues, attempt.issues)
        new = subtract_issues(attempt.issues, base.issues)
        self.gone += [FoundIssue(base.step, base.number, issue) for issue in gone]
        self.new += [FoundIssue(base.step, base.number, issue) for issue in new]
        found = [
            Counter(issue.audit or issue.code for issue in issues)
            for issues in (base.issues, attempt.issues, gone, new)
        ]
        for name in found[0] | found[1]:
            before, after, gone_count, new_count = (counts[name] for counts in found)
            self.audits.append(AuditChange(index, name, before > 0, after > 0, gone_count, new_count))

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
            return end_without_answer(BacktestKind.NOT_REPRODUCIBLE, stop.reason, action.step)
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
            sentence=SENTENCES[reason].format(step=action.step if action else 0) if reason else "",
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
