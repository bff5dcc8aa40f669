"""From what came back to a verdict: sanitize, validate, audit, decide. In that order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from flows.engine.audits import error_issue, run_audit, run_type_audit
from flows.engine.errors import ExpressionError
from flows.engine.evaluation import Evaluator, Variables
from flows.engine.history import Outcome
from flows.engine.issues import Issue, Severity
from flows.engine.json_values import clean_value, describe_type, dump_json
from flows.engine.plugins import PREFIX, Registry
from flows.engine.schemas import compile_schema
from flows.engine.spec import StepSpec
from flows.engine.time_limits import Patience
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


def is_judged_in_python(step: StepSpec, registry: Registry) -> bool:
    """Whether plug-ins, which may take long, judge the outputs of a step."""
    known = registry.find_type(step.output_type)
    if known is not None and callable(getattr(known.model, "audit", None)):
        return True
    texts = [step.output_sanitizer, step.pass_expression, step.failure_reason_expression]
    for audit in step.audits:
        texts += [audit.rule, audit.message, audit.suggestions, audit.path]
    return any(text is not None and text.startswith(PREFIX) for text in texts)


async def judge_output(
    step: StepSpec,
    arguments: dict[str, Any],
    variables: Variables,
    registry: Registry,
    patience: Patience | None = None,
) -> Judgement:
    """Decide about an output of ``step``, given the ``variables`` that its step has (``step_variables``).

    ``arguments`` are clean JSON; ``patience`` says how long plug-ins may take. Never raises for what a model, a rule or
    a plug-in did: that becomes issues.
    """
    plugins: dict[str, str] = {}
    sanitized = arguments
    raw_output: Any = None
    notes: tuple[Issue, ...] = ()
    if step.output_sanitizer is not None:
        sanitizing = Evaluator(Variables({"value": arguments}), registry, patience)
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
        if known := registry.find_type(step.output_type):
            plugins[step.output_type] = known.fingerprint

    evaluator = Evaluator(variables.extend(output=sanitized), registry, patience)
    if issues:
        reason = await _explain_failure(step, issues, evaluator)
        plugins.update(evaluator.plugins)
        return Judgement(Outcome.INVALID, sanitized, raw_output, (*notes, *issues), reason, plugins)

    results = [await run_type_audit(step.output_type or "", evaluator, typed)] if typed is not None else []
    results += [await run_audit(audit, evaluator, typed) for audit in step.audits]
    issues = tuple(issue for result in results for issue in result.issues)
    passed = all(result.passed for result in results)
    if step.pass_expression is not None:
        passed, issues = await _apply_pass_expression(step.pass_expression, issues, evaluator)
    reason = None if passed else await _explain_failure(step, issues, evaluator)
    plugins.update(evaluator.plugins)
    outcome = Outcome.PASSED if passed else Outcome.FAILED
    return Judgement(outcome, sanitized, raw_output, (*notes, *issues), reason, plugins)


def clean_output(found: Any) -> tuple[dict[str, Any], tuple[Issue, ...]]:
    """What can be stored of an output, with a low issue for each place that had to be changed.

    History must equal what is stored, so this comes before an output is judged or appended. Raises
    ``ExpressionError`` for what is no map and ``ValueError`` for what has no JSON form.
    """
    cleaned = clean_value(found)
    if not isinstance(cleaned.value, dict):
        raise ExpressionError(f"it gave {describe_type(cleaned.value)}; a map is needed.")
    notes = tuple(
        Issue(code="cleaned_output", severity=Severity.LOW, description=f"{note} It was replaced.")
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
        return False, (*issues, error_issue("", f"The pass_expression could not be evaluated: {error}"))
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
    return Issue(code=code, severity=Severity.CRITICAL, description=description)
