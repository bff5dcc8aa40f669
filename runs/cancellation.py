"""Cancelling a run for somebody who asks for it."""

from __future__ import annotations

from django.db import transaction

from runs.models import Run
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


def cancel_run(*, run: Run) -> bool:
    """Cancel a run, and leave a trail of it: a queued one at once, a running one as soon as its worker sees it.

    False if it had ended already. Asked for twice it is told of once.
    """
    was_asked = run.cancel_requested
    with transaction.atomic():
        is_cancelled = run.request_cancel()
        if is_cancelled and not was_asked:
            leave_trail(action=TrailAction.RUN_CANCELLED, about=run)
    return is_cancelled
