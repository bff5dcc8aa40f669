"""From what came back to a verdict: sanitize, validate, audit, decide. In that order."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.evaluation import Evaluator
from flows.engine.expression_paths import parse_output_path
from flows.engine.history import CLEANED_OUTPUT, Issue, Outcome, Severity
from flows.engine.json_values import clean_value, describe_type, dump_json, format_pointer
from flows.engine.message_template import parse_template
from flows.engine.plugin_calls import copy_value
from flows.engine.plugins import PREFIX, PythonFunction, Registry
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
    ``ExpressionError`` for what is no map and ``ValueError`` for what has no JSON form.
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


def _critical(code: str, description: str, audit: str = "") -> Issue:
    return Issue(code=code, severity=Severity.CRITICAL, description=description, audit=audit)


# ---------------------------------------------------------------------------------------------------------------
# Audits

AUDIT_ERROR = "audit_error"
"""The code of the issue that an audit which can't be evaluated becomes."""
MAX_ISSUES = 500
"""Issues that one audit keeps of one output; one more issue then says how many there were."""
PYTHON_BESIDE_FOR_EACH = (
    "A rule beside for_each is CEL; a Python audit goes through the elements itself and gives a list. Remove for_each."
)
MORE_ISSUES = "more_issues"
"""The code of that one more issue: of the audit, not all issues are there."""


def build_type_audit(type_name: str) -> AuditSpec:
    """The audit that the method ``audit`` of a registered output type stands for."""
    return AuditSpec(name=type_name, rule=f"{PREFIX}{type_name}")


async def run_type_audit(audit: AuditSpec, evaluator: Evaluator, typed_output: BaseModel) -> list[Issue]:
    """The issues that the method ``audit`` of a registered output type raises; see ``run_audit``."""

    async def call() -> Any:
        return await evaluator.call(audit.name, PythonFunction(audit.name, copy_value(typed_output).audit), {})

    return await _collect_issues(audit, evaluator, call())


async def run_audit(audit: AuditSpec, evaluator: Evaluator, typed_output: BaseModel | None) -> list[Issue]:
    """The issues that one audit raises on the output among the evaluator's variables.

    A Python audit is handed a copy of ``typed_output`` as its ``output`` where the step has a registered type. Never
    raises: what can't be evaluated is itself a critical issue, beside the audit's usable findings.
    """
    return await _collect_issues(audit, evaluator, _evaluate_rule(audit, evaluator, typed_output))


@dataclass(frozen=True, slots=True)
class _RefusedItem:
    """An element of ``for_each`` of which the rule is false."""

    index: int
    value: Any


async def _evaluate_rule(audit: AuditSpec, evaluator: Evaluator, typed_output: BaseModel | None) -> Any:
    if audit.for_each is not None:
        return await _ask_each(audit, audit.for_each, evaluator)
    if audit.rule.startswith(PREFIX):
        extra = {} if typed_output is None else {"output": typed_output}
        return await evaluator.evaluate("rule", audit.rule, **extra)
    finding = await evaluator.evaluate("rule", audit.rule)
    if not isinstance(finding, (bool, list)):
        raise ExpressionError(f"the rule gave {describe_type(finding)}; a rule gives true, false or a list.")
    return finding


async def _ask_each(audit: AuditSpec, for_each: str, evaluator: Evaluator) -> list[_RefusedItem]:
    """The elements that the rule refuses. Raises ``ExpressionError``, with those ``found`` all the same."""
    if audit.rule.startswith(PREFIX):
        raise ExpressionError(PYTHON_BESIDE_FOR_EACH)
    items = await evaluator.evaluate("for_each", for_each)
    if for_each.startswith(PREFIX):
        items = clean_value(items).value
    if not isinstance(items, list):
        raise ExpressionError(f"its for_each gave {describe_type(items)}; a list is needed.")
    answers = await evaluator.ask_each(audit.rule, items)
    refused = [_RefusedItem(index, items[index]) for index, answer in enumerate(answers) if answer is False]
    unasked = [(index, answer) for index, answer in enumerate(answers) if isinstance(answer, str)]
    if unasked:
        (index, fault), count = unasked[0], len(unasked)
        more = f" It is the first of {count:,} elements with a fault." if count > 1 else ""
        raise ExpressionError(f"at index {index} of for_each: {fault}{more}", found=refused)
    return refused


async def _collect_issues(audit: AuditSpec, evaluator: Evaluator, finding: Awaitable[Any]) -> list[Issue]:
    faults: list[Exception] = []
    issues: list[Issue] = []
    try:
        elements = _list_elements(audit, await finding)
    except Exception as error:  # noqa: BLE001  # what a plug-in gave is anybody's object, and reading it runs its code
        faults.append(error)
        elements = _list_elements(audit, list(getattr(error, "found", ())))
    for element in elements[:MAX_ISSUES]:
        try:
            issues.append(await _build_issue(audit, evaluator, element))
        except Exception as error:  # noqa: BLE001  # as above
            faults.append(error)
            if isinstance(error, ExpressionTimeout):
                break  # the messages of further findings would take as long
    if (more := len(elements) - MAX_ISSUES) > 0:
        sentence = f"The audit “{audit.name}” found {more:,} more; the first {MAX_ISSUES} are kept."
        issues.append(Issue(code=MORE_ISSUES, severity=audit.severity, audit=audit.name, description=sentence))
    if faults:
        fully, first = "fully " if issues else "", faults[0]
        is_sentence = isinstance(first, (ExpressionError, ValueError))
        reason = str(first) if is_sentence else f"its result can't be read ({type(first).__name__})."
        more_faults = f" It is the first of {len(faults):,} faults." if len(faults) > 1 else ""
        sentence = f"The audit “{audit.name}” could not be {fully}evaluated: {reason}{more_faults}"
        issues.append(_critical(AUDIT_ERROR, sentence, audit.name))
    return issues


def build_code(name: str) -> str:
    """The code of an audit's issues: its name in lower case, words joined by ``_``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "audit"


def _list_elements(audit: AuditSpec, finding: Any) -> list[Any]:
    """The findings in what a rule gave: None, a bool, or any number of issues, maps and texts."""
    if finding is None or finding is True:
        return []
    if finding is False:
        return [None]
    if not isinstance(finding, list):
        return [finding]
    if not audit.rule.startswith(PREFIX):
        return finding
    # What Python gives for an element stands for the same as if it were all: ``[check(line) for line in lines]``.
    return [None if one is False else one for one in finding if one is not None and one is not True]


def _read_fields(element: Any) -> dict[str, Any]:
    """The fields of an issue that a finding says itself."""
    if isinstance(element, Issue):
        return element.model_dump(mode="json", exclude_unset=True)
    if isinstance(element, BaseModel):
        return element.model_dump(mode="json")
    if isinstance(element, Mapping):
        return dict(element)
    if isinstance(element, str):
        return {"description": element}
    return {}


def _begin_refused(audit: AuditSpec, refused: _RefusedItem) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the issue of an element of ``for_each``, which says none itself, and what expressions see."""
    path = parse_output_path(audit.for_each or "")
    # Where the issue has a path, the element stands there.
    fields = {"context": {"item": refused.value}} if path is None else {"path": format_pointer((*path, refused.index))}
    return fields, {"item": refused.value, "index": refused.index}


def _begin_found(element: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that a finding says of its issue, and what expressions see of it."""
    # Null in a field that the audit added is a finding; in one of ours it says nothing.
    own = _read_fields(element).items()
    fields = {key: value for key, value in own if value is not None or key not in Issue.model_fields}
    if isinstance(fields.get("severity"), str):
        fields["severity"] = fields["severity"].strip().lower()
    if not isinstance(element, (BaseModel, Mapping, str, type(None))):
        fields["context"] = {"item": element}
    return fields, {"item": clean_value(dict(element) if isinstance(element, Mapping) else element).value}


async def _build_issue(audit: AuditSpec, evaluator: Evaluator, element: Any) -> Issue:
    is_refused = isinstance(element, _RefusedItem)
    own, variables = _begin_refused(audit, element) if is_refused else _begin_found(element)
    fields = {"code": build_code(audit.name), "severity": audit.severity.value, "audit": audit.name, **own}
    if audit.message is not None:
        fields["description"] = await _evaluate_text(audit.message, "message", evaluator, variables)
    elif audit.message_template is not None:
        fields["description"] = parse_template(audit.message_template).render({**evaluator.variables, **variables})
    if audit.path is not None:
        fields["path"] = await _evaluate_text(audit.path, "path", evaluator, variables)
    if audit.suggestions is not None:
        suggestions = await evaluator.evaluate("suggestions", audit.suggestions, **variables)
        fields["suggestions"] = suggestions if isinstance(suggestions, list) else [suggestions]
    if isinstance(fields.get("suggestions"), str):
        fields["suggestions"] = [fields["suggestions"]]
    if "description" not in fields:
        item = variables["item"]
        what = "did not pass" if item is None else f"{'refused' if is_refused else 'found'} {dump_json(item)[:500]}"
        fields["description"] = f"The audit “{audit.name}” {what}."
    try:
        return Issue.model_validate(clean_value(fields).value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ExpressionError(f"it raised an issue whose “{place}” is wrong: {first['msg']}.") from error


async def _evaluate_text(text: str, field: str, evaluator: Evaluator, variables: Mapping[str, Any]) -> str:
    value = await evaluator.evaluate(field, text, **variables)
    if not isinstance(value, str):
        raise ExpressionError(f"its {field} gave {describe_type(value)}; a text is needed.")
    return value
