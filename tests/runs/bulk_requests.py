"""Requesting bulk actions, and their tasks in the queue."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django_q.models import OrmQ
from django_q.signing import SignedPackage

from flows.engine.spec import FlowSpec
from runs.bulk_actions import work
from runs.bulk_actions.requests import fetch_matching, request_bulk_action
from runs.filters import RunFilters
from runs.matching_runs import fetch_newest_run_number
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


def request(
    kind: BulkKind,
    runs: list[Run] | None = None,
    *,
    query: str = "",
    newest: int | None = None,
    most: int | None = None,
    **options: Any,
) -> BulkAction:
    """Request it for these runs, or for all that match ``query``."""
    if runs is not None:
        return request_bulk_action(token=uuid4(), kind=kind, run_ids=[run.pk for run in runs], **options)
    filters = RunFilters(query)
    assert not filters.problems
    run_ids = fetch_matching(kind, filters, newest=fetch_newest_run_number() if newest is None else newest, most=most)
    return request_bulk_action(token=uuid4(), kind=kind, run_ids=run_ids, filters=filters, most=most, **options)


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


def take_tasks() -> list[int]:
    """Take the tasks of bulk actions off the queue; the numbers of their actions."""
    found = [(row.pk, SignedPackage.loads(row.payload)) for row in OrmQ.objects.order_by("pk")]
    mine = {key: task["args"][0] for key, task in found if task["func"] == work.TASK}
    OrmQ.objects.filter(pk__in=mine).delete()
    return list(mine.values())
