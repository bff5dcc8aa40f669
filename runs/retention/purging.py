"""Delete runs, or only what they read and wrote, in short transactions beside workers that store attempts.

What is due follows from the rows alone, so an interrupted purge goes on where it stopped, and two share the work.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import UTC

from django.db import connection, transaction
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now

from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import (
    Attempt,
    AttemptRequest,
    BacktestRun,
    DeliveryState,
    EndReason,
    Issue,
    PurgedDay,
    Run,
    TokenUsage,
    WebhookDelivery,
    WebhookTry,
)
from runs.models.run import RunQuerySet
from runs.retention.policy import Part, PurgeTask
from runs.search import forget_runs

BATCH_SIZE = {"sqlite": 12, "postgresql": 125}
"""Runs of one transaction. SQLite has one writer at a time; PostgreSQL locks rows that no worker writes."""
PAUSE_RATIO = 3.0
"""Seconds of pause for each second of work while runs are in flight."""


@dataclass(slots=True)
class Purged:
    """What a purge has deleted so far."""

    runs: int = 0
    attempts: int = 0
    seconds: float = 0.0
    """How long the last transaction took."""


def purge(task: PurgeTask) -> Generator[Purged, None, None]:
    """Do ``task``; gives the totals after each transaction, and then pauses while runs are in flight.

    The audit log gets an entry with the first deletion, and one with the totals when the iterator ends or is closed.
    """
    purged = Purged()
    try:
        for due in task.due():
            while _purge_batch(task, due, purged):
                yield purged
                if Run.objects.running().exists():
                    time.sleep(purged.seconds * PAUSE_RATIO)
    finally:
        if purged.runs:
            _log_purge(task, runs=purged.runs, attempts=purged.attempts)


def _purge_batch(task: PurgeTask, due: RunQuerySet, purged: Purged) -> bool:
    """Purge the first runs of ``due`` in one transaction; False if none is due."""
    with transaction.atomic():
        started = time.monotonic()
        # Another process that purges skips these runs, and this one skips those of the other.
        locked = due.select_for_update(skip_locked=True).values_list("pk", "attempt_count", "ended_at")
        batch = list(locked[: BATCH_SIZE[connection.vendor]])
        if not batch:
            return False
        run_ids = [run_id for run_id, _, _ in batch]
        if not purged.runs:
            _log_purge(task, begun=True)
        if task.part is Part.RUNS:
            # These days can't be counted again.
            days = {ended_at.astimezone(UTC).date() for _, _, ended_at in batch if ended_at}
            rows = [PurgedDay(flow=task.flow, day=day) for day in sorted(days)]
            PurgedDay.objects.bulk_create(rows, ignore_conflicts=True)
            delete_runs(run_ids)
        else:
            remove_outputs(run_ids)
    purged.runs += len(batch)
    purged.attempts += sum(count for _, count, _ in batch)
    purged.seconds = time.monotonic() - started
    return True


def delete_runs(run_ids: Sequence[int]) -> None:
    """Delete runs with all that belongs to them, in the caller's transaction; statistics stay."""
    # Search knows a run by its texts.
    forget_runs(run_ids)
    attempts = Attempt.objects.filter(step__run__in=run_ids)
    for model in (Issue, TokenUsage, AttemptRequest):
        model._default_manager.filter(attempt__in=attempts).delete()
    # Without their rows being read first: outputs are large.
    attempts._raw_delete(connection.alias)
    # A try of a webhook that begins just now holds its delivery.
    list(WebhookDelivery.objects.filter(run__in=run_ids).order_by("pk").select_for_update())
    Run.objects.filter(pk__in=run_ids).delete()


def remove_outputs(run_ids: Sequence[int]) -> None:
    """Delete what runs read and wrote, in the caller's transaction, which holds their rows.

    Statuses, labels, times, usage, models, and code, audit and severity of issues stay.
    """
    forget_runs(run_ids)
    attempts = Attempt.objects.filter(step__run__in=run_ids)
    Issue.objects.filter(attempt__in=attempts).update(
        description="", path=None, context={}, suggestions=[], added_fields={}
    )
    AttemptRequest.objects.filter(attempt__in=attempts).delete()
    BacktestRun.objects.filter(run__in=run_ids).update(gone=[], new=[], sentence="")
    failed = list(attempts.filter(error__isnull=False).only("error"))
    for attempt in failed:
        attempt.error = (attempt.error or {}) | {"message": ""}
    Attempt.objects.bulk_update(failed, ["error"])
    attempts.update(input=None, output=None, raw_output=None, received=None, failure_reason="")
    deliveries = WebhookDelivery.objects.filter(run__in=run_ids)
    list(deliveries.order_by("pk").select_for_update())
    deliveries.exclude(state=DeliveryState.WAITING).delete()
    # The next try builds the message again, from what is left. What a receiver answered may quote it.
    deliveries.update(body="")
    WebhookTry.objects.filter(delivery__in=deliveries).update(response="")
    Run.objects.filter(pk__in=run_ids).update(
        input={},
        metadata={},
        # The sentence may quote what an audit said.
        end_sentence=Case(
            *(When(end_reason=reason.value, then=Value(f"{reason.label}.")) for reason in EndReason), default=Value("")
        ),
        outputs_removed_at=Now(),
        revision=F("revision") + 1,
    )


def _log_purge(task: PurgeTask, **figures: int) -> None:
    details = {**figures, "ended_before": task.ended_before.isoformat(timespec="seconds")}
    if task.part is Part.OUTPUTS:
        details["only"] = "outputs"
    log_audit_event(action=AuditAction.DATA_DELETED, about=task.flow, details=details)
