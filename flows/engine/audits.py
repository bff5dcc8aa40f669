"""One audit of an output: its rule, and the issues that its findings become."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.evaluation import Evaluator
from flows.engine.expression_paths import parse_output_path
from flows.engine.history import Issue, Severity
from flows.engine.json_values import clean_value, describe_type, dump_json, format_pointer
from flows.engine.message_template import parse_template
from flows.engine.plugin_calls import copy_value
from flows.engine.plugins import PREFIX, PythonFunction
from flows.engine.spec import AuditSpec

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
    """The elements that the rule refuses. Raises ``ExpressionError``, with those ``found`` nonetheless."""
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
    except Exception as error:  # noqa: BLE001  # what a plug-in gave may be any object, and reading it runs its code
        faults.append(error)
        elements = _list_elements(audit, list(getattr(error, "found", ())))
    for element in elements[:MAX_ISSUES]:
        try:
            issues.append(await _build_issue(audit, evaluator, element))
        except Exception as error:  # noqa: BLE001  # as above
            faults.append(error)
            if isinstance(error, ExpressionTimeout):
                break  # the messages of further findings would take as long
    if more := elements[MAX_ISSUES:]:
        sentence = f"The audit “{audit.name}” found {len(more):,} more; the first {MAX_ISSUES} are kept."
        severity = max(_find_severity(audit, element) for element in more)
        issues.append(Issue(code=MORE_ISSUES, severity=severity, audit=audit.name, description=sentence))
    if faults:
        fully, first = "fully " if issues else "", faults[0]
        is_sentence = isinstance(first, (ExpressionError, ValueError))
        reason = str(first) if is_sentence else f"its result can't be read ({type(first).__name__})."
        more_faults = f" It is the first of {len(faults):,} faults." if len(faults) > 1 else ""
        sentence = f"The audit “{audit.name}” could not be {fully}evaluated: {reason}{more_faults}"
        issues.append(Issue(code=AUDIT_ERROR, severity=Severity.CRITICAL, description=sentence, audit=audit.name))
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


def _find_severity(audit: AuditSpec, element: Any) -> Severity:
    """That of the issue of a finding, which is not built."""
    try:
        return Severity(_begin_found(element)[0]["severity"])
    except Exception:  # noqa: BLE001  # as above; most say none of their own
        return audit.severity


def _begin_refused(audit: AuditSpec, refused: _RefusedItem) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the issue of an element of ``for_each``, which says none itself, and what expressions see."""
    path = parse_output_path(audit.for_each or "")
    # Where the issue has a path, the element is there.
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
    fields = {"code": build_code(audit.name), "severity": audit.severity.value, **own, "audit": audit.name}
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
