"""Store invented runs of sample flows: the examples under names of their own, in several versions; and remove them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, islice
from random import Random
from typing import Any

from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import QuerySet

from flows.engine import history as engine
from flows.engine.history import sum_usage
from flows.engine.spec import FlowSpec
from flows.examples import find_digest, load_documents
from flows.models import Flow, FlowVersion
from flows.publishing import publish_flow
from runs.facets import add_facets, list_facets
from runs.locks import STATISTICS, hold
from runs.models import Attempt, AttemptRequest, DailyRuns, FacetKind, Issue, Run, Step, TokenUsage
from runs.retention.purging import delete_runs
from runs.rollup import count_ended_runs
from runs.seeding.cases import SLIPS, load_cases, play_courses
from runs.seeding.planted import load_planted_document, play_planted_courses
from runs.seeding.simulation import START, Course
from runs.stored_history import build_issues, build_usage

PREFIX = "seeded-"
"""Begins the names of sample flows and of the users who started their runs."""
NOTE = "Sample version "
"""Begins the notes of the versions of sample flows."""
USERS = tuple(PREFIX + name for name in ("ada", "grace", "linus"))
VERSIONS = len(SLIPS)
COURSES = 48
"""Courses of each version, at most."""
MIN_COURSES, RUNS_PER_COURSE = 6, 60
"""A short history has fewer courses: one of each version for this number of runs."""
BATCH_SIZE = 500
"""Runs stored in one transaction."""
RARE = 1_000
"""One run in this many holds the word “rarity”."""
LABELS = ("nightly", "pilot", "release-check")
WORDS = (
    "amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "harbour", "iris", "juniper", "meadow", "quartz",
)  # fmt: skip
REFERENCE = "{reference}"
"""Stands in the texts of courses for words that each run has for itself."""

MAX_DELETED = 100
"""Runs that are deleted together."""

_Course = tuple[FlowVersion, Course]
"""A version with one of the courses that its runs take."""


class SampleError(Exception):
    """Sample history can't be stored or removed now. The message says why, and what to do."""


def fetch_sample_flows() -> QuerySet[Flow]:
    """Flows of sample history: a flow of a user's may have such a name, but no such first version."""
    return Flow.objects.filter(name__startswith=PREFIX, versions__number=1, versions__note__startswith=NOTE)


def remove_samples() -> None:
    """Delete sample flows with all of their versions, runs and statistics. Raises ``SampleError``; then nothing is."""
    with transaction.atomic():
        flows = list(fetch_sample_flows().select_for_update())
        runs = Run.objects.filter(flow__in=flows).order_by()
        if runs.filter(ended_at=None).exists():
            raise SampleError("Runs of sample flows have not ended. Wait until they have, or cancel them first.")
        if not hold(STATISTICS):
            raise SampleError("Statistics are being counted. Try again in a few seconds.")
        while run_ids := list(runs.values_list("pk", flat=True)[:MAX_DELETED]):
            delete_runs(run_ids)
        DailyRuns.objects.filter(flow__in=flows).delete()
        for flow in flows:
            flow.delete()
        User.objects.filter(username__in=USERS, is_active=False).delete()


def seed_history(
    *,
    runs: int,
    until: datetime,
    days: float = 90,
    seed: int = 1,
    planted: int = 0,
    is_simulated: bool = False,
    report: Callable[[str, int], None] = lambda _what, _done: None,
) -> None:
    """Store ``runs`` ended runs, about four attempts each, that were created in the ``days`` before ``until``.

    ``planted`` runs more are of the flow with known truths. With ``is_simulated`` all are simulated. ``report`` gets
    after each batch what was done, and how many runs so far. Raises ``SampleError`` where a flow that isn't a sample
    has the name of one.
    """
    length = timedelta(days=days)
    since = until - length
    random = Random(seed)  # noqa: S311  # repeatable, not secret
    flows = _load_flows(seed=seed, runs=runs, since=since, length=length) if runs else []
    cycle: list[_Course] = []
    if planted:
        version = _load_version(load_planted_document(), number=0, created_at=since)
        cycle = [(version, course) for course in asyncio.run(play_planted_courses(version.flow_spec))]
    users = [User.objects.get_or_create(username=name, defaults={"is_active": False})[0] for name in USERS]
    courses = chain(
        ((number / runs, _choose_course(flows, number / runs, random)) for number in range(runs)),
        ((number / planted, cycle[number % len(cycle)]) for number in range(planted)),
    )
    invented = (
        _invent_run(number, *course, users, created_at=since + length * share, random=random)
        for number, (share, course) in enumerate(courses)
    )
    stored = counted = 0
    while batch := list(islice(invented, BATCH_SIZE)):
        with transaction.atomic():
            for run, _ in batch:
                run.is_simulated = is_simulated
            _store(batch)
        stored += len(batch)
        report("stored", stored)
    while count := count_ended_runs(limit=BATCH_SIZE):
        counted += count
        report("counted", counted)


def _load_flows(*, seed: int, runs: int, since: datetime, length: timedelta) -> list[list[list[_Course]]]:
    """The courses of each version of each flow; versions are in order, and spread over ``length``."""
    count = min(COURSES, max(MIN_COURSES, runs // RUNS_PER_COURSE))
    flows = []
    for name, document in load_documents().items():
        versions = []
        for number in range(VERSIONS):
            varied = {**document, "max_tokens": 4000 - 200 * number}
            version = _load_version(varied, number=number, created_at=since + length * number / VERSIONS)
            seeds = [f"{seed}/{name}/{number}/{course}" for course in range(count)]
            played = asyncio.run(play_courses(version.flow_spec, load_cases()[name], version=number, seeds=seeds))
            versions.append([(version, course) for course in played])
        flows.append(versions)
    return flows


def _load_version(document: dict[str, Any], *, number: int, created_at: datetime) -> FlowVersion:
    """The version of a sample flow, live if it is new; one of an earlier seeding is used again."""
    varied = {**document, "name": PREFIX + document["name"], "title": f"{document['title']} (sample)"}
    known = Flow.objects.filter(name=varied["name"]).first()
    if known is not None and known not in fetch_sample_flows():
        raise SampleError(f"The flow “{known.name}” has the name of a sample flow. Rename it first.")
    version = FlowVersion.objects.filter(flow=known, digest=find_digest(varied)).last() if known else None
    if version is None:
        version = publish_flow(spec=FlowSpec.from_document(varied), note=f"{NOTE}{number + 1}")
        # Versions never change; an invented one must be older than its runs nonetheless.
        models.QuerySet(FlowVersion).filter(pk=version.pk).update(created_at=created_at)
        version.flow.make_live(version)
    return version


def _choose_course(flows: list[list[list[_Course]]], share: float, random: Random) -> _Course:
    """What a run does after ``share`` of the time. Newer versions take over by and by."""
    versions = random.choices(flows, weights=[5, 2, 3, *[1] * len(flows)][: len(flows)])[0]
    latest = min(int(share * len(versions)), len(versions) - 1)
    return random.choice(versions[latest if random.random() < 0.9 else random.randint(0, latest)])


def _invent_run(
    number: int, version: FlowVersion, course: Course, users: list[User], *, created_at: datetime, random: Random
) -> tuple[Run, Course]:
    """A run that is not stored yet, and its course in its own words."""
    words = [*random.sample(WORDS, k=4), f"order-{number:07d}", *(["rarity"] if number % RARE == RARE // 2 else [])]
    course = _reword(course, " ".join(words))
    started_at = created_at + timedelta(seconds=round(random.expovariate(2), 3))
    usage = sum_usage(attempt.usage for attempt in course.attempts)
    issues = [issue.severity.value for attempt in course.attempts for issue in attempt.issues]
    counted = [attempt for attempt in course.attempts if attempt.counts]
    totals = ("prompt", "completion", "total", "cached", "reasoning")
    run = Run(
        flow_id=version.flow_id,
        version=version,
        input=course.input,
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
        step_count=len(version.flow_spec.steps),
        steps_passed=sum(attempt.passed for attempt in course.attempts),
        attempt_count=len(course.attempts),
        retry_count=len(counted) - len({attempt.step for attempt in counted}),
        **{f"issues_{name}": issues.count(name) for name in ("low", "medium", "high", "critical")},
        **{f"{name}_tokens": getattr(usage, name) for name in totals},
        cost=usage.cost,
        unpriced_count=usage.unpriced,
    )
    return run, course


def _reword(course: Course, words: str) -> Course:
    """A course with ``words`` of a run where it has a reference."""
    attempts = tuple(
        attempt.model_copy(update={name: _fill(getattr(attempt, name), words) for name in ("input", "request")})
        for attempt in course.attempts
    )
    return replace(course, input=_fill(course.input, words), attempts=attempts)


def _fill(value: Any, words: str) -> Any:
    if isinstance(value, str):
        return value.replace(REFERENCE, words)
    if isinstance(value, dict):
        return {name: _fill(part, words) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill(part, words) for part in value]
    return value


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
        raw_output=attempt.raw_output,
        model=attempt.model or "",
        response_id=attempt.response_id or "",
        finish_reason=attempt.finish_reason or "",
        error=attempt.error.model_dump(mode="json") if attempt.error else None,
        failure_reason=attempt.failure_reason or "",
        plugins=attempt.plugins,
        started_at=_shift(attempt.started_at, run.started_at),
        ended_at=_shift(attempt.ended_at, run.started_at),
    )


def _shift(moment: datetime | None, started_at: datetime) -> datetime | None:
    """A time of a course in a run that starts at ``started_at``."""
    return None if moment is None else started_at + (moment - START)
