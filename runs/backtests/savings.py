"""What other limits of a step's tries would have saved. Outcomes are those of then: nothing is judged again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Case, TextField, Value, When
from django.db.models.functions import MD5, Cast, Coalesce

from flows.engine.history import MARK, Attempt, Issue, Outcome, Severity, TokenUsage, sum_usage
from flows.engine.settling import find_accepted, has_used_tries
from flows.engine.spec import OnExhausted, StepSpec
from flows.models import Flow
from runs import models
from runs.backtests.totals import format_retries
from runs.formatting import format_cost, format_count, format_plural

MAX_RUNS = 1_000
"""The newest ended runs of a flow that are read."""
MAX_ISSUES = 30_000
"""Issues of a step in these runs; of more nothing is said: an editor waits for it."""
STALLS = (2, 3)
"""Values of ``stall_after`` that are compared."""


@dataclass(frozen=True, slots=True)
class PastTries:
    """How a step went in the newest runs that reached it."""

    runs: int
    tries: Sequence[tuple[Attempt, ...]]
    """The attempts of a run in which one of them did not pass; outputs are their digests."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What a limit would have saved."""

    retries: int
    usage: TokenUsage
    lost: int
    """Runs in which the step passed later."""


def load_past_tries(flow: Flow, name: str) -> PastTries:
    """The attempts of the step of that name in the newest runs; none if they have too many issues. Five queries."""
    ended = models.Run.objects.filter(flow=flow, outputs_removed_at=None).exclude(ended_at=None)
    run_ids = list(ended.order_by("-created_at", "-pk").values_list("pk", flat=True)[:MAX_RUNS])
    steps = models.Step.objects.filter(run__in=run_ids, name=name)
    refused = models.Attempt.objects.filter(step__in=steps, outcome__in=[Outcome.FAILED, Outcome.INVALID])
    step_ids = set(refused.values_list("step", flat=True))
    text = Cast(Coalesce("output", "raw_output"), TextField())
    # What was redacted may have differed.
    digest = Case(When(text__contains=MARK[:-1], then=Value(MARK)), default=MD5("text"), output_field=TextField())
    rows = models.Attempt.objects.filter(step__in=step_ids).exclude(outcome="").order_by("step", "number")
    columns = ("pk", "step", "number", "outcome", "usage__cost", "usage__unpriced", "digest")
    found = list(rows.annotate(text=text).annotate(digest=digest).values_list(*columns))
    issues: dict[int, list[Issue]] = {}
    named = models.Issue.objects.filter(attempt__step__in=step_ids).order_by()
    listed = list(named.values_list("attempt", "audit", "code", "path", "severity")[: MAX_ISSUES + 1])
    if len(listed) > MAX_ISSUES:
        return PastTries(0, ())
    for key, audit, code, path, severity in listed:
        issue = Issue(audit=audit, code=code, path=path, severity=Severity(severity), description="")
        issues.setdefault(key, []).append(issue)
    tries: dict[int, list[Attempt]] = {}
    for key, step, number, outcome, cost, unpriced, output in found:
        usage = TokenUsage(cost=cost, unpriced=unpriced or 0)
        attempt = Attempt(
            step=1,
            number=number,
            outcome=Outcome(outcome),
            output={"digest": output},
            issues=tuple(issues.get(key, ())),
            usage=usage,
        )
        tries.setdefault(step, []).append(attempt)
    return PastTries(steps.count(), [tuple(attempts) for attempts in tries.values()])


def sum_saving(step: StepSpec, past: PastTries) -> Saving:
    """What ``step``, with other limits than it had and ``on_exhausted=fail``, would have saved."""
    saved: list[Attempt] = []
    lost = 0
    for attempts in past.tries:
        end = _find_end(step, attempts)
        saved += attempts[end:]
        lost += attempts[-1].passed and end < len(attempts)
    return Saving(sum(one.counts for one in saved), sum_usage(one.usage for one in saved), lost)


def _find_end(step: StepSpec, attempts: tuple[Attempt, ...]) -> int:
    """After how many of the attempts the step would have been over."""
    ends = (end for end in range(1, len(attempts)) if attempts[end - 1].counts)
    return next((end for end in ends if has_used_tries(step, attempts[:end])), len(attempts))


def describe_savings(step: StepSpec, past: PastTries) -> dict[str, str]:
    """By field of the step, what some of its values would have saved, in a sentence each."""
    if not past.runs:
        return {}
    over = f"Over the last {format_plural(past.runs, 'run')}"
    plain = step.model_copy(update={"stall_after": None, "on_exhausted": OnExhausted.FAIL})
    endless = plain.model_copy(update={"max_retries": MAX_RUNS})
    stalls = [(count, sum_saving(endless.model_copy(update={"stall_after": count}), past)) for count in STALLS]
    said = [f"after {count}: {_describe(saving)}" for count, saving in stalls if saving.retries]
    never = "it was never stuck" if step.stall_after is None else "another number would have saved nothing"
    accepting = step.model_copy(update={"on_exhausted": OnExhausted.ACCEPT_BEST})
    accepted = sum(find_accepted(accepting, attempts) is not None for attempts in past.tries)
    went_on = f"{format_count(accepted)} that did not pass here would go on with the best output"
    return {
        "max_retries": f"{over} {_describe_limit(plain, past)}.",
        "stall_after": f"{over} {'; '.join(said) if said else never}.",
        "on_exhausted": f"{over} {went_on if accepted else 'no output was there to be accepted'}.",
    }


def _describe_limit(step: StepSpec, past: PastTries) -> str:
    """The smallest number of retries that loses no run that passed."""
    for limit in range(step.max_retries):
        saving = sum_saving(step.model_copy(update={"max_retries": limit}), past)
        if saving.retries and not saving.lost:
            return f"{limit} would have been enough: {_describe(saving)}"
    return "a smaller number would have saved nothing, or failed runs" if past.tries else "no retry was needed"


def _describe(saving: Saving) -> str:
    """Such as ``12 retries, $0.0480 less (3 runs passed later)``."""
    cost = f", {format_cost(saving.usage.cost, saving.usage.unpriced)}" if saving.usage.cost else ""
    lost = f" ({format_plural(saving.lost, 'run')} passed later)" if saving.lost else ""
    return f"{format_retries(saving.retries)}{cost} less{lost}"
