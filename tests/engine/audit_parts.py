"""What tests of audits and verdicts share: an output, and ways to hold it against one audit or a whole step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from flows.engine.audits import run_audit
from flows.engine.evaluation import Evaluator
from flows.engine.history import Issue, Severity
from flows.engine.judging import Judgement, judge_output
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec
from tests.engine.builders import make_step

OUTPUT = {
    "title": "October",
    "lines": [{"text": "Paper", "amount": 120.0}, {"text": "Freight", "amount": 11.5}, {"text": "Tape", "amount": 3.0}],
}


@dataclass(frozen=True)
class AuditResult:
    """The issues that one audit raised, and whether it passed by its own ``fail_at``."""

    issues: tuple[Issue, ...]
    passed: bool


def make_evaluator(registry: Registry | None = None, output: Any = OUTPUT) -> Evaluator:
    variables = {"output": output, "input": {"plan": "team"}, "steps": [{"output": {"plan": "team"}}]}
    return Evaluator(variables, registry or Registry())


async def run_rule(
    rule: str, *, registry: Registry | None = None, typed: BaseModel | None = None, **fields: Any
) -> AuditResult:
    """The result of an audit called “Cheap lines” with this rule."""
    audit = AuditSpec(name="Cheap lines", rule=rule, **fields)
    issues = await run_audit(audit, make_evaluator(registry), typed)
    return AuditResult(tuple(issues), audit.is_passed_with(issues))


async def run_python(function: Callable[..., Any], **options: Any) -> AuditResult:
    """The result of a registered audit."""
    registry = Registry()
    registry.audit("check")(function)
    return await run_rule("python:check", registry=registry, **options)


def the_issue(result: AuditResult) -> Issue:
    (issue,) = result.issues
    return issue


def assert_broken(result: AuditResult, words: str) -> None:
    """It is a critical audit error that says ``words``, and can be stored as it is."""
    issue = the_issue(result)
    assert (issue.code, issue.severity, issue.audit) == ("audit_error", Severity.CRITICAL, "Cheap lines")
    assert issue.description.startswith("The audit “Cheap lines” could not be evaluated: ")
    assert words in issue.description
    assert "\0" not in issue.description
    issue.description.encode()
    assert not result.passed


async def judge(output: dict[str, Any], *, registry: Registry | None = None, **fields: Any) -> Judgement:
    """The verdict on an output of a step with these fields; by default its output is ``{"text": …}``."""
    variables = {"input": {"topic": "tea"}, "steps": [{"output": {"topic": "tea"}}], "previous": None}
    return await judge_output(make_step(**fields), output, variables, registry or Registry())


def rules(*texts: str, **fields: Any) -> tuple[AuditSpec, ...]:
    return tuple(AuditSpec(name=f"Rule {number}", rule=text, **fields) for number, text in enumerate(texts, start=1))
