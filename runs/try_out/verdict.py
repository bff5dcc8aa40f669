"""What the audits of a step say about one output, and what the step decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.engine.errors import SpecError
from flows.engine.evaluation import step_variables
from flows.engine.history import Attempt, Outcome
from flows.engine.issues import Issue, Severity
from flows.engine.judgement import Judgement, judge_output
from flows.engine.plugins import Registry
from flows.engine.spec import FlowSpec, StepSpec
from runs.try_out.basis import Basis
from runs.try_out.patience import begin_patience


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What one audit says, by its own ``fail_at``."""

    name: str
    fail_at: Severity
    issues: tuple[Issue, ...]

    @property
    def passed(self) -> bool:
        return not any(issue.severity.at_least(self.fail_at) for issue in self.issues)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an output, and what each audit had to say about it."""

    judgement: Judgement
    audits: tuple[AuditVerdict, ...]
    """In the order of the step; empty where none was asked, since the output doesn't fit its schema."""

    @property
    def was_audited(self) -> bool:
        return self.judgement.outcome is not Outcome.INVALID


async def judge(spec: FlowSpec, basis: Basis, index: int, output: dict[str, Any], registry: Registry) -> Verdict:
    """Judge an ``output`` (clean JSON) of step ``index`` as an attempt would be judged. Never raises."""
    step = spec.step(index)
    variables = step_variables(spec, basis.before, index)
    try:
        judgement = await judge_output(step, output, variables, registry, begin_patience())
    except SpecError as error:
        # The schema is being written: no attempt would come so far.
        issue = Issue(code="unusable_schema", severity=Severity.CRITICAL, description=error.problems[0].message)
        judgement = Judgement(Outcome.INVALID, output, None, (issue,))
    if judgement.outcome is Outcome.INVALID:
        return Verdict(judgement, ())
    audits = tuple(
        AuditVerdict(name, fail_at, tuple(issue for issue in judgement.issues if issue.audit == name))
        for name, fail_at in _list_audits(step, registry)
    )
    return Verdict(judgement, audits)


def find_output(attempt: Attempt) -> dict[str, Any] | None:
    """What came back in a stored attempt, before its sanitizer; None where that was no object."""
    came = attempt.raw_output if attempt.raw_output is not None else attempt.output
    return came if isinstance(came, dict) else None


def _list_audits(step: StepSpec, registry: Registry) -> Iterator[tuple[str, Severity]]:
    known = registry.output_types.get(step.output_type or "")
    if known is not None and callable(getattr(known.model, "audit", None)):
        yield step.output_type or "", Severity.CRITICAL
    for audit in step.audits:
        yield audit.name, audit.fail_at
