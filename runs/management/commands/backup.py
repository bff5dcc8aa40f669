"""``manage.py backup``: copy the embedded database while it is in use."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from runs.audit_log.events import AuditAction
from runs.backup import BackupError, log_copy, write_backup
from runs.management.terminal import Progress


class Command(BaseCommand):
    help = (
        "Copy the embedded database to a file, also while web server and workers are running, and check the copy page "
        "by page. “manage.py restore” puts it back. Exit status: 0 written and whole, 1 not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="a new file")
        parser.add_argument("--replace", action="store_true", help="overwrite an existing file")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        progress = Progress(self)
        try:
            backup = write_backup(
                path,
                replaces=options["replace"],
                report=lambda done, pages: progress(f"{done * 100 // max(pages, 1)} % copied."),
            )
        except BackupError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{path}: {backup.runs:,} runs with {backup.attempts:,} attempts, {backup.size:,} bytes, checked."
        )
        details = {"runs": backup.runs, "attempts": backup.attempts, "bytes": backup.size}
        if problem := log_copy(AuditAction.BACKUP_MADE, path, details):
            self.stderr.write(problem)
        key = settings.TOOLFLOW_DATA_DIR / "secret_key"
        if key.exists():
            self.stdout.write(
                f"The secret key is not in it. Keep a copy of {key} in a safe place: without it, all users "
                "have to sign in again, and webhooks are signed with other secrets."
            )
