"""What must hold after every fault, whatever happened: nothing lost, nothing stored twice, nothing paid twice for
but what was in flight when something died."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from pydantic import BaseModel

from tests.faults.provider import ReceivedCall

ENDED = frozenset({"succeeded", "failed", "errored", "cancelled"})
PLANNED = frozenset(
    {"all_steps_passed", "step_failed", "provider_error", "call_refused", "missing_input", "expression_error"}
)
"""Ends that the history alone decides. Cancels, deadlines, crashes and budgets of whole flows come from outside."""
TRIES = frozenset({"passed", "failed", "invalid"})
"""Outcomes that count as a try of the step: an attempt without an output does not."""

Place = tuple[int, int, int]
"""Run, step, attempt."""


class StoredAttempt(BaseModel):
    """A row of an attempt, with how many rows of usage it has and what they and its issues count."""

    step: int
    number: int
    outcome: str
    is_call: bool
    usage_rows: int
    usage: dict[str, int]
    cost: Decimal | None
    issues: dict[str, int]
    started_at: datetime
    ended_at: datetime | None


class StoredRun(BaseModel):
    """A row of a run, its attempts in order, and what the planner says of its history."""

    pk: int
    status: str
    end_reason: str
    end_sentence: str
    crashes: int
    created_at: datetime
    ended_at: datetime | None
    counts: dict[str, int]
    """The totals on the run's row: attempts, retries, steps passed, issues by severity, tokens by kind."""
    cost: Decimal | None
    attempts: list[StoredAttempt]
    planned_end: tuple[str, str] | None = None
    """Status and reason of the end that the planner sees in the history; None where the run should go on."""
    history_error: str = ""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def longest_stuck(self) -> timedelta:
        """The longest time that the run stood still once it had begun: between the end of an attempt and the next
        one's start, where a worker died between the start of the attempt and the next one's."""
        begins = [*(attempt.started_at for attempt in self.attempts[1:]), self.ended_at]
        ends = [one.started_at if one.outcome == "interrupted" else one.ended_at for one in self.attempts]
        # A run that was cancelled in the queue ended without an attempt.
        gaps = [begin - end for end, begin in zip(ends, begins, strict=False) if begin is not None and end is not None]
        return max(gaps, default=timedelta(0))


@dataclass(frozen=True)
class Death:
    """Something that took a worker's calls down with it, some time between two moments."""

    victim: str
    earliest: datetime
    latest: datetime

    def struck(self, attempt: StoredAttempt) -> bool:
        """Whether the attempt was under way then."""
        return attempt.started_at <= self.latest and (attempt.ended_at is None or attempt.ended_at >= self.earliest)


@dataclass
class Verdict:
    """What was found: the figures of the table, and a sentence for everything that is wrong."""

    runs: Counter[str] = field(default_factory=Counter)
    """By status."""
    ends: Counter[str] = field(default_factory=Counter)
    """Those that have ended, by status and reason: ``errored (crashed)``."""
    attempts: int = 0
    stored_twice: int = 0
    lost: int = 0
    repeated: int = 0
    in_flight: int = 0
    """Calls that were in flight when something died, over all deaths: at most this number may be repeated."""
    longest_stuck: timedelta = timedelta(0)
    problems: list[str] = field(default_factory=list)


def judge(runs: Sequence[StoredRun], calls: Sequence[ReceivedCall], deaths: Sequence[Death] = ()) -> Verdict:
    """Hold what is stored against itself, against the planner, and against what the provider saw."""
    verdict = Verdict(runs=Counter(run.status for run in runs))
    for run in runs:
        verdict.attempts += len(run.attempts)
        verdict.ends.update([f"{run.status} ({run.end_reason})"] if run.has_ended else [])
        verdict.longest_stuck = max(verdict.longest_stuck, run.longest_stuck)
        verdict.problems += [f"Run {run.pk}: {problem}" for problem in _find_problems(run)]
    _compare(verdict, runs, calls, deaths)
    return verdict


def _find_problems(run: StoredRun) -> Iterator[str]:
    yield from _find_gaps(run)
    yield from _find_open_ends(run)
    yield from _find_wrong_totals(run)
    if run.history_error:
        yield f"its history can't be read: {run.history_error}"
    elif run.end_reason in PLANNED:
        if run.planned_end != (run.status, run.end_reason):
            yield f"it ended {run.status} ({run.end_reason}), but by its history {run.planned_end or 'it goes on'}."
    elif not run.has_ended and run.planned_end:
        yield f"it is {run.status}, but by its history it ended {run.planned_end}."


def _find_gaps(run: StoredRun) -> Iterator[str]:
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for attempt in run.attempts:
        numbers[attempt.step].append(attempt.number)
    if sorted(numbers) != list(range(1, len(numbers) + 1)):
        yield f"its steps are {sorted(numbers)}."
    for step, found in numbers.items():
        if sorted(found) != list(range(1, len(found) + 1)):
            yield f"the attempts of step {step} are numbered {found}."


def _find_open_ends(run: StoredRun) -> Iterator[str]:
    running = [attempt for attempt in run.attempts if not attempt.outcome]
    if running and run.status != "running":
        yield f"it is {run.status}, but has {len(running)} attempts under way."
    if len(running) > 1:
        yield f"it has {len(running)} attempts under way at the same time."
    for attempt in run.attempts:
        expected = 1 if attempt.outcome else 0
        if attempt.usage_rows != expected:
            yield f"attempt {_name(attempt)} ({attempt.outcome}) has {attempt.usage_rows} rows of usage."
        if bool(attempt.outcome) != (attempt.ended_at is not None):
            yield f"attempt {_name(attempt)} ({attempt.outcome}) ended at {attempt.ended_at}."


def _find_wrong_totals(run: StoredRun) -> Iterator[str]:
    expected: Counter[str] = Counter(attempts=len(run.attempts))
    expected["steps passed"] = sum(attempt.outcome == "passed" for attempt in run.attempts)
    tries = Counter(attempt.step for attempt in run.attempts if attempt.outcome in TRIES)
    expected["retries"] = sum(count - 1 for count in tries.values())
    for attempt in run.attempts:
        expected.update({f"{name} tokens": count for name, count in attempt.usage.items()})
        expected.update({f"{name} issues": count for name, count in attempt.issues.items()})
    for name, count in run.counts.items():
        if count != expected[name]:
            yield f"it says {count} {name}, its attempts say {expected[name]}."
    cost = sum((attempt.cost or Decimal(0) for attempt in run.attempts), Decimal(0))
    if (run.cost or Decimal(0)) != cost:
        yield f"it says that it cost {run.cost}, its attempts say {cost}."


def _compare(
    verdict: Verdict, runs: Sequence[StoredRun], calls: Sequence[ReceivedCall], deaths: Sequence[Death]
) -> None:
    stored: dict[Place, StoredAttempt] = {}
    for run in runs:
        for attempt in run.attempts:
            place = (run.pk, attempt.step, attempt.number)
            verdict.stored_twice += place in stored
            stored[place] = attempt
    received: defaultdict[Place, list[ReceivedCall]] = defaultdict(list)
    for call in calls:
        received[call.place].append(call)
    for place, here in received.items():
        _compare_call(verdict, place, here, stored.get(place), deaths)
    for place, attempt in stored.items():
        if attempt.is_call and attempt.outcome in {"passed", "failed", "invalid"} and place not in received:
            verdict.problems.append(f"{_name_place(place)} is {attempt.outcome}, but the provider got no such call.")
    for death in deaths:
        verdict.in_flight += sum(attempt.is_call and death.struck(attempt) for attempt in stored.values())
    if verdict.repeated > verdict.in_flight:
        verdict.problems.append(
            f"{verdict.repeated} calls were repeated, but at most {verdict.in_flight} were in flight when workers died."
        )


def _compare_call(
    verdict: Verdict,
    place: Place,
    received: Sequence[ReceivedCall],
    stored: StoredAttempt | None,
    deaths: Sequence[Death],
) -> None:
    """One attempt as the provider saw it against the same attempt as it is stored."""
    name = _name_place(place)
    if stored is None:
        verdict.lost += 1
        verdict.problems.append(f"The provider got {name}, but nothing of it is stored.")
        return
    # An interrupted call is made again under the next number; the same one must not come twice at all.
    repeated = len(received) - 1 + (stored.outcome == "interrupted")
    verdict.repeated += repeated
    if len(received) > 1:
        verdict.problems.append(f"The provider got {name} {len(received)} times.")
    if repeated and not any(death.struck(stored) for death in deaths):
        verdict.problems.append(f"{name} was repeated, but it was not in flight when something died.")


def _name(attempt: StoredAttempt) -> str:
    return f"{attempt.step}.{attempt.number}"


def _name_place(place: Place) -> str:
    run, step, number = place
    return f"attempt {step}.{number} of run {run}"
