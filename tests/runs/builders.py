"""Rows with as little as the case at hand needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from runs.claiming import claim_runs
from runs.models import Run, Worker
from runs.models.run import in_future
from runs.ownership import Owner
from runs.sweep import GRACE_RATIO
from tests.engine.builders import make_flow as make_spec

LEASE = timedelta(seconds=60)


def make_version(spec: FlowSpec | None = None) -> FlowVersion:
    """A live version of a flow with that spec, by default one model step; a flow of the same name is used again."""
    spec = spec or make_spec()
    flow, _ = Flow.objects.get_or_create(name=spec.name, defaults={"title": spec.title or "Example"})
    version = FlowVersion.objects.create(
        flow=flow, number=flow.versions.count() + 1, spec=spec.to_document(), digest=spec.digest
    )
    flow.make_live(version)
    return version


def make_run(version: FlowVersion | None = None, **fields: Any) -> Run:
    """A queued run."""
    version = version or make_version()
    return Run.objects.create(
        flow=version.flow,
        version=version,
        step_count=len(version.flow_spec.steps),
        **{"input": {"topic": "tea"}, "model_settings": {"model": "gpt-5-mini"}, **fields},
    )


def claim_run(run: Run, owner: str = "worker-1") -> Run:
    """The run as the worker holds it that claimed it."""
    claimed = claim_runs(free=1_000, owner=owner, lease=LEASE, is_simulated=True)
    return next(one for one in claimed if one.pk == run.pk)


def make_dead_owner() -> Owner:
    """A worker process that lived on this machine and is gone."""
    return replace(Owner.of_this_process(), started="1")


def expire_lease(run: Run) -> None:
    """Let the lease of a run end, as if its worker had been silent for so long that a sweep suspects it already."""
    suspect_since = in_future(-LEASE * GRACE_RATIO - timedelta(seconds=1))
    Run.objects.filter(pk=run.pk).update(lease_until="2000-01-01T00:00:00Z", suspect_since=suspect_since)


def make_worker(*, host: str = "worker-host", pid: int = 4711, **fields: Any) -> Worker:
    """A drain that was heard of just now."""
    values = {"owner": f"{host}/{pid}/{uuid4().hex}", "version": "0.1.0", "slots": 200, **fields}
    return Worker.objects.create(host=host, pid=pid, **values)
