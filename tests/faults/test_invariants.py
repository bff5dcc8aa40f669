"""The judge of the fault suite: what it must not let pass, without which no other test here says anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.faults.invariants import Death, StoredAttempt, StoredRun, judge
from tests.faults.provider import ReceivedCall

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def make_attempt(number: int = 1, outcome: str = "passed", second: int = 0, **fields: Any) -> StoredAttempt:
    """An attempt of step 1 that took a second and ten tokens, none if it was interrupted."""
    begin = NOON + timedelta(seconds=second)
    values: dict[str, Any] = {"step": 1, "is_call": True, "usage_rows": 1, "cost": Decimal("0.1"), "issues": {}}
    values |= {"usage": {"total": 0 if outcome == "interrupted" else 10}}
    values |= {"started_at": begin, "ended_at": begin + timedelta(seconds=1)}
    return StoredAttempt(number=number, outcome=outcome, **{**values, **fields})


def make_run(*attempts: StoredAttempt, **fields: Any) -> StoredRun:
    """Run 7, which succeeded with these attempts; its totals are right."""
    tokens = sum(attempt.usage["total"] for attempt in attempts)
    values: dict[str, Any] = {"status": "succeeded", "end_reason": "all_steps_passed", "end_sentence": "", "crashes": 0}
    values |= {"created_at": NOON, "ended_at": NOON + timedelta(seconds=60), "attempts": attempts}
    values |= {"counts": {"attempts": len(attempts), "steps passed": 1, "total tokens": tokens}}
    values |= {"cost": sum(attempt.cost or Decimal(0) for attempt in attempts)}
    values |= {"planned_end": ("succeeded", "all_steps_passed")}
    return StoredRun(pk=7, **{**values, **fields})


def make_calls(*numbers: int) -> list[ReceivedCall]:
    return [ReceivedCall(f"installation-7-1-{number}") for number in numbers]


INTERRUPTED = (make_attempt(1, "interrupted"), make_attempt(2, second=10))


def test_a_call_that_was_interrupted_by_a_death_is_repeated_once() -> None:
    death = Death("drain", NOON, NOON + timedelta(seconds=0.1))
    verdict = judge([make_run(*INTERRUPTED)], make_calls(1, 2), [death])
    assert (verdict.problems, verdict.repeated, verdict.in_flight) == ([], 1, 1)


@pytest.mark.parametrize(
    ("run", "calls", "complaint"),
    [
        (make_run(*INTERRUPTED), [1, 2], "it was not in flight when something died"),
        (make_run(make_attempt()), [1, 1], "2 times"),
        (make_run(make_attempt()), [1, 2], "nothing of it is stored"),
        (make_run(make_attempt()), [], "the provider got no such call"),
        (make_run(make_attempt(), make_attempt()), [1], "numbered"),
        (make_run(make_attempt(step=2)), [], "its steps are"),
        (make_run(make_attempt(usage_rows=0)), [1], "0 rows of usage"),
        (make_run(make_attempt(outcome="", ended_at=None, usage_rows=0)), [1], "attempts under way"),
        (make_run(make_attempt(), counts={"total tokens": 9}), [1], "9 total tokens"),
        (make_run(make_attempt(), cost=None), [1], "it cost"),
        (make_run(make_attempt(), planned_end=None), [1], "by its history it goes on"),
        (make_run(make_attempt(), status="queued", end_reason="", ended_at=None), [1], "by its history it ended"),
        (make_run(make_attempt(), history_error="Attempt 2 can't follow"), [1], "can't be read"),
    ],
)
def test_what_is_wrong_is_named(run: StoredRun, calls: list[int], complaint: str) -> None:
    assert complaint in "\n".join(judge([run], make_calls(*calls)).problems)
