"""From what came back to a verdict: sanitize, validate, audit, decide. In that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from flows.engine.audits import AUDIT_ERROR, build_type_audit, run_audit, run_type_audit
from flows.engine.errors import ExpressionError
from flows.engine.evaluation import Evaluator
from flows.engine.history import CLEANED_OUTPUT, Issue, Outcome, Severity
from flows.engine.json_values import clean_value, describe_type, dump_json
from flows.engine.plugins import PREFIX, Registry
from flows.engine.schemas import compile_schema
from flows.engine.spec import AuditSpec, StepSpec
from flows.engine.time_limits import TimeBudget
from flows.engine.typed_output import build_type


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of one output."""

    outcome: Outcome
    output: dict[str, Any] | None
    raw_output: Any
    """What came back, where the sanitizer changed it; None otherwise."""
    issues: tuple[Issue, ...]
    failure_reason: str | None = None
    plugins: dict[str, str] = field(default_factory=dict)
    found: Mapping[str, Sequence[Issue]] = field(default_factory=dict)
    """The issues that each of the step's audits raised, by its name."""


def is_judged_in_python(step: StepSpec, registry: Registry) -> bool:
    """Whether plug-ins, which may take long, judge the outputs of a step."""
    known = registry.find_type(step.output_type)
    if known is not None and callable(getattr(known.model, "audit", None)):
        return True
    texts = [step.output_sanitizer, step.pass_expression, step.failure_reason_expression]
    for audit in step.audits:
        texts += [audit.for_each, audit.rule, audit.message, audit.suggestions, audit.path]
    return any(text is not None and text.startswith(PREFIX) for text in texts)


async def judge_output(
    step: StepSpec,
    arguments: dict[str, Any],
    variables: Mapping[str, Any],
    registry: Registry,
    budget: TimeBudget | None = None,
    *,
    known: Mapping[str, Sequence[Issue]] = MappingProxyType({}),
) -> Judgement:
    """Decide about an output of ``step``, given the ``variables`` that its step has (``step_variables``).

    ``arguments`` are clean JSON; ``budget`` says how long plug-ins may take. Audits whose issues are ``known``, by
    name, are not asked. Never raises for what a model, a rule or a plug-in did: that becomes issues.
    """
    plugins: dict[str, str] = {}
    sanitized = arguments
    raw_output: Any = None
    notes: tuple[Issue, ...] = ()
    if step.output_sanitizer is not None:
        sanitizing = Evaluator({"value": arguments}, registry, budget)
        try:
            sanitized, notes = clean_output(await sanitizing.evaluate("output_sanitizer", step.output_sanitizer))
        except (ExpressionError, ValueError) as error:
            issue = _critical("sanitizer_error", f"The output_sanitizer could not be applied: {error}")
            return Judgement(Outcome.INVALID, arguments, None, (issue,), plugins=sanitizing.plugins)
        plugins.update(sanitizing.plugins)
        # As text: to Python 1, 1.0 and true are equal.
        raw_output = arguments if dump_json(sanitized) != dump_json(arguments) else None

    typed: BaseModel | None = None
    issues: tuple[Issue, ...] = ()
    if step.output_schema is not None:
        schema = compile_schema(step.output_schema)
        sanitized = schema.coerce_numbers(sanitized)
        issues = schema.validate_output(sanitized)
    if step.output_type is not None and not issues:
        typed, issues = _build_registered_type(step.output_type, sanitized, registry)
        if registered := registry.find_type(step.output_type):
            plugins[step.output_type] = registered.fingerprint

    evaluator = Evaluator({**variables, "output": sanitized}, registry, budget)
    if issues:
        reason = await _explain_failure(step, issues, evaluator)
        plugins.update(evaluator.plugins)
        return Judgement(Outcome.INVALID, sanitized, raw_output, (*notes, *issues), reason, plugins)

    found: list[tuple[AuditSpec, Sequence[Issue]]] = []
    for audit in step.audits:
        raised = known.get(audit.name)
        found.append((audit, await run_audit(audit, evaluator, typed) if raised is None else raised))
    by_name = {audit.name: raised for audit, raised in found}
    if typed is not None and callable(getattr(typed, "audit", None)):
        audit = build_type_audit(step.output_type or "")
        found.insert(0, (audit, await run_type_audit(audit, evaluator, typed)))
    issues = tuple(issue for _, raised in found for issue in raised)
    passed = all(audit.is_passed_with(raised) for audit, raised in found)
    if step.pass_expression is not None:
        passed, issues = await _apply_pass_expression(step.pass_expression, issues, evaluator)
    reason = None if passed else await _explain_failure(step, issues, evaluator)
    plugins.update(evaluator.plugins)
    outcome = Outcome.PASSED if passed else Outcome.FAILED
    return Judgement(outcome, sanitized, raw_output, (*notes, *issues), reason, plugins, by_name)


async def compute_output(
    step: StepSpec,
    input: Any,
    variables: Mapping[str, Any],
    registry: Registry,
    budget: TimeBudget | None = None,
) -> Judgement:
    """Compute the output of a local ``step`` from its ``input`` and ``variables``, and judge it."""
    evaluator = Evaluator({**variables, "previous": input}, registry, budget)
    try:
        output, notes = clean_output(await evaluator.evaluate("compute", step.compute or ""))
    except (ExpressionError, ValueError) as error:
        issue = _critical("compute_error", f"The step could not be computed: {error}")
        return Judgement(Outcome.INVALID, None, None, (issue,), plugins=evaluator.plugins)
    judgement = await judge_output(step, output, variables, registry, budget)
    plugins = {**evaluator.plugins, **judgement.plugins}
    return replace(judgement, issues=(*notes, *judgement.issues), plugins=plugins)


def clean_output(found: Any) -> tuple[dict[str, Any], tuple[Issue, ...]]:
    """What can be stored of an output, with a low issue for each place that had to be changed.

    History must equal what is stored, so this comes before an output is judged or appended. Raises
    ``ExpressionError`` for what is not a map and ``ValueError`` for what has no JSON form.
    """
    cleaned = clean_value(found)
    if not isinstance(cleaned.value, dict):
        raise ExpressionError(f"it gave {describe_type(cleaned.value)}; a map is needed.")
    notes = tuple(
        Issue(code=CLEANED_OUTPUT, severity=Severity.LOW, description=f"{note} It was replaced.")
        for note in cleaned.notes
    )
    return cleaned.value, notes


def _build_registered_type(name: str, value: Any, registry: Registry) -> tuple[BaseModel | None, tuple[Issue, ...]]:
    known = registry.find_type(name)
    if known is None:
        return None, (_critical("unknown_output_type", f"No output type is registered as “{name}” on this worker."),)
    return build_type(known.model, value)


async def _apply_pass_expression(
    text: str, issues: tuple[Issue, ...], evaluator: Evaluator
) -> tuple[bool, tuple[Issue, ...]]:
    """Whether the pass rule says yes, and the issues. A refusal always has one, so that the next try is shown why."""
    try:
        passed = await evaluator.evaluate("pass_expression", text, issues=_dump(issues))
        if not isinstance(passed, bool):
            raise ExpressionError(f"it gave {describe_type(passed)}; true or false is needed.")
    except ExpressionError as error:
        return False, (*issues, _critical(AUDIT_ERROR, f"The pass_expression could not be evaluated: {error}"))
    if not passed and not issues:
        issues = (_critical("not_accepted", "The step's pass_expression does not accept this output."),)
    return passed, issues


async def _explain_failure(step: StepSpec, issues: tuple[Issue, ...], evaluator: Evaluator) -> str | None:
    if step.failure_reason_expression is None:
        return None
    try:
        reason = clean_value(
            await evaluator.evaluate("failure_reason_expression", step.failure_reason_expression, issues=_dump(issues))
        ).value
    except (ExpressionError, ValueError) as error:
        return f"The failure_reason_expression could not be evaluated: {error}"
    return reason if isinstance(reason, str) else f"The failure_reason_expression gave {describe_type(reason)}."


def _dump(issues: tuple[Issue, ...]) -> list[dict[str, Any]]:
    return [issue.model_dump(mode="json") for issue in issues]


def _critical(code: str, description: str) -> Issue:
    return Issue(code=code, severity=Severity.CRITICAL, description=description, audit="")
