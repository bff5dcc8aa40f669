"""Whose turn it is to purge: of all messages of the queue only the last one that retention passed itself on by.

The queue's schedule sends a message every hour, and one that leaves work sends the next. Messages are often taken one
after the other by the same process, so that a lock alone would let each hour begin one more chain of them.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.models.purge_turn import PurgeTurn
from runs.models.run import in_future

TURN = 1
"""The key of the one row."""
PATIENCE = timedelta(minutes=10)
"""After so long without a message that was begun, or passed on, the last one counts as lost."""


def take_turn(number: int | None) -> int | None:
    """The turn of the message that was passed on as ``number``, or of one of the schedule (None); it holds once.

    Gives None to a message that is not the last any more, and to the schedule's while there is another.
    """
    row = PurgeTurn.objects.filter(pk=TURN)
    PurgeTurn.objects.bulk_create([PurgeTurn(pk=TURN)], ignore_conflicts=True)
    is_free = Q(held_until=None) | Q(held_until__lte=Now()) if number is None else Q(number=number)
    with transaction.atomic():
        if not row.filter(is_free).update(number=F("number") + 1, held_until=in_future(PATIENCE)):
            return None
        return row.values_list("number", flat=True).get()


def keep_turn(turn: int) -> bool:
    """Hold it for the message that is sent next; False if it counted as lost and somebody else has begun since."""
    return bool(PurgeTurn.objects.filter(pk=TURN, number=turn).update(held_until=in_future(PATIENCE)))


def end_turn(turn: int) -> None:
    """Leave the rest, if there is any, to the schedule."""
    PurgeTurn.objects.filter(pk=TURN, number=turn).update(held_until=None)
