"""``manage.py purge_trail``: delete old entries of the audit log."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from flows.models import MAX_KEEP_DAYS
from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import AuditEntry

MIN_DAYS = 30
BATCH_SIZE = 5_000
"""Entries that are deleted in one transaction."""


class Command(BaseCommand):
    help = "Delete entries of the audit log that are older than --days. Without it the log is kept for ever."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--days", type=int, required=True, help=f"how many days are kept, at least {MIN_DAYS}")
        parser.add_argument("--dry-run", action="store_true", help="only report how many these are")

    def handle(self, *args: Any, **options: Any) -> None:
        days: int = options["days"]
        if not MIN_DAYS <= days <= MAX_KEEP_DAYS:
            raise CommandError(f"--days is {days}; it can be {MIN_DAYS} to {MAX_KEEP_DAYS}.")
        before = timezone.now() - timedelta(days=days)
        if options["dry_run"]:
            count = AuditEntry.objects.filter(at__lt=before).count()
            self.stdout.write(f"{count} entries are older than {days} days.")
            return
        total = 0
        while count := _purge_batch(before):
            total += count
        self.stdout.write(f"{total} entries deleted that were older than {days} days.")


def _purge_batch(before: datetime) -> int:
    """Delete the oldest entries, and add one that says so; gives how many were deleted."""
    with transaction.atomic():
        count = AuditEntry.objects.all().purge(before=before, limit=BATCH_SIZE)
        if count:
            log_audit_event(action=AuditAction.TRAIL_PURGED, details={"entries": count, "before": before.isoformat()})
    return count
