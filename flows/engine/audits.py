"""Audits: what holds an output against rules, and what makes issues of their findings."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.evaluation import Evaluator, call_function, find_function
from flows.engine.issues import Issue, Severity
from flows.engine.json_values import clean_value, describe_type, dump_json
from flows.engine.message_template import parse_template
from flows.engine.plugins import PREFIX, PythonFunction, copy_value
from flows.engine.spec import AuditSpec

AUDIT_ERROR = "audit_error"
"""The code of the issue that an audit which can't be evaluated becomes."""

MOST_ISSUES = 500
"""Issues that one audit keeps of one output; one more issue then says how many there were."""

MORE_ISSUES = "more_issues"
"""The code of that one more issue: of the audit, not all issues are there."""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The issues that one audit raised, and whether it passed by its own ``fail_at``."""

    issues: tuple[Issue, ...]
    passed: bool


async def run_audit(audit: AuditSpec, evaluator: Evaluator, typed_output: BaseModel | None) -> AuditResult:
    """Hold the output among the evaluator's variables against one audit. Never raises: what can't be evaluated is
    itself a critical issue, beside the audit's usable findings.

    A Python audit is handed a copy of ``typed_output`` as its ``output`` where the step has a registered type.
    """
    return await _make_result(audit, evaluator, _evaluate_rule(audit, evaluator, typed_output))


async def run_type_audit(type_name: str, evaluator: Evaluator, typed_output: BaseModel) -> AuditResult:
    """Run the method ``audit`` of a registered output type, if it has one, as an audit named like the type."""
    if not callable(getattr(typed_output, "audit", None)):
        return AuditResult((), passed=True)
    return await _make_result(
        make_type_audit(type_name), evaluator, _call_type_audit(type_name, evaluator, typed_output)
    )


async def _call_type_audit(type_name: str, evaluator: Evaluator, typed_output: BaseModel) -> Any:
    method = copy_value(typed_output).audit
    return await call_function(type_name, PythonFunction(type_name, method), {}, evaluator.patience)


def make_type_audit(type_name: str) -> AuditSpec:
    """The audit that the method ``audit`` of a registered output type stands for."""
    return AuditSpec(name=type_name, rule=f"{PREFIX}{type_name}")


def error_issue(audit: str, description: str) -> Issue:
    """The critical issue that a broken audit or pass rule becomes."""
    return Issue(code=AUDIT_ERROR, severity=Severity.CRITICAL, description=description, audit=audit)


def _explain(error: Exception) -> str:
    if isinstance(error, (ExpressionError, ValueError)):
        return str(error)
    return f"what it gave can't be read ({type(error).__name__})."


def make_code(name: str) -> str:
    """The code of an audit's issues: its name in lower case, words joined by ``_``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "audit"


async def _evaluate_rule(audit: AuditSpec, evaluator: Evaluator, typed_output: BaseModel | None) -> Any:
    if not audit.rule.startswith(PREFIX):
        finding = await evaluator.evaluate("rule", audit.rule)
        if not isinstance(finding, (bool, list)):
            raise ExpressionError(f"the rule gave {describe_type(finding)}; a rule gives true, false or a list.")
        return finding
    function = find_function(audit.rule, "rule", evaluator.registry)
    offered = evaluator.variables
    if typed_output is not None:
        offered = offered.extend(output=typed_output)
    return await evaluator.call(audit.rule, function, offered)


async def _make_result(audit: AuditSpec, evaluator: Evaluator, finding: Awaitable[Any]) -> AuditResult:
    """Make issues of what a rule gives. One more issue says what was wrong with findings that can't be used."""
    faults: list[Exception] = []
    issues: list[Issue] = []
    try:
        elements = _list_elements(audit, await finding)
    except Exception as error:  # noqa: BLE001  # what a plug-in gave is anybody's object, and reading it runs its code
        faults.append(error)
        elements = _list_elements(audit, list(getattr(error, "found", ())))
    for element in elements[:MOST_ISSUES]:
        try:
            issues.append(await _make_issue(audit, evaluator, element))
        except ExpressionTimeout as error:
            # The messages of further findings would take as long.
            faults.append(error)
            break
        except Exception as error:  # noqa: BLE001  # as above
            faults.append(error)
    if (more := len(elements) - MOST_ISSUES) > 0:
        sentence = f"The audit “{audit.name}” found {more:,} more; the first {MOST_ISSUES} are kept."
        issues.append(Issue(code=MORE_ISSUES, severity=audit.severity, audit=audit.name, description=sentence))
    if faults:
        issues.append(error_issue(audit.name, _describe_faults(audit, faults, is_partial=bool(issues))))
    return AuditResult(tuple(issues), passed=audit.is_passed_with(issues))


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


def _describe_faults(audit: AuditSpec, faults: list[Exception], *, is_partial: bool) -> str:
    fully = "fully " if is_partial else ""
    more = f" It is the first of {len(faults):,} faults." if len(faults) > 1 else ""
    return f"The audit “{audit.name}” could not be {fully}evaluated: {_explain(faults[0])}{more}"


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


async def _make_issue(audit: AuditSpec, evaluator: Evaluator, element: Any) -> Issue:
    own = _read_fields(element)
    fields: dict[str, Any] = {"code": make_code(audit.name), "severity": audit.severity.value, "audit": audit.name}
    # Null in a field that the audit added is a finding; in one of ours it says nothing.
    fields.update((key, value) for key, value in own.items() if value is not None or key not in Issue.model_fields)
    if isinstance(fields["severity"], str):
        fields["severity"] = fields["severity"].strip().lower()
    if not isinstance(element, (BaseModel, Mapping, str, type(None))):
        fields["context"] = {"item": element}
    item = clean_value(dict(element) if isinstance(element, Mapping) else element).value
    if audit.message is not None:
        fields["description"] = await _evaluate_text(audit, evaluator, "message", audit.message, item)
    elif audit.message_template is not None:
        fields["description"] = parse_template(audit.message_template).render(evaluator.variables.extend(item=item))
    if audit.path is not None:
        fields["path"] = await _evaluate_text(audit, evaluator, "path", audit.path, item)
    if audit.suggestions is not None:
        suggestions = await evaluator.evaluate("suggestions", audit.suggestions, item=item)
        fields["suggestions"] = suggestions if isinstance(suggestions, list) else [suggestions]
    if isinstance(fields.get("suggestions"), str):
        fields["suggestions"] = [fields["suggestions"]]
    fields.setdefault("description", _describe_by_default(audit, item))
    try:
        return Issue.model_validate(clean_value(fields).value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ExpressionError(f"it raised an issue whose “{place}” is wrong: {first['msg']}.") from error


async def _evaluate_text(audit: AuditSpec, evaluator: Evaluator, field: str, text: str, item: Any) -> str:
    value = await evaluator.evaluate(field, text, item=item)
    if not isinstance(value, str):
        raise ExpressionError(f"its {field} gave {describe_type(value)}; a text is needed.")
    return value


def _describe_by_default(audit: AuditSpec, item: Any) -> str:
    if item is None:
        return f"The audit “{audit.name}” did not pass."
    return f"The audit “{audit.name}” found {dump_json(item)[:500]}."
