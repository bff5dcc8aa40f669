"""``manage.py restore_archive``: put runs of a file back."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from runs.archive.reading import BadArchiveError, check_archive
from runs.archive.restoring import Restored, restore_archive

PROGRESS = 10_000
"""Runs between two lines that say how far it has come."""
_MOST_NAMED = 20


class Command(BaseCommand):
    help = (
        "Put the runs of a file back, with their numbers. The file is checked as a whole first. Runs that are there "
        "stay as they are, but those that lost their outputs get them back. Interrupted, it goes on when called again. "
        "Exit status: 0 all runs of the file are there, 1 not all of them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="what archive_history or purge_history wrote")
        parser.add_argument(
            "--check", action="store_true", help="only say whether the file is whole, and what it holds"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        try:
            if options["check"]:
                contents = check_archive(path)
                self.stdout.write(f"{path} is whole: {contents.runs:,} runs with {contents.attempts:,} attempts.")
                return
            restored = restore_archive(path, report=self._report)
        except BadArchiveError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{restored.runs:,} runs with {restored.attempts:,} attempts are back; statistics held "
            f"{restored.runs - restored.counted:,} of them still and count {restored.counted:,} anew. "
            f"{restored.present:,} were there already."
        )
        if restored.taken:
            named = ", ".join(map(str, restored.taken[:_MOST_NAMED])) + (
                ", …" if len(restored.taken) > _MOST_NAMED else ""
            )
            raise CommandError(
                f"{len(restored.taken):,} runs were left out, since other runs have their numbers here: {named}"
            )

    def _report(self, restored: Restored) -> None:
        done = restored.runs + restored.present
        if done // PROGRESS != self._told:
            self._told = done // PROGRESS
            self.stdout.write(f"{done:,} runs so far.")

    _told = 0
