"""Working on a bulk action, batch by batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone
from django_q.tasks import async_task

from runs.bulk_actions.effects import cancel_runs, start_again
from runs.filters import RunFilters, find_runs
from runs.models import BulkAction, BulkKind, RunStatus, WorkState
from runs.paging import Found, Position

logger = logging.getLogger(__name__)

GO_ON_TASK = "runs.bulk_actions.tasks.go_on"
BATCH = 25
"""Runs of one transaction: no other writer waits long for it."""
LOOK = 100
"""Runs that are cancelled in one transaction, where all that match are meant."""
UNDER_WAY = (RunStatus.QUEUED.value, RunStatus.RUNNING.value)


class _FilterError(Exception):
    """The filters mean other runs than when they were chosen."""


def work_on(*, action_id: int, turn: int, patience: float) -> None:
    """Work on an action for about ``patience`` seconds, and pass it on if something is left to do.

    Does nothing if the action has ended or was passed on since ``turn``. Errors of the database are raised; it goes
    on from its last batch when it is next taken up.
    """
    deadline = time.monotonic() + patience
    try:
        while _do_batch(action_id, turn):
            if time.monotonic() >= deadline:
                pass_on(action_id=action_id, turn=turn)
                return
    except (OperationalError, InterfaceError):
        raise
    except _FilterError as error:
        _fail(action_id, f"Its filters no longer make sense: {error}")
    except Exception:
        # Whatever it is would come again with every try.
        logger.exception("The bulk action %s failed.", action_id)
        _fail(action_id, "ToolFlow failed; the log says why. What was done stays done.")


def pass_on(*, action_id: int, turn: int) -> None:
    """Send the message by which a worker goes on with an action, unless it has ended or was passed on meanwhile.

    With the database as broker it is sent in the same transaction; with Redis after that, and the queue's schedule
    finds what is lost in between.
    """
    with transaction.atomic():
        action = BulkAction.objects.select_for_update().get(pk=action_id)
        if not action.is_unfinished or action.turn != turn:
            return
        next_turn = action.pass_on()
        if "orm" in settings.Q_CLUSTER:
            async_task(GO_ON_TASK, action_id, next_turn)
        else:
            transaction.on_commit(lambda: _send(action_id, next_turn))


def _send(action_id: int, turn: int) -> None:
    try:
        async_task(GO_ON_TASK, action_id, turn)
    except Exception as error:  # noqa: BLE001  # whichever broker it is, its errors are its own
        logger.warning("The queue's broker can't be reached; bulk action %s goes on later: %s", action_id, error)


def _do_batch(action_id: int, turn: int) -> bool:
    """Look at the next runs; gives whether more are left. What happens to them and the position are stored together."""
    action = BulkAction.objects.get(pk=action_id)
    if not action.is_unfinished or action.turn != turn:
        return False
    # Looked for before anything is locked: on SQLite all other writers would wait for it.
    limit = _find_limit(action)
    found = _find_next(action, limit)
    reached = found.last
    is_last = len(found.positions) < limit and found.searched_to is None
    with transaction.atomic():
        locked = BulkAction.objects.select_for_update().get(pk=action_id)
        if not locked.is_unfinished or locked.turn != turn or locked.position != action.position:
            return False
        if locked.kind == BulkKind.CANCEL:
            cancel_runs(action=locked, run_ids=found.ids)
        else:
            start_again(action=locked, run_ids=found.ids)
        if reached is not None:
            locked.come_to(reached.key, reached.at)
        if is_last or locked.position == locked.oldest or locked.is_full:
            locked.end(WorkState.DONE)
            return False
    return True


def _find_limit(action: BulkAction) -> int:
    if action.kind == BulkKind.CANCEL and action.run_ids is None:
        return LOOK
    return min(BATCH, action.most - action.done) if action.most else BATCH


def _find_next(action: BulkAction, limit: int) -> Found:
    """The next runs to work on, behind the position of ``action``."""
    if action.run_ids is not None:
        left = [Position("", run_id) for run_id in action.run_ids if run_id < action.position]
        return Found(left[:limit])
    with timezone.override(ZoneInfo(action.time_zone)):
        filters = RunFilters(action.query)
        if filters.problems:
            # Without the filter that fell away it would be done to other runs than were meant.
            raise _FilterError(" ".join(problem.message for problem in filters.problems))
        wanted = narrow_filters(BulkKind(action.kind), filters)
        if wanted is None:
            return Found(())
        before = Position(action.position_at, action.position) if action.position_at else None
        return find_runs(wanted, before=before, newest=action.newest, limit=limit)


def narrow_filters(kind: BulkKind, filters: RunFilters) -> RunFilters | None:
    """Filters without the runs that ``kind`` does nothing to; None if none are left.

    Most runs that match have ended long ago: those of a cancellation are read from the index of the others.
    """
    return narrow_statuses(filters, UNDER_WAY) if kind == BulkKind.CANCEL else filters


def narrow_statuses(filters: RunFilters, possible: Sequence[str]) -> RunFilters | None:
    """Filters for runs of the ``possible`` statuses only; None if they ask for none of these."""
    statuses = [status for status in possible if not filters.statuses or status in filters.statuses]
    return RunFilters(filters.to_query(status=",".join(statuses))) if statuses else None


def _fail(action_id: int, problem: str) -> None:
    with transaction.atomic():
        action = BulkAction.objects.select_for_update().get(pk=action_id)
        if action.is_unfinished:
            action.end(WorkState.FAILED, problem)
