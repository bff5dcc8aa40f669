"""Store invented runs of flows of their own: the examples under names of their own, in several versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from django.contrib.auth.models import User
from django.db import models, transaction

from flows.engine import history as engine
from flows.engine.history import sum_usage
from flows.engine.spec import FlowSpec
from flows.examples import find_digest, load_documents
from flows.models import Flow, FlowVersion
from flows.publishing import publish_flow
from runs.facets import add_facets, list_facets
from runs.models import Attempt, AttemptRequest, FacetKind, Issue, Run, Step, TokenUsage
from runs.rollup import count_ended_runs
from runs.seeding.courses import START, Course, invent_course
from runs.stored_history import build_issues, build_usage

PREFIX = "seeded-"
"""Begins the names of these flows and users."""
VERSIONS = 3
COURSES = 48
"""Of each version."""
BATCH_SIZE = 500
"""Runs stored in one transaction."""
RARE = 1_000
"""One run in so many holds the word “rarity”."""
USERS = ("ada", "grace", "linus")
LABELS = ("nightly", "pilot", "release-check")
WORDS = (
    "amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "harbour", "iris", "juniper", "meadow", "quartz",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeededVersion:
    """One version with the courses that its runs take, and an input that fits."""

    version: FlowVersion
    courses: tuple[Course, ...]
    sample: Mapping[str, Any]

    def build_input(self, words: str) -> dict[str, Any]:
        """An input that fits, whose longest text ends with ``words``."""
        longest = max(self.sample, key=lambda name: len(self.sample[name]) if isinstance(self.sample[name], str) else 0)
        return {**self.sample, longest: f"{self.sample[longest]} {words}"}


def seed_history(
    *,
    runs: int,
    until: datetime,
    days: float = 90,
    seed: int = 1,
    report: Callable[[str, int], None] = lambda _what, _done: None,
) -> None:
    """Store ``runs`` ended runs, about four attempts each, that were created in the ``days`` before ``until``.

    ``report`` gets after each batch what was done, and for how many runs so far.
    """
    length = timedelta(days=days)
    since = until - length
    flows = _load_flows(seed=seed, since=since, length=length)
    users = [User.objects.get_or_create(username=PREFIX + name, defaults={"is_active": False})[0] for name in USERS]
    random = Random(seed)  # noqa: S311  # repeatable, not secret
    for first in range(0, runs, BATCH_SIZE):
        batch = [
            _invent_run(number, runs, flows, users, created_at=since + length * number / runs, random=random)
            for number in range(first, min(first + BATCH_SIZE, runs))
        ]
        with transaction.atomic():
            _store(batch)
        report("stored", first + len(batch))
    counted = 0
    while count := count_ended_runs(limit=BATCH_SIZE):
        counted += count
        report("counted", counted)


def _load_flows(*, seed: int, since: datetime, length: timedelta) -> list[list[SeededVersion]]:
    """The flows with their versions in order, spread over ``length``; versions of an earlier seeding are used again."""
    flows = []
    for name, document in load_documents().items():
        versions = []
        for number in range(VERSIONS):
            title = f"{document.get('title') or document['name']} (seeded)"
            varied = {**document, "name": PREFIX + name, "title": title, "max_tokens": 4000 - 200 * number}
            version = FlowVersion.objects.filter(flow__name=varied["name"], digest=find_digest(varied)).last()
            if version is None:
                version = publish_flow(spec=FlowSpec.from_document(varied), note=f"Seeded version {number + 1}")
                # Versions never change; an invented one must be older than its runs all the same.
                created_at = since + length * number / VERSIONS
                models.QuerySet(FlowVersion).filter(pk=version.pk).update(created_at=created_at)
            seeds = [f"{seed}/{name}/{number}/{course}" for course in range(COURSES)]
            courses = tuple(invent_course(version.flow_spec, seed=one) for one in seeds)
            versions.append(SeededVersion(version, courses, document["input_schema"]["examples"][0]))
        Flow.objects.get(name=PREFIX + name).make_live(versions[-1].version)
        flows.append(versions)
    return flows


def _invent_run(
    number: int,
    count: int,
    flows: list[list[SeededVersion]],
    users: list[User],
    *,
    created_at: datetime,
    random: Random,
) -> tuple[Run, Course]:
    """One of ``count`` runs, not stored yet, and the course that it takes."""
    versions = random.choices(flows, weights=[5, 3, 2, *[1] * len(flows)][: len(flows)])[0]
    # Newer versions take over by and by.
    latest = min(number * len(versions) // count, len(versions) - 1)
    seeded = versions[latest if random.random() < 0.9 else random.randint(0, latest)]
    words = [*random.sample(WORDS, k=4), f"order-{number:07d}", *(["rarity"] if number % RARE == RARE // 2 else [])]
    course = random.choice(seeded.courses)
    started_at = created_at + timedelta(seconds=round(random.expovariate(2), 3))
    usage = sum_usage(attempt.usage for attempt in course.attempts)
    issues = [issue.severity.value for attempt in course.attempts for issue in attempt.issues]
    counted = [attempt for attempt in course.attempts if attempt.counts]
    totals = ("prompt", "completion", "total", "cached", "reasoning")
    run = Run(
        flow_id=seeded.version.flow_id,
        version=seeded.version,
        input=seeded.build_input(" ".join(words)),
        model_settings={"model": course.model, "temperature": None, "max_tokens": None},
        started_by=random.choices(users, weights=(6, 3, 1))[0],
        labels=random.sample(LABELS, k=1) if random.random() < 0.1 else [],
        status=course.status,
        end_reason=course.reason,
        end_sentence=course.sentence,
        blocking_step=course.blocking[0],
        blocking_attempt=course.blocking[1],
        created_at=created_at,
        available_at=created_at,
        started_at=started_at,
        ended_at=_shift(course.attempts[-1].ended_at, started_at),
        revision=len(course.attempts) + 1,
        step_count=len(seeded.version.flow_spec.steps),
        steps_passed=sum(attempt.passed for attempt in course.attempts),
        attempt_count=len(course.attempts),
        retry_count=len(counted) - len({attempt.step for attempt in counted}),
        **{f"issues_{name}": issues.count(name) for name in ("low", "medium", "high", "critical")},
        **{f"{name}_tokens": getattr(usage, name) for name in totals},
        cost=usage.cost,
        unpriced_count=usage.unpriced,
    )
    return run, course


def _store(batch: list[tuple[Run, Course]]) -> None:
    """Store runs with all that belongs to them."""
    Run.objects.bulk_create([run for run, _ in batch])
    steps = {}
    for run, course in batch:
        spec = run.version.flow_spec
        for index in sorted({attempt.step for attempt in course.attempts}):
            steps[run.pk, index] = Step(run=run, index=index, name=spec.step(index).name)
    Step.objects.bulk_create(steps.values())
    attempts = [
        (_build_attempt(steps[run.pk, attempt.step], attempt, run), attempt)
        for run, course in batch
        for attempt in course.attempts
    ]
    Attempt.objects.bulk_create([row for row, _ in attempts])
    AttemptRequest.objects.bulk_create(
        [AttemptRequest(attempt=row, body=attempt.request) for row, attempt in attempts if attempt.request is not None]
    )
    Issue.objects.bulk_create([issue for row, attempt in attempts for issue in build_issues(row, attempt.issues)])
    TokenUsage.objects.bulk_create([build_usage(row, attempt.usage) for row, attempt in attempts])
    add_facets(
        (run.pk, facet)
        for run, course in batch
        for facet in sorted(
            {(FacetKind.LABEL, label) for label in run.labels}.union(*map(list_facets, course.attempts))
        )
    )


def _build_attempt(step: Step, attempt: engine.Attempt, run: Run) -> Attempt:
    assert run.started_at is not None
    return Attempt(
        step=step,
        number=attempt.number,
        outcome=attempt.outcome.value,
        input=attempt.input,
        output=attempt.output,
        model=attempt.model or "",
        finish_reason=attempt.finish_reason or "",
        error=attempt.error.model_dump(mode="json") if attempt.error else None,
        started_at=_shift(attempt.started_at, run.started_at),
        ended_at=_shift(attempt.ended_at, run.started_at),
    )


def _shift(moment: datetime | None, started_at: datetime) -> datetime | None:
    """A time of a course in a run that starts at ``started_at``."""
    return None if moment is None else started_at + (moment - START)
