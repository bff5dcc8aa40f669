"""Delete runs, or only what they read and wrote, in short transactions beside workers that store attempts.

What is due follows from the rows alone, so an interrupted purge goes on where it stopped, and two share the work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import IntegrityError, connection, transaction
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Now

from runs.audit_log.events import TrailAction, leave_trail
from runs.models import (
    Attempt,
    AttemptRequest,
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

logger = logging.getLogger(__name__)

BATCH_SIZE = {"sqlite": 50, "postgresql": 500}
"""Attempts of one transaction. SQLite has one writer at a time; PostgreSQL locks rows that no worker writes."""
PAUSE_RATIO = 3.0
"""Seconds of pause for each second of work while runs are in flight."""

HAS_TEXTS = Q(input__isnull=False) | Q(output__isnull=False) | Q(sent__isnull=False)
"""Attempts that still have what they read and wrote, by which a large run is emptied in parts."""


@dataclass(slots=True)
class Purged:
    """What a purge has deleted so far."""

    runs: int = 0
    attempts: int = 0
    seconds: float = 0.0
    """How long the last transaction took."""
    longest: float = 0.0
    """Seconds of the longest transaction."""
    failed: list[int] = field(default_factory=list)
    """Runs that the database refuses to delete; the log says why."""
    has_begun: bool = False


def purge(task: PurgeTask) -> Generator[Purged, None, None]:
    """Do ``task``; gives the totals after each transaction, and then pauses while runs are in flight.

    The audit log gets an entry with the first deletion, and one with the totals when the iterator ends or is closed.
    A run that tables of others refer to is logged and left.
    """
    purged = Purged()
    try:
        for due in task.due():
            while _purge_batch(task, due.exclude(pk__in=purged.failed), purged):
                yield purged
                if Run.objects.running().exists():
                    time.sleep(purged.seconds * PAUSE_RATIO)
    finally:
        if purged.has_begun:
            _log_purge(task, runs=purged.runs, attempts=purged.attempts)


def _purge_batch(task: PurgeTask, due: RunQuerySet, purged: Purged) -> bool:
    """Purge a batch of runs, or one by one where that fails; False if none is due."""
    try:
        return _purge_together(task, due, purged)
    except IntegrityError:
        for run_id in list(due.values_list("pk", flat=True)[: BATCH_SIZE[connection.vendor]]):
            try:
                _purge_together(task, due.filter(pk=run_id), purged)
            except IntegrityError:
                logger.exception("Retention can’t delete run %s.", run_id)
                purged.failed.append(run_id)
        return True


def _purge_together(task: PurgeTask, due: RunQuerySet, purged: Purged) -> bool:
    """Purge the first runs of ``due`` in one transaction; of a large run only some attempts. False if none is due."""
    size = BATCH_SIZE[connection.vendor]
    with transaction.atomic():
        started = time.monotonic()
        # Another process that purges skips these runs, and this one skips those of the other.
        locked = due.select_for_update(skip_locked=True).values_list("pk", "attempt_count", "ended_at")
        batch = _cut_batch([(pk, count, end) for pk, count, end in locked[:size] if end is not None], size)
        if not batch:
            return False
        run_ids = [run_id for run_id, _, _ in batch]
        if not purged.has_begun:
            _log_purge(task, begun=True)
        # Search knows a run by its texts.
        forget_runs(run_ids)
        attempts = Attempt.objects.filter(step__run__in=run_ids)
        remaining = attempts if task.part is Part.RUNS else attempts.filter(HAS_TEXTS)
        attempt_ids = list(remaining.values_list("pk", flat=True)[:size])
        # With as many attempts as that there may be more of them, which the next transaction finds.
        is_whole = len(attempt_ids) < size
        if task.part is Part.RUNS:
            _delete_attempts(attempt_ids)
            # These days can't be counted again.
            days = {ended_at.astimezone(UTC).date() for _, _, ended_at in batch}
            PurgedDay.objects.bulk_create(
                [PurgedDay(flow=task.flow, day=day) for day in sorted(days)], ignore_conflicts=True
            )
            if is_whole:
                _delete_runs(run_ids)
        elif is_whole:
            remove_outputs(run_ids)
        else:
            _empty_attempts(attempt_ids)
    purged.has_begun = True
    if is_whole:
        purged.runs += len(batch)
        purged.attempts += sum(count for _, count, _ in batch)
    purged.seconds = time.monotonic() - started
    purged.longest = max(purged.longest, purged.seconds)
    return True


def _cut_batch(runs: list[tuple[int, int, datetime]], size: int) -> list[tuple[int, int, datetime]]:
    """The first runs with at most ``size`` attempts together; at least one."""
    total = 0
    for index, (_, attempts, _) in enumerate(runs):
        total += attempts
        if index and total > size:
            return runs[:index]
    return runs


def _delete_attempts(attempt_ids: Sequence[int]) -> None:
    for model in (Issue, TokenUsage, AttemptRequest):
        model._default_manager.filter(attempt__in=attempt_ids).delete()
    Attempt.objects.filter(pk__in=attempt_ids)._raw_delete(connection.alias)


def _delete_runs(run_ids: Sequence[int]) -> None:
    """Delete runs without attempts, with all else that belongs to them; statistics stay."""
    # A try of a webhook that begins just now holds its delivery.
    list(WebhookDelivery.objects.filter(run__in=run_ids).order_by("pk").select_for_update())
    Run.objects.filter(pk__in=run_ids).delete()


def _empty_attempts(attempt_ids: Sequence[int]) -> None:
    Issue.objects.filter(attempt__in=attempt_ids).update(
        description="", path=None, context={}, suggestions=[], added_fields={}
    )
    AttemptRequest.objects.filter(attempt__in=attempt_ids).delete()
    attempts = Attempt.objects.filter(pk__in=attempt_ids)
    attempts.update(input=None, output=None, raw_output=None, received=None, failure_reason="")
    failed = list(attempts.filter(error__isnull=False).only("error"))
    for attempt in failed:
        attempt.error = (attempt.error or {}) | {"message": ""}
    Attempt.objects.bulk_update(failed, ["error"])


def remove_outputs(run_ids: Sequence[int]) -> None:
    """Delete what runs read and wrote, in the caller's transaction, which holds their rows.

    Statuses, labels, times, usage, models, and code, audit and severity of issues stay.
    """
    forget_runs(run_ids)
    _empty_attempts(list(Attempt.objects.filter(step__run__in=run_ids).values_list("pk", flat=True)))
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
    leave_trail(action=TrailAction.DATA_DELETED, about=task.flow, details=details)
