"""Many runs at once for tests of lists: rows as executing and counting leave them, without attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

from django.contrib.auth.models import User

from flows.models import FlowVersion
from runs.facets import Facet, add_facets
from runs.models import FacetKind, Run, RunStatus
from runs.models.run import ENDED
from tests.engine.builders import NOON
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow

SEVERITIES = ("low", "medium", "high", "critical")


def make_listed_run(version: FlowVersion, *, facets: Sequence[Facet] = (), **fields: Any) -> Run:
    """One run with these columns and facets, counted if it has ended."""
    (run,) = store_listed_runs([_build_run(version, **fields)], [facets])
    return run


def store_listed_runs(runs: Sequence[Run], facets: Sequence[Sequence[Facet]]) -> list[Run]:
    """Store runs with their facets; those that have ended are marked as counted."""
    stored = Run.objects.bulk_create(runs, batch_size=2_000)
    pairs = [(run.pk, facet) for run, own in zip(stored, facets, strict=True) for facet in own]
    for begin in range(0, len(pairs), 5_000):
        add_facets(pairs[begin : begin + 5_000])
    return stored


def make_varied_runs(count: int, *, seed: int = 1) -> list[Run]:
    """Runs of two flows with three versions, by two users, an hour apart, with all kinds of facets; some are queued."""
    random = Random(seed)
    versions = [make_version(make_page_flow()), make_version(make_page_flow())]
    versions.append(make_version(make_page_flow(name="other", title="Other")))
    users = [User.objects.get_or_create(username=name)[0] for name in ("grace", "linus")]
    runs, facets = [], []
    for number in range(count):
        status = random.choices(RunStatus.values, weights=[1, 1, 12, 4, 2, 1])[0]
        runs.append(
            _build_run(
                random.choice(versions),
                status=status,
                created_at=NOON + timedelta(hours=number),
                started_by=random.choice([*users, None]),
                cost=random.choice([None, Decimal(0), Decimal(random.randint(1, 400)) / 1_000]),
                total_tokens=random.choice([0, random.randint(1, 60_000)]),
            )
        )
        own = {(FacetKind.MODEL, random.choice(["gpt-5", "gpt-5-mini"]))}
        worst = random.randint(0, 4)
        own.update((FacetKind.SEVERITY, name) for name in SEVERITIES[:worst])
        if worst:
            own |= {(FacetKind.CODE, random.choice(["length", "format"])), (FacetKind.AUDIT, "Checks")}
        if random.random() < 0.1:
            own.add((FacetKind.LABEL, "pilot"))
        facets.append(sorted(own))
    return store_listed_runs(runs, facets)


def _build_run(version: FlowVersion, **fields: Any) -> Run:
    status = fields.setdefault("status", RunStatus.SUCCEEDED)
    has_ended = status in ENDED
    begun = fields.setdefault("created_at", NOON)
    return Run(
        flow_id=version.flow_id,
        version=version,
        step_count=3,
        **{
            "input": {"topic": "tea"},
            "model_settings": {},
            "is_counted": has_ended,
            "ended_at": begun if has_ended else None,
            "lease_until": begun if status == RunStatus.RUNNING else None,
            # Attempts are what uses anything.
            "attempt_count": 1 if fields.get("cost") or fields.get("total_tokens") else 0,
            **fields,
        },
    )
