"""A step that is tried: what it works on, the request that it would send, and what its audits say about an output."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings

from flows.engine.audits import build_type_audit
from flows.engine.errors import ExpressionError, InputError
from flows.engine.evaluation import Evaluator, prepare_input, step_variables
from flows.engine.history import Attempt, History, Issue, Outcome, initial_attempt
from flows.engine.json_values import clean_value
from flows.engine.judging import clean_output, judge_output
from flows.engine.plugins import Registry
from flows.engine.prompt import build_request
from flows.engine.providers import UnsupportedCallError
from flows.engine.schemas import compile_schema, parse_input
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.engine.time_limits import Deadline, TimeBudget
from flows.providers import build_providers
from runs.models import Run

MAX_PROBLEMS = 5
"""Problems of an input that are shown."""
MAX_TRY_SECONDS = 10
"""Seconds that all expressions and plug-ins of one try may take together: a web process waits for them."""


class TrialError(Exception):
    """A step can't be tried on what was chosen; ``field`` is ``run``, ``after_attempt`` or ``input``."""

    def __init__(self, field: str, sentence: str) -> None:
        self.field = field
        super().__init__(sentence)


class Preview(NamedTuple):
    """What an attempt begins with: a model step's request or a local step's output, else why there is neither.

    ``notes`` are issues: what had to be changed in the output so that it can be stored.
    """

    request: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    notes: tuple[Issue, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """Step ``index``, from 1, of a frozen and resolved flow, and what its next attempt would find."""

    spec: FlowSpec
    index: int
    before: History
    """The input, and the attempts of all steps before the one that is tried."""
    attempts: tuple[Attempt, ...] = ()
    """The attempts of the step itself in the run that it is tried on."""
    feedback_count: int = 0
    """The number of ``attempts`` that the next one follows, as a retry."""
    notes: tuple[str, ...] = ()
    """Sentences about what does not match the flow as it is now."""

    @property
    def step(self) -> StepSpec:
        return self.spec.step(self.index)

    def preview(self, registry: Registry) -> Preview:
        """The request of the next attempt, or the output of a local step. Calls no model; never raises."""
        step, budget = self.step, begin_time_budget()
        shown = (self.attempts[: self.feedback_count],) if self.feedback_count else ()
        history = History(self.before.run_id, (*self.before.steps, *shown))
        try:
            # Without the step's own attempts: they hold the input that an earlier definition made.
            value, _ = asyncio.run(prepare_input(self.spec, self.before, self.index, registry, budget))
            if step.compute is not None:
                variables = {**step_variables(self.spec, self.before, self.index), "previous": value}
                found = asyncio.run(Evaluator(variables, registry, budget).evaluate("compute", step.compute))
                return Preview(None, *clean_output(found))
            if step.tool_name is None or step.output_schema is None:
                return Preview(problem="The request can't be built yet: it needs a tool name and an output schema.")
            return Preview(build_request(self.spec, history, self.index, value, providers=build_providers()))
        except (ExpressionError, UnsupportedCallError, ValueError) as error:
            return Preview(problem=f"The step could not be computed: {error}" if step.is_local else str(error))

    def judge(
        self, output: dict[str, Any], registry: Registry, *, notes: tuple[Issue, ...] = ()
    ) -> tuple[Attempt, list[dict[str, Any]]]:
        """The attempt that ``output`` (clean JSON) would be, and what each audit says about it, if audits were asked.

        ``notes`` are issues that it has already. Raises ``SpecError`` for a schema that can't be used.
        """
        variables = step_variables(self.spec, self.before, self.index)
        judgement = asyncio.run(judge_output(self.step, output, variables, registry, begin_time_budget()))
        attempt = self.build_attempt(
            judgement.outcome,
            output=judgement.output,
            raw_output=judgement.raw_output,
            issues=(*notes, *judgement.issues),
            failure_reason=judgement.failure_reason,
        )
        audits = [] if judgement.outcome is Outcome.INVALID else _list_audits(self.step, registry)
        return attempt, [_describe_audit(audit, judgement.issues) for audit in audits]

    def build_attempt(self, outcome: Outcome, **fields: Any) -> Attempt:
        """The next attempt of the step, which ended like this."""
        return Attempt(step=self.index, number=self.feedback_count + 1, outcome=outcome, **fields)


def begin_time_budget() -> TimeBudget:
    """The time that the expressions and plug-ins of a try may take from now on."""
    end = datetime.now(UTC) + timedelta(seconds=MAX_TRY_SECONDS)
    deadline = Deadline(end, "Trying the step", f"{MAX_TRY_SECONDS} seconds", None)
    return TimeBudget(settings.TOOLFLOW_PLUGIN_TIMEOUT, deadline)


def _list_audits(step: StepSpec, registry: Registry) -> list[AuditSpec]:
    known = registry.find_type(step.output_type)
    has_own = known is not None and callable(getattr(known.model, "audit", None))
    return [*([build_type_audit(step.output_type or "")] if has_own else []), *step.audits]


def _describe_audit(audit: AuditSpec, issues: tuple[Issue, ...]) -> dict[str, Any]:
    own = [issue for issue in issues if issue.audit == audit.name]
    return {
        "name": audit.name,
        "fail_at": audit.threshold or "never",
        "passed": audit.is_passed_with(own),
        "issue_count": len(own),
    }


def find_audited_output(attempt: Attempt) -> dict[str, Any] | None:
    """What came back in a stored attempt, before its sanitizer; None where that was no object."""
    output = attempt.raw_output if attempt.raw_output is not None else attempt.output
    return output if isinstance(output, dict) else None


def fetch_run(flow_id: int | None, number: int) -> Run:
    """The run of a flow with this number. Raises ``TrialError``."""
    run = Run.objects.select_related("version").filter(flow=flow_id, pk=number).first()
    if run is None:
        raise TrialError("run", f"This flow has no run {number}.")
    return run


def try_on_run(spec: FlowSpec, index: int, run: Run, history: History, *, feedback_count: int = 0) -> Trial:
    """Step ``index`` of ``spec`` on what ``run`` has, whose ``history`` this is; steps are matched by number.

    Raises ``TrialError`` for ``run`` if it did not reach the step, and for ``after_attempt`` if the step has fewer than
    ``feedback_count`` attempts in it, ``SpecError`` for an input schema that can't be used.
    """
    missing = len(history.steps)
    if missing < index:
        sentence = f"Run {run.pk} can't be used for step {index}: no attempt of step {missing} has ended in it."
        raise TrialError("run", f"{sentence} Choose another run, or type the values.")
    attempts = history.attempts(index)
    if feedback_count > len(attempts):
        raise TrialError("after_attempt", f"Run {run.pk} has no attempt {feedback_count} of step {index}.")
    value, notes = history.initial_input, list(_compare_steps(run, spec, index))
    try:
        value = parse_input(value, spec.input_schema)
    except InputError as error:
        notes.append(f"The run's input doesn't fit the input schema as it is now. {_describe(error)}")
    before = History(history.run_id, ((initial_attempt(value),), *history.steps[1:index]))
    return Trial(spec, index, before, attempts, feedback_count, tuple(notes))


def try_on_values(
    spec: FlowSpec, index: int, input: dict[str, Any], outputs: Mapping[int, dict[str, Any] | None]
) -> Trial:
    """Step ``index`` of ``spec`` on a run's input, and by step the outputs of the steps before.

    A step without an output has no usable one. Raises ``TrialError`` for an input that doesn't fit its schema, and
    ``SpecError`` for a schema that can't be used.
    """
    try:
        attempts = [initial_attempt(parse_input(clean_value(input).value, spec.input_schema))]
    except InputError as error:
        raise TrialError("input", f"The input doesn't fit the input schema. {_describe(error)}") from None
    notes = []
    for position in range(1, index):
        output = clean_value(outputs.get(position)).value
        schema = spec.step(position).output_schema
        if output is not None and schema is not None:
            compiled = compile_schema(schema)
            output = compiled.coerce_numbers(output)
            if compiled.validate_output(output):
                notes.append(f"The output of step {position} doesn't fit its schema: a run would not use it.")
        outcome = Outcome.ERRORED if output is None else Outcome.PASSED
        attempts.append(Attempt(step=position, number=1, outcome=outcome, output=output))
    return Trial(spec, index, History.from_attempts(attempts, run_id="typed"), notes=tuple(notes))


def _describe(error: InputError) -> str:
    return " ".join(str(problem) for problem in error.problems[:MAX_PROBLEMS])


def _compare_steps(run: Run, spec: FlowSpec, index: int) -> Iterator[str]:
    """Sentences about steps of the run's version that had other names."""
    names = [step.name for step in run.version.flow_spec.steps]
    where = f"In run {run.pk} (version {run.version.number})"
    for position, step in enumerate(spec.steps[:index], start=1):
        if position > len(names):
            yield f"{where} there was no step {position}."
        elif names[position - 1] != step.name:
            yield f"{where} step {position} was “{names[position - 1]}”; here it is “{step.name}”."
