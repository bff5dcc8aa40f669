"""``manage.py restore``: put a copy in the place of the embedded database."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, transaction
from django.utils import timezone

from runs.backup import BackupError, Restoration, restore_backup
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail


class Command(BaseCommand):
    help = (
        "Put a file that “manage.py backup” wrote in the place of the embedded database. Stop web server and workers "
        "first; the database that was there is kept beside it. Exit status: 0 restored, 1 nothing was changed."
    )
    # There may be no database yet, or a broken one.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="what “manage.py backup” wrote")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            restoration = restore_backup(options["file"], now=timezone.now())
        except BackupError as error:
            raise CommandError(str(error)) from error
        backup = restoration.backup
        self.stdout.write(f"Restored: {backup.runs:,} runs with {backup.attempts:,} attempts.")
        if restoration.kept is not None:
            self.stdout.write(f"The database that was there is kept as {restoration.kept}; delete it when all is well.")
        self._tell(options["file"], restoration)
        if restoration.is_older:
            self.stdout.write("The copy is of an older ToolFlow. Run “manage.py migrate” before you start anything.")
        self.stdout.write(
            "Accounts are those of the copy: tokens revoked, sessions ended and passwords changed since it was made "
            "let people in again. See docs/backup.md."
        )

    def _tell(self, source: Path, restoration: Restoration) -> None:
        details = {
            "runs": restoration.backup.runs,
            "attempts": restoration.backup.attempts,
            **({"kept": restoration.kept.name} if restoration.kept else {}),
        }
        try:
            with transaction.atomic():
                leave_trail(action=TrailAction.BACKUP_RESTORED, label=source.name, details=details)
        except DatabaseError as error:
            # The tables of an older ToolFlow may lack what an entry needs; all is restored nonetheless.
            self.stderr.write(f"The trail has no entry of it: {str(error).strip()}.")
