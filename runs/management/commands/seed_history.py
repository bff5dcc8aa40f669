"""``manage.py seed_history``: invented history of any size."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import timezone

from runs.management.terminal import Progress
from runs.seeding import seed_history


class Command(BaseCommand):
    help = (
        "Store invented runs, about four attempts each, of flows of their own (“seeded-…”), to try or measure ToolFlow "
        "at any size. The same seed gives the same runs. Use it on a database that can be thrown away."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--runs", type=int, default=1_000, help="how many (default: %(default)s)")
        parser.add_argument("--days", type=int, default=90, help="over how many days (default: %(default)s)")
        parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        runs, progress = options["runs"], Progress(self)
        if runs < 1 or options["days"] < 1:
            raise CommandError("--runs and --days take numbers from 1.")
        seed_history(
            runs=runs,
            days=options["days"],
            seed=options["seed"],
            until=timezone.now(),
            report=lambda what, done: progress(f"{done:,} of {runs:,} runs {what}."),
        )
        with connection.cursor() as cursor:
            # The database plans queries by its figures on the tables.
            cursor.execute("ANALYZE")
        self.stdout.write(f"{runs:,} runs stored and counted.")
