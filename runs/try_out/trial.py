"""A step that is tried: what it works on, the request that it would send, and what its audits say about an output."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from flows.engine.errors import ExpressionError, InputError, SpecError
from flows.engine.evaluation import Evaluator, prepare_input, step_variables
from flows.engine.history import Attempt, History, Issue, Outcome, Severity, initial_attempt
from flows.engine.json_values import clean_value, parse_object
from flows.engine.judging import Judgement, build_type_audit, clean_output, judge_output
from flows.engine.plugins import Registry
from flows.engine.prompt import build_request
from flows.engine.providers import UnsupportedCallError
from flows.engine.running import check_input
from flows.engine.schemas import compile_schema
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.engine.time_limits import Deadline, TimeBudget
from flows.providers import build_providers
from runs.models import Run

MAX_PROBLEMS = 5
"""Problems of one typed value that are listed."""
MAX_PLUGIN_SECONDS = 10.0
"""Seconds that one call of a plug-in may take, unless ``TOOLFLOW_PLUGIN_TIMEOUT`` is less."""
MAX_TRY_SECONDS = 10
"""Seconds that all expressions and plug-ins of one try may take together: a web process waits for them."""


class TrialError(Exception):
    """A step can't be tried on what was chosen or typed.

    ``problems`` has a sentence for each field: ``run``, ``after_attempt``, ``input``, or ``output-2`` for the output of
    step 2.
    """

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__(" ".join(problems.values()))


@dataclass(frozen=True, slots=True)
class Preview:
    """What an attempt begins with; ``problem`` says why there is nothing."""

    request: dict[str, Any] | None = None
    """The body that a model step would send."""
    output: dict[str, Any] | None = None
    """What a local step computes, before its sanitizer."""
    notes: tuple[Issue, ...] = ()
    """What had to be changed in ``output`` so that it can be stored."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What one audit says about an output."""

    audit: AuditSpec
    issues: tuple[Issue, ...]

    @property
    def outcome(self) -> Outcome:
        return Outcome.PASSED if self.audit.is_passed_with(self.issues) else Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Verdict:
    """The attempt that an output would be, and what each audit says about it, in the order of the step."""

    attempt: Attempt
    audits: tuple[AuditVerdict, ...] = ()

    @property
    def was_audited(self) -> bool:
        """Whether the output could be used, so that audits were asked."""
        return self.attempt.outcome in (Outcome.PASSED, Outcome.FAILED)


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

    def find_attempt(self, number: int) -> Attempt | None:
        """The stored attempt of the step with this number."""
        return next((attempt for attempt in self.attempts if attempt.number == number), None)

    def preview(self, registry: Registry) -> Preview:
        """The request of the next attempt, or the output of a local step. Calls no model; never raises."""
        return asyncio.run(self._preview(registry))

    async def _preview(self, registry: Registry) -> Preview:
        step = self.step
        try:
            # Without the step's own attempts: they hold the input that an earlier definition made.
            value, _ = await prepare_input(self.spec, self.before, self.index, registry, begin_time_budget())
        except ExpressionError as error:
            return Preview(problem=str(error))
        if step.compute is not None:
            variables = {**step_variables(self.spec, self.before, self.index), "previous": value}
            evaluator = Evaluator(variables, registry, begin_time_budget())
            try:
                output, notes = clean_output(await evaluator.evaluate("compute", step.compute))
            except (ExpressionError, ValueError) as error:
                return Preview(problem=f"The step could not be computed: {error}")
            return Preview(output=output, notes=notes)
        if step.tool_name is None or step.output_schema is None:
            return Preview(problem="The request can't be built yet: it needs a tool name and an output schema.")
        history = self.before
        for attempt in self.attempts[: self.feedback_count]:
            history = history.append(attempt)
        try:
            return Preview(request=build_request(self.spec, history, self.index, value, providers=build_providers()))
        except UnsupportedCallError as error:
            return Preview(problem=f"The request can't be built: {error}")

    def judge(self, output: dict[str, Any], registry: Registry, *, notes: tuple[Issue, ...] = ()) -> Verdict:
        """Judge an ``output`` (clean JSON) as an attempt's; ``notes`` are issues that it has already. Never raises."""
        variables = step_variables(self.spec, self.before, self.index)
        try:
            judgement = asyncio.run(judge_output(self.step, output, variables, registry, begin_time_budget()))
        except SpecError as error:
            # The schema is being written; no run could have it.
            issue = Issue(code="unusable_schema", severity=Severity.CRITICAL, description=error.problems[0].message)
            judgement = Judgement(Outcome.INVALID, output, None, (issue,))
        attempt = self.build_attempt(
            judgement.outcome,
            output=judgement.output,
            raw_output=judgement.raw_output,
            issues=(*notes, *judgement.issues),
            failure_reason=judgement.failure_reason,
        )
        audits = [] if judgement.outcome is Outcome.INVALID else _list_audits(self.step, registry)
        found = [
            AuditVerdict(audit, tuple(issue for issue in judgement.issues if issue.audit == audit.name))
            for audit in audits
        ]
        return Verdict(attempt, tuple(found))

    def build_attempt(self, outcome: Outcome, **fields: Any) -> Attempt:
        """The next attempt of the step, which ended like this."""
        return Attempt(step=self.index, number=self.feedback_count + 1, outcome=outcome, **fields)


def begin_time_budget() -> TimeBudget:
    end = datetime.now(UTC) + timedelta(seconds=MAX_TRY_SECONDS)
    deadline = Deadline(end, "Trying the step", f"{MAX_TRY_SECONDS} seconds", None)
    return TimeBudget(min(settings.TOOLFLOW_PLUGIN_TIMEOUT, MAX_PLUGIN_SECONDS), deadline)


def _list_audits(step: StepSpec, registry: Registry) -> list[AuditSpec]:
    known = registry.find_type(step.output_type)
    has_own = known is not None and callable(getattr(known.model, "audit", None))
    return [*([build_type_audit(step.output_type or "")] if has_own else []), *step.audits]


def find_audited_output(attempt: Attempt) -> dict[str, Any] | None:
    """What came back in a stored attempt, before its sanitizer; None where that was no object."""
    output = attempt.raw_output if attempt.raw_output is not None else attempt.output
    return output if isinstance(output, dict) else None


def fetch_run(flow_id: int | None, number: str) -> Run:
    """The run of a flow with this number, as it was typed. Raises ``TrialError``."""
    text = number.strip().removeprefix("#")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise TrialError({"run": f"“{number.strip()[:40]}” is not a run number. Write it like 12."})
    run = Run.objects.select_related("version").filter(pk=int(text)).first()
    if run is None:
        raise TrialError({"run": f"There is no run {text}."})
    if run.flow_id != flow_id:
        raise TrialError({"run": f"Run {text} is a run of another flow. Choose one of this flow."})
    return run


def try_on_run(spec: FlowSpec, index: int, run: Run, history: History, *, feedback_count: int = 0) -> Trial:
    """Step ``index`` of ``spec`` on what ``run`` has, whose ``history`` this is; steps are matched by number.

    Raises ``TrialError`` for ``run`` if it did not reach the step, and for ``after_attempt`` if the step has fewer than
    ``feedback_count`` attempts in it.
    """
    missing = len(history.steps)
    if missing < index:
        sentence = f"Run {run.pk} can't be used for step {index}: no attempt of step {missing} has ended in it."
        raise TrialError({"run": f"{sentence} Choose another run, or type the values."})
    attempts = history.attempts(index)
    if not 0 <= feedback_count <= len(attempts):
        raise TrialError({"after_attempt": f"Run {run.pk} has no attempt {feedback_count} of step {index}."})
    value, notes = history.initial_input, list(_compare_steps(run, spec, index))
    try:
        value = _fit_input(value, spec)
    except InputError as error:
        notes.append(f"The run's input doesn't fit the input schema as it is now. {_list_problems(error)}")
    before = History(history.run_id, ((initial_attempt(value),), *history.steps[1:index]))
    return Trial(spec, index, before, attempts, feedback_count, tuple(notes))


def try_on_texts(spec: FlowSpec, index: int, *, input: str, outputs: Mapping[int, str]) -> Trial:
    """Step ``index`` of ``spec`` on JSON texts: the run's input, and by step the outputs of the steps before.

    An empty output stands for a step without a usable one. Raises ``TrialError`` with every text that can't be used.
    """
    problems: dict[str, str] = {}
    notes: list[str] = []
    attempts = []
    try:
        attempts.append(initial_attempt(_fit_input(clean_value(parse_object(input)).value, spec)))
    except InputError as error:
        problems["input"] = f"The input doesn't fit the input schema. {_list_problems(error)}"
    except ValueError as error:
        problems["input"] = str(error)
    for position in range(1, index):
        text = outputs.get(position, "")
        try:
            output = clean_value(parse_object(text)).value if text.strip() else None
        except ValueError as error:
            problems[f"output-{position}"] = str(error)
            continue
        schema = spec.step(position).output_schema
        # A schema that can't be used is being written; its own problems are shown at its field.
        with suppress(SpecError):
            if output is not None and schema is not None:
                compiled = compile_schema(schema)
                output = compiled.coerce_numbers(output)
                if compiled.validate_output(output):
                    notes.append(f"The output of step {position} doesn't fit its schema: a run would not pass it on.")
        outcome = Outcome.ERRORED if output is None else Outcome.PASSED
        attempts.append(Attempt(step=position, number=1, outcome=outcome, output=output))
    if problems:
        raise TrialError(problems)
    return Trial(spec, index, History.from_attempts(attempts, run_id="typed"), notes=tuple(notes))


def _fit_input(value: Any, spec: FlowSpec) -> dict[str, Any]:
    """The input with the numbers that its schema names. Raises ``InputError`` if it doesn't fit."""
    try:
        return check_input(value, spec.input_schema)
    except SpecError:  # the schema is being written
        return check_input(value, None)


def _list_problems(error: InputError) -> str:
    shown = [str(problem) for problem in error.problems[:MAX_PROBLEMS]]
    more = len(error.problems) - len(shown)
    return " ".join([*shown, f"{more} more."] if more else shown)


def _compare_steps(run: Run, spec: FlowSpec, index: int) -> Iterator[str]:
    """Sentences about steps of the run's version that had other names."""
    steps = run.version.flow_spec.steps
    where = f"In run {run.pk} (version {run.version.number})"
    for position in range(1, index + 1):
        name = spec.step(position).name
        if position > len(steps):
            yield f"{where} there was no step {position}."
            return
        if steps[position - 1].name != name:
            yield f"{where} step {position} was “{steps[position - 1].name}”; here it is “{name}”."
