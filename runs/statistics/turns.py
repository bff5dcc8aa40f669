"""Whose turn it is to add to the statistics: one process at a time, and none while they are rebuilt.

So nobody's additions are lost, and nobody waits for anybody: who finds another at it comes back later.

The same row tells who remembers sums of earlier days whether they still hold: ``paused_by`` stays after a pause, and is
another one whenever such days change.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from runs.models.run import in_future
from runs.models.statistics import TallyTurn

TURN = 1
"""The key of the one row."""
PATIENCE = timedelta(minutes=1)
"""After so long without a sign of life a rebuilding counts as broken off."""
TOLD = timedelta(days=2)
"""How long before today a day lies at least whose changes are told of to who remembers sums."""
_NAME = 16
"""Characters of ``paused_by`` that are the name of a pause; the others change with each sign of life."""


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


def tell_of_change(days: Iterable[date], *, now: datetime) -> None:
    """Let nobody go on with sums of before, if one of the ``days`` (UTC) that changed is long over.

    It is the caller's turn.
    """
    if min(days, default=date.max) < now.astimezone(UTC).date() - TOLD:
        TallyTurn.objects.filter(pk=TURN).update(paused_by=uuid4().hex)


def read_edition() -> str:
    """What becomes another one with every change of days that lie ``TOLD`` back."""
    return TallyTurn.objects.filter(pk=TURN).values_list("paused_by", flat=True).first() or ""


class Pause:
    """A time in which nobody adds to the statistics: runs that end meanwhile are tallied afterwards."""

    def __init__(self) -> None:
        self._name = uuid4().hex[:_NAME]

    def begin(self) -> bool:
        """Begin it as soon as whoever adds just now is ready; False if another rebuilding is under way."""
        _make_turn()
        free = TallyTurn.objects.filter(Q(paused_until=None) | Q(paused_until__lte=Now()), pk=TURN)
        return self._hold(free)

    def prolong(self) -> None:
        """Give a sign of life; in a transaction it also keeps the pause until that ends.

        Raises ``PauseLostError`` if it is too late.
        """
        if not self._hold(self._mine().filter(paused_until__gt=Now())):
            raise PauseLostError("Statistics were added to while they were rebuilt, after a break of over a minute.")

    def end(self) -> None:
        """Let the tallying go on."""
        self._mine().update(paused_until=None)

    def _mine(self) -> QuerySet[TallyTurn]:
        return TallyTurn.objects.filter(pk=TURN, paused_by__startswith=self._name)

    def _hold(self, rows: QuerySet[TallyTurn]) -> bool:
        return bool(rows.update(paused_by=self._name + uuid4().hex[_NAME:], paused_until=in_future(PATIENCE)))
