"""Runs that ended long ago, with all that belongs to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flows.models import Flow
from runs.facets import add_facets
from runs.models import Attempt, FacetKind, Issue, Run, RunFacet, Step, TokenUsage
from runs.rollup import count_ended_runs
from runs.search.index import fetch_indexed
from tests.runs.varied_runs import make_varied_runs

NOW = datetime(2024, 11, 20, 12, tzinfo=UTC)
"""Long ago for every clock."""
DAYS = 40


def store_aged_runs(count: int = 24) -> list[Run]:
    """Runs of two flows that ended in the forty days before ``NOW``, counted and searchable; the first had retries."""
    runs = make_varied_runs(count)
    for place, run in enumerate(sorted(runs, key=_count_attempts, reverse=True)):
        ended_at = NOW - timedelta(days=DAYS) * (count - place) / count
        Run.objects.filter(pk=run.pk).update(
            created_at=ended_at - timedelta(minutes=3),
            started_at=ended_at - timedelta(minutes=2),
            ended_at=ended_at,
            attempt_count=_count_attempts(run),
            end_reason="step_failed" if run.status == "failed" else "",
            end_sentence="It said “nothing of the kind”." if run.status == "failed" else "",
            labels=["nightly"],
            metadata={"ticket": place},
        )
    Attempt.objects.filter(outcome="errored").update(
        error={"code": "server_error", "message": "Private words.", "status": 500, "retry_after": None}
    )
    add_facets((run.pk, (FacetKind.LABEL, "nightly")) for run in runs)
    while count_ended_runs():
        pass
    return list(Run.objects.order_by("ended_at"))


def _count_attempts(run: Run) -> int:
    return Attempt.objects.filter(step__run=run).count()


def keep(flow: Flow, *, days: int | None = None, outputs_days: int | None = None) -> None:
    """Give a flow a policy."""
    Flow.objects.filter(pk=flow.pk).update(keep_days=days, keep_outputs_days=outputs_days)


def ended_before(runs: list[Run], days: int) -> list[Run]:
    """Those that ended more than this number of days before ``NOW``."""
    return [run for run in runs if run.ended_at and run.ended_at < NOW - timedelta(days=days)]


def count_rows(runs: list[Run]) -> dict[str, int]:
    """How many rows of each kind belong to these runs."""
    keys = [run.pk for run in runs]
    return {
        "runs": Run.objects.filter(pk__in=keys).count(),
        "steps": Step.objects.filter(run__in=keys).count(),
        "attempts": Attempt.objects.filter(step__run__in=keys).count(),
        "issues": Issue.objects.filter(attempt__step__run__in=keys).count(),
        "usage": TokenUsage.objects.filter(attempt__step__run__in=keys).count(),
        "facets": RunFacet.objects.filter(run__in=keys).count(),
        "words": len(fetch_indexed(keys)),
    }


def read_texts(runs: list[Run]) -> list[Any]:
    """All that these runs read and wrote, in every place that holds it."""
    keys = [run.pk for run in runs]
    return [
        *Run.objects.filter(pk__in=keys).values_list("input", "metadata"),
        *Attempt.objects.filter(step__run__in=keys).values_list(
            "input", "output", "raw_output", "sent__body", "failure_reason", "error__message"
        ),
        *Issue.objects.filter(attempt__step__run__in=keys).values_list(
            "description", "path", "context", "suggestions", "added_fields"
        ),
    ]
