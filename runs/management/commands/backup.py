"""``manage.py backup``: copy the embedded database while it is in use."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, transaction

from runs.backup import Backup, BackupError, write_backup
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

REPORT_INTERVAL = 2.0
"""Seconds between two lines on progress."""


class Command(BaseCommand):
    help = (
        "Copy the embedded database to a file, also while web server and workers are at work, and check the copy page "
        "by page. “manage.py restore” puts it back. Exit status: 0 written and whole, 1 not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="a new file")
        parser.add_argument("--replace", action="store_true", help="write over a file that is there")

    def handle(self, *args: Any, **options: Any) -> None:
        reported_at = time.monotonic()

        def report(done: int, pages: int) -> None:
            nonlocal reported_at
            if pages and time.monotonic() - reported_at >= REPORT_INTERVAL:
                reported_at = time.monotonic()
                self.stdout.write(f"{done * 100 // pages} % copied.")

        path: Path = options["file"]
        try:
            backup = write_backup(path, replaces=options["replace"], report=report)
        except BackupError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{path}: {backup.runs:,} runs with {backup.attempts:,} attempts, {backup.size:,} bytes, checked."
        )
        self._tell(path, backup)
        key = settings.TOOLFLOW_DATA_DIR / "secret_key"
        if key.exists():
            self.stdout.write(
                f"The secret key is not in it. Keep a copy of {key} in a safe place: without it everybody signs in "
                "anew, and webhooks are signed with other secrets."
            )

    def _tell(self, path: Path, backup: Backup) -> None:
        details = {"runs": backup.runs, "attempts": backup.attempts, "bytes": backup.size}
        try:
            with transaction.atomic():
                leave_trail(action=TrailAction.BACKUP_MADE, label=path.name, details=details)
        except DatabaseError as error:
            # The disk may be full, or the database one that is still to be migrated; the copy is whole nonetheless.
            self.stderr.write(f"The trail has no entry of it: {str(error).strip()}.")
