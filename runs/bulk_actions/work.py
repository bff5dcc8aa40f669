"""Working on bulk actions: a task does batch after batch for a second and sends the next task.

What a batch did is stored with the position behind it, so that an action goes on there after a crash, and tasks that
work on one action at the same time do nothing twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from django.db import InterfaceError, OperationalError, transaction
from django.db.models.functions import Now
from django_q.tasks import async_task

from flows.models import FlowVersion
from runs.audit_log.events import without_entries
from runs.models import BulkAction, BulkKind, Priority, Run, WorkState
from runs.models.run import REDACTED_INPUT, REMOVED_INPUT
from runs.run_options import list_lasting_labels
from runs.submission import NotRunnableError, OrdersError, RunOrder, find_own_limits, prepare_runs, store_runs
from runs.webhooks.addresses import find_target_problem

logger = logging.getLogger(__name__)

TASK = "runs.bulk_actions.work.work_on"
TASK_TIMEOUT = 1.0
"""Seconds of one task: one worker process of a host is left for sweeps, and these tasks share it."""
BATCH_SIZE = 25
"""Runs of one transaction: no other writer waits long for it."""
LOST_AFTER = timedelta(seconds=30)
"""An action that no task has worked on for that long has lost its task."""


def work_on(action_id: int, timeout: float = TASK_TIMEOUT) -> None:
    """Work on an action for about ``timeout`` seconds, and send a task if something is left to do.

    Errors of the database are raised; ``resume_all`` goes on from the last batch.
    """
    deadline = time.monotonic() + timeout
    run_ids = BulkAction.objects.values_list("run_ids", flat=True).get(pk=action_id)
    try:
        while _do_batch(action_id, run_ids):
            if time.monotonic() >= deadline:
                send_task(action_id)
                return
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # Whatever it is would come again with every try.
        logger.exception("The bulk action %s failed.", action_id)
        with transaction.atomic():
            action = BulkAction.objects.select_for_update().get(pk=action_id)
            if action.is_unfinished:
                action.end(WorkState.FAILED, "Internal error; see the log. What was already done is kept.")


def send_task(action_id: int) -> None:
    """Let a worker go on with an action once the transaction is committed."""
    # If the broker is unreachable, the schedule finds the action.
    transaction.on_commit(lambda: async_task(TASK, action_id), robust=True)


def resume_all() -> int:
    """Send new tasks for actions that have lost theirs; return their number. The queue's schedule runs it."""
    lost = list(BulkAction.objects.silent(LOST_AFTER).values_list("pk", flat=True))
    BulkAction.objects.filter(pk__in=lost).update(heartbeat_at=Now())
    for action_id in lost:
        send_task(action_id)
    return len(lost)


@transaction.atomic
def _do_batch(action_id: int, run_ids: Sequence[int]) -> bool:
    """Do the next runs; return whether more are left."""
    action = BulkAction.objects.select_for_update().defer("run_ids").get(pk=action_id)
    if not action.is_unfinished:
        return False
    batch = run_ids[action.position : action.position + BATCH_SIZE]
    if action.kind == BulkKind.CANCEL:
        _cancel_runs(action, batch)
    else:
        _start_runs(action, batch)
    action.advance(len(batch))
    if action.position < len(run_ids):
        return True
    action.end(WorkState.DONE)
    return False


def _cancel_runs(action: BulkAction, run_ids: Sequence[int]) -> None:
    # Workers lock runs in the order of their numbers too: no deadlock.
    rows = Run.objects.filter(pk__in=run_ids).order_by("pk").defer("input", "model_settings")
    runs = {run.pk: run for run in rows.select_for_update()}
    for run_id in run_ids:
        run = runs.get(run_id)
        if run is None:
            action.note(run_id=run_id, is_failure=True, sentence=f"Run #{run_id} no longer exists.")
        elif run.has_ended:
            action.note(run_id=run_id, is_failure=False, sentence="It had already ended.")
        elif run.cancel_requested:
            action.note(run_id=run_id, is_failure=False, sentence="It was already being cancelled.")
        elif run.request_cancel():
            action.done += 1


def _start_runs(action: BulkAction, run_ids: Sequence[int]) -> None:
    runs = Run.objects.select_related("flow").in_bulk(list(run_ids))
    # Each version is read and checked once, not once for each of its runs.
    wanted = {run.version_id for run in runs.values()} | {run.flow.live_version_id for run in runs.values()}
    versions = FlowVersion.objects.in_bulk(wanted - {None})
    for run_id in run_ids:
        run = runs.get(run_id)
        if run is None:
            action.note(run_id=run_id, is_failure=True, sentence=f"Run #{run_id} no longer exists.")
        elif not run.has_ended:
            action.note(run_id=run_id, is_failure=False, sentence="It has not ended yet.")
        elif problem := _start_run(action, run, versions):
            action.note(run_id=run_id, is_failure=True, sentence=problem)
        else:
            action.done += 1


def _start_run(action: BulkAction, run: Run, versions: Mapping[int, FlowVersion]) -> str:
    """Start a run with what ``run`` was given and the label of the action; return why not, or nothing."""
    if run.outputs_removed_at is not None:
        return REMOVED_INPUT
    if run.is_input_redacted:
        return REDACTED_INPUT
    version_id = run.flow.live_version_id if action.uses_live_version else run.version_id
    if version_id is None:
        return f"“{run.flow}” has no published version."
    if run.webhook_url and (problem := find_target_problem(run.webhook_url)):
        # It was stored when other addresses were allowed.
        return f"Its webhook address is no longer allowed: {problem}"
    try:
        again = prepare_runs(
            flow=run.flow,
            orders=[RunOrder(run.input, list_lasting_labels(run.labels), run.metadata, source=run)],
            version=versions[version_id],
            started_by=action.asked_by,
            priority=Priority(run.priority),
            webhook_url=run.webhook_url,
            **find_own_limits(run, versions[run.version_id].readable_spec),
        )
        # In addition to the most that a run may be given.
        again[0].labels = sorted({*again[0].labels, action.label})
        # What one run has begun to write is undone if it fails.
        with transaction.atomic(), without_entries():
            store_runs(again)
    except OrdersError:
        # Where and why would quote the input, and outlive it.
        return f"Its input does not fit version {versions[version_id].number}."
    except NotRunnableError as error:
        return str(error)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        logger.exception("Run %s can't be re-run.", run.pk)
        return "Internal error when starting it; see the log."
    return ""
