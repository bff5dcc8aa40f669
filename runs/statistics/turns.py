"""Whose turn it is to add to the statistics: one process at a time, and none while they are rebuilt.

So nobody's additions are lost, and nobody waits for anybody: who finds another at it comes back later.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from django.db.models import Q
from django.db.models.functions import Now

from runs.models.run import in_future
from runs.models.statistics import TallyTurn

TURN = 1
"""The key of the one row."""
PATIENCE = timedelta(minutes=1)
"""After so long without a sign of life a rebuilding counts as broken off."""


class PauseLostError(Exception):
    """A rebuilding gave no sign of life for too long: statistics have been added to since."""


def take_turn() -> bool:
    """Whether the caller may add to the statistics until the end of its transaction."""
    mine = TallyTurn.objects.filter(Q(paused_until=None) | Q(paused_until__lte=Now()), pk=TURN)
    mine = mine.select_for_update(skip_locked=True)
    if mine.values_list("pk"):
        return True
    if TallyTurn.objects.filter(pk=TURN).exists():
        return False
    _make_turn()
    return bool(mine.values_list("pk"))


def _make_turn() -> None:
    """Make the row, which is missing once in the life of a database. Whoever does so too waits for the first."""
    TallyTurn.objects.bulk_create([TallyTurn(pk=TURN)], ignore_conflicts=True)


class Pause:
    """A time in which nobody adds to the statistics: runs that end meanwhile are tallied afterwards."""

    def __init__(self) -> None:
        self._name = uuid4().hex

    def begin(self) -> bool:
        """Begin it as soon as whoever adds just now is ready; False if another rebuilding is under way."""
        _make_turn()
        free = TallyTurn.objects.filter(Q(paused_until=None) | Q(paused_until__lte=Now()), pk=TURN)
        return bool(free.update(paused_by=self._name, paused_until=in_future(PATIENCE)))

    def prolong(self) -> None:
        """Give a sign of life; in a transaction it also keeps the pause until that ends.

        Raises ``PauseLostError`` if it is too late.
        """
        held = TallyTurn.objects.filter(pk=TURN, paused_by=self._name, paused_until__gt=Now())
        if not held.update(paused_until=in_future(PATIENCE)):
            raise PauseLostError("Statistics were added to while they were rebuilt, after a break of over a minute.")

    def end(self) -> None:
        """Let the tallying go on."""
        TallyTurn.objects.filter(pk=TURN, paused_by=self._name).update(paused_by="", paused_until=None)
