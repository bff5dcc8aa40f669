"""``manage.py restore``: put a copy in the place of the embedded database."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from runs.audit_log.events import AuditAction
from runs.backup import BackupError, log_copy, restore_backup


class Command(BaseCommand):
    help = (
        "Put a file that “manage.py backup” wrote in the place of the embedded database. Stop web server and workers "
        "first; the previous database is kept beside it. Exit status: 0 restored, 1 nothing was changed."
    )
    # There may be no database yet, or a broken one.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="what “manage.py backup” wrote")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            backup, kept, is_older = restore_backup(options["file"], now=timezone.now())
        except BackupError as error:
            raise CommandError(str(error)) from error
        details: dict[str, Any] = {"runs": backup.runs, "attempts": backup.attempts}
        self.stdout.write(f"Restored: {backup.runs:,} runs with {backup.attempts:,} attempts.")
        if kept is not None:
            details["kept"] = kept.name
            self.stdout.write(f"The previous database is kept as {kept}; delete it when all is well.")
        if problem := log_copy(AuditAction.BACKUP_RESTORED, options["file"], details):
            self.stderr.write(problem)
        if is_older:
            self.stdout.write("The copy is of an older ToolFlow. Run “manage.py migrate” before you start anything.")
        self.stdout.write(
            "Accounts are those of the copy: tokens revoked, sessions ended and passwords changed since it was made "
            "are valid again. See docs/backup.md."
        )
