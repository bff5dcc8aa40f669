"""``manage.py purge_trail``: delete entries of the trail that are older than they need to be."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from runs.models import TrailEntry
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

LEAST_DAYS = 30
BATCH = 5_000
"""Entries that are deleted in one transaction."""


class Command(BaseCommand):
    help = "Delete entries of the trail that are older than so many days. Without it the trail is kept for ever."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--days", type=int, required=True, help=f"how many days are kept, at least {LEAST_DAYS}")
        parser.add_argument("--dry-run", action="store_true", help="only say how many these are")

    def handle(self, *args: Any, **options: Any) -> None:
        days: int = options["days"]
        if days < LEAST_DAYS:
            raise CommandError(f"--days is {days}; the trail of the last {LEAST_DAYS} days is always kept.")
        before = timezone.now() - timedelta(days=days)
        if options["dry_run"]:
            count = TrailEntry.objects.filter(at__lt=before).count()
            self.stdout.write(f"{count} entries are older than {days} days.")
            return
        total = 0
        while count := _purge_batch(before):
            total += count
        self.stdout.write(f"{total} entries deleted that were older than {days} days.")


def _purge_batch(before: datetime) -> int:
    """Delete the oldest entries, and leave one that says so; gives how many were deleted."""
    # Whatever breaks it off, none goes untold.
    with transaction.atomic():
        count = TrailEntry.objects.all().purge(before=before, limit=BATCH)
        if count:
            leave_trail(action=TrailAction.TRAIL_PURGED, details={"entries": count, "before": before.isoformat()})
    return count
