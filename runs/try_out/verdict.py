"""What the audits of a step say about one output, and what the step decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.engine.audits import make_type_audit
from flows.engine.errors import SpecError
from flows.engine.evaluation import step_variables
from flows.engine.history import Attempt, Outcome
from flows.engine.issues import Issue, Severity
from flows.engine.judgement import Judgement, judge_output
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from runs.try_out.basis import Basis
from runs.try_out.patience import begin_patience


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What one audit says."""

    audit: AuditSpec
    issues: tuple[Issue, ...]

    @property
    def name(self) -> str:
        return self.audit.name

    @property
    def fail_at(self) -> str:
        """The severity that fails the audit, or ``never``."""
        return self.audit.threshold or "never"

    @property
    def passed(self) -> bool:
        return self.audit.is_passed_with(self.issues)


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
        AuditVerdict(audit, tuple(issue for issue in judgement.issues if issue.audit == audit.name))
        for audit in _list_audits(step, registry)
    )
    return Verdict(judgement, audits)


def find_output(attempt: Attempt) -> dict[str, Any] | None:
    """What came back in a stored attempt, before its sanitizer; None where that was no object."""
    came = attempt.raw_output if attempt.raw_output is not None else attempt.output
    return came if isinstance(came, dict) else None


def _list_audits(step: StepSpec, registry: Registry) -> Iterator[AuditSpec]:
    known = registry.find_type(step.output_type)
    if known is not None and callable(getattr(known.model, "audit", None)):
        yield make_type_audit(step.output_type or "")
    yield from step.audits
