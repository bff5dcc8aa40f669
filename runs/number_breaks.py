"""Noting where numbers of runs are out of the order of creation, for whoever puts in runs that were created before.

Runs that are submitted get their numbers in order. Those of another installation, and invented ones, come with times of
their own; runs that come back to their own numbers are in order again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from runs.models import NumberBreak, Run

TOLERANCE = timedelta(minutes=10)
"""Runs that were created so close together may have numbers in any order."""
MOST_BREAKS = 50
"""Where there are more, nothing is said about the order; no further ones need to be kept."""


def note_breaks(run_ids: Collection[int]) -> None:
    """Compare runs that have just been stored with those next to them by number, in the caller's transaction."""
    lower = Run.objects.filter(pk__lt=OuterRef("pk")).order_by("-pk")
    higher = Run.objects.filter(pk__gt=OuterRef("pk")).order_by("pk")
    rows = Run.objects.filter(pk__in=run_ids).values_list(
        "pk",
        "created_at",
        Subquery(lower.values("created_at")[:1]),
        Subquery(higher.values("pk")[:1]),
        Subquery(higher.values("created_at")[:1]),
    )
    now = timezone.now()
    breaks = set()
    for number, created_at, before, next_number, after in rows.order_by():
        if before is not None and before - created_at > TOLERANCE:
            breaks.add(number)
        # Behind the highest number come those that are submitted from now on.
        if created_at - (after or now) > TOLERANCE:
            breaks.add(next_number or number + 1)
    add_breaks(breaks)


def add_breaks(numbers: Iterable[int]) -> None:
    """Keep that the order begins anew at these numbers."""
    breaks = [NumberBreak(number=number) for number in numbers]
    if breaks and NumberBreak.objects.count() <= MOST_BREAKS:
        NumberBreak.objects.bulk_create(breaks, ignore_conflicts=True)
