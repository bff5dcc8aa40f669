"""Storing invented runs, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from flows.engine import history as engine
from flows.engine.history import sum_usage
from runs.facets import Facet, add_facets
from runs.models import Attempt, AttemptRequest, FacetKind, Issue, Run, Step, TokenUsage
from runs.rollup import count_ended_runs
from runs.seeding.flows import SeededVersion, load_seeded_flows
from runs.seeding.scripts import BEGIN, Script
from runs.stored_history import build_issues, build_usage

BATCH = 500
"""Runs stored in one transaction."""
USERS = ("ada", "grace", "linus")
LABELS = ("nightly", "pilot", "release-check")
_WORDS = (
    "amber",
    "birch",
    "cedar",
    "dune",
    "ember",
    "fjord",
    "grove",
    "harbour",
    "iris",
    "juniper",
    "meadow",
    "quartz",
)
_RARE = 1_000
"""One run in so many holds a word that no other kind of run has."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """One run that is to be stored."""

    version: SeededVersion
    script: Script
    input: dict[str, Any]
    user: User
    labels: list[str]
    created_at: datetime
    started_at: datetime

    @property
    def facets(self) -> frozenset[Facet]:
        return self.script.facets | {(FacetKind.LABEL, label) for label in self.labels}


def seed_history(
    *,
    runs: int,
    until: datetime,
    days: float = 90,
    seed: int = 1,
    report: Callable[[str, int], None] = lambda _what, _done: None,
) -> None:
    """Store ``runs`` ended runs, about four attempts each, that ended in the ``days`` before ``until``.

    They belong to flows of their own (see ``flows``). ``report`` is told after each batch what was done, and for how
    many runs so far.
    """
    length = timedelta(days=days)
    flows = load_seeded_flows(seed=seed, since=until - length, length=length)
    users = [User.objects.get_or_create(username=f"seeded-{name}", defaults={"is_active": False})[0] for name in USERS]
    chance = Random(seed)  # noqa: S311  # repeatable, not secret
    plans = _plan_runs(runs, flows, users, since=until - length, length=length, random=chance)
    done = 0
    while batch := list(islice(plans, BATCH)):
        with transaction.atomic():
            _store(batch)
        done += len(batch)
        report("stored", done)
    counted = 0
    while count := count_ended_runs(limit=BATCH):
        counted += count
        report("counted", counted)


def _plan_runs(
    count: int,
    flows: list[list[SeededVersion]],
    users: list[User],
    *,
    since: datetime,
    length: timedelta,
    random: Random,
) -> Iterator[_Plan]:
    for number in range(count):
        created_at = since + length * number / count
        # Newer versions take over by and by.
        versions = random.choices(flows, weights=[5, 3, 2, *[1] * len(flows)][: len(flows)])[0]
        latest = min(number * len(versions) // count, len(versions) - 1)
        version = versions[latest if random.random() < 0.9 else random.randint(0, latest)]
        words = [*random.sample(_WORDS, k=4), f"order-{number:07d}"]
        if number % _RARE == _RARE // 2:
            words.append("rarity")
        yield _Plan(
            version=version,
            script=random.choice(version.scripts),
            input=version.make_input(" ".join(words)),
            user=random.choices(users, weights=(6, 3, 1))[0],
            labels=random.sample(LABELS, k=1) if random.random() < 0.1 else [],
            created_at=created_at,
            started_at=created_at + timedelta(seconds=round(random.expovariate(2), 3)),
        )


def _store(plans: list[_Plan]) -> None:
    """Store the runs with all that belongs to them."""
    runs = Run.objects.bulk_create([_build_run(plan) for plan in plans])
    pairs = list(zip(runs, plans, strict=True))
    steps = Step.objects.bulk_create([step for run, plan in pairs for step in _build_steps(run, plan)])
    places = {(step.run_id, step.index): step for step in steps}
    made = [
        (_build_attempt(places[run.pk, attempt.step], attempt, plan), attempt)
        for run, plan in pairs
        for attempt in plan.script.attempts
    ]
    Attempt.objects.bulk_create([row for row, _ in made])
    AttemptRequest.objects.bulk_create(
        [AttemptRequest(attempt=row, body=attempt.request) for row, attempt in made if attempt.request is not None]
    )
    Issue.objects.bulk_create([issue for row, attempt in made for issue in build_issues(row, attempt.issues)])
    TokenUsage.objects.bulk_create([build_usage(row, attempt.usage) for row, attempt in made])
    add_facets((run.pk, facet) for run, plan in pairs for facet in sorted(plan.facets))


def _build_run(plan: _Plan) -> Run:
    script, version = plan.script, plan.version.version
    usage = sum_usage(attempt.usage for attempt in script.attempts)
    issues = [issue.severity.value for attempt in script.attempts for issue in attempt.issues]
    passed = sum(attempt.passed for attempt in script.attempts)
    counted = [attempt for attempt in script.attempts if attempt.counts]
    ended_at = plan.started_at + timedelta(seconds=script.seconds)
    return Run(
        flow_id=version.flow_id,
        version_id=version.pk,
        input=plan.input,
        model_settings={"model": script.model, "temperature": None, "max_tokens": None},
        started_by=plan.user,
        labels=plan.labels,
        status=script.status,
        end_reason=script.reason,
        end_sentence=script.sentence,
        blocking_step=script.blocking[0] if script.blocking else None,
        blocking_attempt=script.blocking[1] if script.blocking else None,
        created_at=plan.created_at,
        available_at=plan.created_at,
        started_at=plan.started_at,
        ended_at=ended_at,
        revision=len(script.attempts) + 1,
        step_count=len(version.flow_spec.steps),
        steps_passed=passed,
        attempt_count=len(script.attempts),
        retry_count=len(counted) - len({attempt.step for attempt in counted}),
        **{f"issues_{name}": issues.count(name) for name in ("low", "medium", "high", "critical")},
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.total,
        cached_tokens=usage.cached,
        reasoning_tokens=usage.reasoning,
        cost=usage.cost,
        unpriced_count=usage.unpriced,
    )


def _build_steps(run: Run, plan: _Plan) -> Iterator[Step]:
    names = [step.name for step in plan.version.version.flow_spec.steps]
    for index in sorted({attempt.step for attempt in plan.script.attempts}):
        yield Step(run=run, index=index, name=names[index - 1])


def _build_attempt(step: Step, attempt: engine.Attempt, plan: _Plan) -> Attempt:
    shift = plan.started_at - BEGIN
    return Attempt(
        step=step,
        number=attempt.number,
        outcome=attempt.outcome.value,
        input=attempt.input,
        output=attempt.output,
        model=attempt.model or "",
        finish_reason=attempt.finish_reason or "",
        error=attempt.error.model_dump(mode="json") if attempt.error else None,
        started_at=attempt.started_at + shift if attempt.started_at else None,
        ended_at=attempt.ended_at + shift if attempt.ended_at else None,
    )
