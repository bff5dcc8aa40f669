"""What became of an output in the panel that tries a step, as the panel shows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.engine.history import Attempt, Outcome
from flows.engine.issues import Issue
from flows.engine.plugins import registry
from flows.engine.spec import StepSpec
from runs import models
from runs.models import Run
from runs.pages.attempt_view import AttemptView, view_attempt
from runs.pages.badges import STATES
from runs.pages.json_lines import Listing, list_json, show_invisible
from runs.stored_history import build_issues
from runs.try_out.model_call import CallResult
from runs.try_out.verdict import AuditVerdict, Verdict, judge

if TYPE_CHECKING:
    from runs.admin.try_trial import Trial


@dataclass(frozen=True, slots=True)
class ShownAudit:
    """One audit: whether it passed, and how many issues it raised."""

    name: str
    state: str
    count: int
    fail_at: str


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """An output beside its issues, what each audit said, and what that comes to."""

    title: str
    attempt: AttemptView
    audits: tuple[ShownAudit, ...] = ()
    was_audited: bool = False
    pass_rule: str = ""
    """The text of the pass rule, if it decided."""
    raw_output: Listing | None = None
    earlier: str = ""
    """The outcome that is stored of the same output."""
    call: CallResult | None = None
    can_check_again: bool = False

    @property
    def sentence(self) -> str:
        """The outcome in words, for those who don't see the panel change."""
        return f"{self.title}: {STATES[self.attempt.state].word}."


def show_verdict(
    trial: Trial,
    output: dict[str, Any] | None,
    *,
    title: str,
    notes: tuple[Issue, ...] = (),
    earlier: Attempt | None = None,
    call: CallResult | None = None,
) -> ShownVerdict:
    """Judge an output of the tried step. None stands for a reply of ``call`` that brought none.

    ``notes`` are issues that came up before; ``earlier`` is the stored attempt that the output is of.
    """
    if output is None:
        assert call is not None and call.reply is not None
        attempt = _view(trial, Outcome.INVALID, issues=call.reply.issues, raw=call.reply.raw)
        return ShownVerdict(title, attempt, call=call)
    assert trial.spec is not None and trial.basis is not None
    verdict = asyncio.run(judge(trial.spec, trial.basis, trial.index, output, registry))
    judgement = verdict.judgement
    attempt = _view(
        trial,
        judgement.outcome,
        output=judgement.output,
        issues=(*notes, *judgement.issues),
        failure_reason=judgement.failure_reason or "",
    )
    return ShownVerdict(
        title,
        attempt,
        audits=tuple(_show_audit(audit) for audit in verdict.audits),
        was_audited=verdict.was_audited,
        pass_rule=_find_pass_rule(trial.step, verdict),
        raw_output=None if judgement.raw_output is None else list_json(judgement.raw_output),
        earlier=earlier.outcome.value if earlier else "",
        call=call,
        can_check_again=call is not None,
    )


def show_error(trial: Trial, result: CallResult) -> ShownVerdict:
    """A call that brought no answer."""
    error = result.error
    assert error is not None
    shown = {"message": error.message, "status": error.status, "retry_after": error.retry_after}
    return ShownVerdict("What the model answered", _view(trial, Outcome.ERRORED, error=shown), call=result)


def _view(
    trial: Trial,
    outcome: Outcome,
    *,
    output: dict[str, Any] | None = None,
    issues: tuple[Issue, ...] = (),
    failure_reason: str = "",
    raw: str | None = None,
    error: dict[str, Any] | None = None,
) -> AttemptView:
    """What happened as the page of a run shows an attempt; of rows that are not stored."""
    number = (trial.basis.told_of if trial.basis else 0) + 1
    row = models.Attempt(
        step=models.Step(index=trial.index, name=trial.step.name),
        number=number,
        outcome=outcome.value,
        output=output,
        failure_reason=failure_reason,
        error=error,
    )
    row.unusable_output = raw  # type: ignore[attr-defined]  # where run pages annotate it
    return view_attempt(row, build_issues(row, issues), trial.step, True, Run())


def _show_audit(audit: AuditVerdict) -> ShownAudit:
    state = Outcome.PASSED if audit.passed else Outcome.FAILED
    return ShownAudit(show_invisible(audit.name), state.value, len(audit.issues), audit.fail_at)


def _find_pass_rule(step: StepSpec, verdict: Verdict) -> str:
    return step.pass_expression or "" if verdict.was_audited else ""
