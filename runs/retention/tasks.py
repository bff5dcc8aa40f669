"""What the queue calls every hour: retention, and the rows of other kinds that are of no use any more."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.models import Failure, Schedule, Success

from flows.models import Flow
from runs.audit_log.actor import TOOLFLOW, acting_as
from runs.models import ApiToken, Backtest, BulkAction, DeliveryState, IdempotentRequest, OriginalInput, WebhookDelivery
from runs.retention.policy import build_tasks, effective_policy
from runs.retention.purging import purge

logger = logging.getLogger(__name__)

WORK_SECONDS = 10.0
"""Seconds of one call: the process that sees to schedules also sends webhooks."""
EXPIRED_BATCH_SIZE = 100
TASK = "runs.retention.tasks.purge_due"


def purge_due() -> str:
    """Delete what is due for a few seconds; gives a sentence for the queue's own log.

    If more is left, the schedule calls again as soon as it can.
    """
    stop_at = time.monotonic() + WORK_SECONDS
    total = 0
    with acting_as(TOOLFLOW), closing(_purge_everything(timezone.now())) as batches:
        for count in batches:
            total += count
            if time.monotonic() >= stop_at:
                Schedule.objects.filter(func=TASK).update(next_run=timezone.now())
                break
    return f"Retention deleted or emptied {total} rows."


def _purge_everything(now: datetime) -> Generator[int, None, None]:
    """Delete all that is due, batch by batch; gives the rows of each. What fails for one flow or kind is logged."""
    for flow in Flow.objects.order_by("name"):
        with _log_errors(f"the runs of the flow “{flow.name}”"):
            for task in build_tasks(flow, effective_policy(flow), now):
                with closing(purge(task)) as batches:
                    done = 0
                    for purged in batches:
                        yield purged.runs - done
                        done = purged.runs
    for name, expired in find_expired(now).items():
        with _log_errors(name):
            while count := delete_batch(expired):
                yield count


@contextmanager
def _log_errors(what: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("Retention failed for %s; it tries again within the hour.", what)


def find_expired(now: datetime) -> dict[str, QuerySet[Any]]:
    """Rows of other kinds that are deleted now, by what they are in the plural; see ``docs/retention.md``."""

    def ago(**length: int) -> datetime:
        return now - timedelta(**length)

    sessions: SessionStore = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    tokens = ApiToken.objects.filter(Q(expiry__lt=ago(days=90)) | Q(revoked_at__lt=ago(days=90)))
    predicting = Backtest.objects.predicting().order_by().values("pk")
    newer = predicting.filter(flow=OuterRef("flow"), digest=OuterRef("digest"), pk__gt=OuterRef("pk"))
    ended = WebhookDelivery.objects.exclude(state=DeliveryState.WAITING)
    return {
        # Counting deletes them at once; this is for runs that can't be counted.
        "inputs of ended runs as they were before redaction": OriginalInput.objects.filter(
            run__ended_at__lt=ago(hours=1)
        ),
        "webhook deliveries": ended.filter(ended_at__lt=ago(days=30)),
        "answers kept for Idempotency-Keys": IdempotentRequest.objects.filter(created_at__lt=ago(days=1)),
        "bulk actions": BulkAction.objects.filter(ended_at__lt=ago(days=90)),
        # What was predicted of a version stays with it.
        "backtests": Backtest.objects.filter(ended_at__lt=ago(days=90)).exclude(
            pk__in=predicting.filter(~Exists(newer))
        ),
        "expired and revoked API tokens": tokens,
        "expired sign-ins": sessions.get_model_class().objects.filter(expire_date__lt=now),
        # Lock-outs last for a day at most.
        "failures to sign in": AccessAttempt.objects.filter(attempt_time__lt=ago(days=1)),
        "finished tasks of the queue": Success.objects.filter(stopped__lt=ago(days=30)),
        "failed tasks of the queue": Failure.objects.filter(stopped__lt=ago(days=30)),
    }


def delete_batch(expired: QuerySet[Any]) -> int:
    """Delete some of these rows in one transaction; gives how many."""
    # A backtest may have thousands of rows.
    size = 1 if expired.model is Backtest else EXPIRED_BATCH_SIZE
    with transaction.atomic():
        # Locked first: a delivery may just now be sent again.
        locked = expired.order_by("pk").select_for_update(of=("self",))
        keys = list(locked.values_list("pk", flat=True)[:size])
        expired.filter(pk__in=keys).delete()
    return len(keys)
