"""``manage.py archive_history``: write runs that have ended to a file."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from runs.archive.reading import BadArchiveError
from runs.archive.writing import write_archive
from runs.management.reading import find_flow, read_day
from runs.models import Run
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

PROGRESS = 10_000
"""Runs between two lines that say how far it has come."""


class Command(BaseCommand):
    help = (
        "Write runs that have ended, with all that belongs to them, to a file of gzipped JSON Lines, and read it again "
        "to see that it is whole and that each run could be restored. Nothing is taken away. restore_archive puts them "
        "back. Exit status: 0 written, 1 not, or not all of them could be restored."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flow", metavar="NAME", help="only runs of this flow")
        parser.add_argument("--before", metavar="DAY", type=read_day, help="only runs that ended before this day (UTC)")
        parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="a new file: history.jsonl.gz")

    def handle(self, *args: Any, **options: Any) -> None:
        runs = Run.objects.ended()
        if flow := find_flow(options["flow"]):
            runs = runs.filter(flow=flow)
        if day := options["before"]:
            runs = runs.filter(ended_at__lt=datetime(day.year, day.month, day.day, tzinfo=UTC))
        path: Path = options["out"]
        told = 0

        def report(done: int) -> None:
            nonlocal told
            if done - told >= PROGRESS:
                told = done
                self.stdout.write(f"{done:,} runs written so far.")

        try:
            run_ids = runs.order_by("pk").values_list("pk", flat=True).iterator(2_000)
            archive = write_archive(path, run_ids=run_ids, report=report)
        except (OSError, BadArchiveError) as error:
            raise CommandError(f"“{path}” can’t be written: {getattr(error, 'strerror', None) or error}.") from error
        leave_trail(
            action=TrailAction.HISTORY_ARCHIVED,
            about=flow,
            label="" if flow else path.name,
            details={
                "runs": archive.runs,
                "attempts": archive.attempts,
                "archive": path.name,
                **({"ended_before": day.isoformat()} if day else {}),
            },
        )
        self.stdout.write(
            f"{path}: {archive.runs:,} runs with {archive.attempts:,} attempts, {path.stat().st_size:,} bytes."
        )
        if archive.misfits:
            raise CommandError(
                f"{len(archive.misfits):,} of these runs could not be restored as they stand there. {archive.misfits}"
            )
