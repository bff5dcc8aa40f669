"""Locks across processes and hosts: one row each, leased in the time of the database."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.models import Lock
from runs.models.run import in_future

STATISTICS = "statistics"
"""Held by processes that add to statistics, and leased while they are rebuilt."""

_IS_FREE = Q(held_until=None) | Q(held_until__lte=Now())


def hold(name: str) -> bool:
    """Lock ``name`` until the end of the transaction; False if another process holds or leases it."""
    rows = Lock.objects.filter(_IS_FREE, pk=name).select_for_update(skip_locked=True)
    if rows.values_list("pk"):
        return True
    return _create(name) and bool(rows.values_list("pk"))


def acquire(name: str, lease: timedelta, *, token: int | None = None) -> int | None:
    """Lease ``name``; gives the fencing token, or None if it is leased.

    With ``token`` the lease of that token is taken over, which works once.
    """
    _create(name)
    rows = Lock.objects.filter(_IS_FREE if token is None else Q(token=token), pk=name)
    with transaction.atomic():
        if not rows.update(token=F("token") + 1, held_until=in_future(lease)):
            return None
        return Lock.objects.values_list("token", flat=True).get(pk=name)


def renew(name: str, lease: timedelta, token: int) -> bool:
    """Prolong a lease, in a transaction until its end at least; False if it has expired or is another's."""
    leased = Lock.objects.filter(pk=name, token=token, held_until__gt=Now())
    return bool(leased.update(held_until=in_future(lease)))


def release(name: str, token: int) -> None:
    """Release a lease; does nothing if it is another's."""
    Lock.objects.filter(pk=name, token=token).update(held_until=None)


def _create(name: str) -> bool:
    """Create the row, which is missing once in the life of a database; False if it is there."""
    if Lock.objects.filter(pk=name).exists():
        return False
    Lock.objects.bulk_create([Lock(name=name)], ignore_conflicts=True)
    return True
