"""Bulk actions that tests ask for, and what became of them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django_q.models import OrmQ
from django_q.signing import SignedPackage

from flows.engine.spec import FlowSpec
from runs.bulk_actions import working
from runs.bulk_actions.requesting import request_bulk_action
from runs.models import BulkAction, BulkKind, FacetKind, Run, RunFacet, RunStatus
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import make_run

TOPIC_SCHEMA = {
    "type": "object",
    "properties": {"topic": {"type": "string"}},
    "required": ["topic"],
    "additionalProperties": False,
}


def make_ended_run(version: Any = None, **fields: Any) -> Run:
    return make_run(version, **{"status": RunStatus.FAILED, "ended_at": NOON, **fields})


def make_schema_flow(schema: dict[str, Any] | None = None) -> FlowSpec:
    return make_flow().model_copy(update={"input_schema": schema or TOPIC_SCHEMA})


def request(kind: BulkKind, runs: list[Run] | None = None, **options: Any) -> BulkAction:
    """Ask for it, for these runs or for all that match."""
    newest = max(Run.objects.values_list("pk", flat=True), default=0)
    run_ids = None if runs is None else [run.pk for run in runs]
    return request_bulk_action(**{"token": uuid4(), "kind": kind, "run_ids": run_ids, "newest": newest, **options})


def cancel(runs: list[Run] | None = None, **options: Any) -> BulkAction:
    return request(BulkKind.CANCEL, runs, **options)


def run_again(runs: list[Run] | None = None, **options: Any) -> BulkAction:
    return request(BulkKind.RUN_AGAIN, runs, **options)


def counts(action: BulkAction) -> tuple[str, int, int, int]:
    return action.state, action.done, action.skipped, action.failed


def started_by(action: BulkAction) -> list[Run]:
    """The runs that it started, the first first."""
    facets = RunFacet.objects.filter(kind=FacetKind.LABEL, value=action.label)
    return list(Run.objects.filter(pk__in=facets.values("run")).order_by("pk"))


def take_messages() -> list[tuple[int, int]]:
    """What messages about bulk actions wait, which are taken off the queue."""
    found = [(row, SignedPackage.loads(row.payload)) for row in OrmQ.objects.order_by("pk")]
    mine = [(row, task) for row, task in found if task["func"] == working.GO_ON_TASK]
    OrmQ.objects.filter(pk__in=[row.pk for row, _ in mine]).delete()
    return [tuple(task["args"]) for _, task in mine]
