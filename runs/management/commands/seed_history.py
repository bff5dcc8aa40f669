"""``manage.py seed_history``: invented history of any size."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import timezone

from runs.management.terminal import Progress
from runs.seeding import SampleError, remove_samples, seed_history


class Command(BaseCommand):
    help = (
        "Store invented runs, about four attempts each, of sample flows (“seeded-…”), to try or measure ToolFlow at "
        "any size. The same seed gives the same runs. With --remove, delete all sample flows and their runs instead."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--runs", type=int, default=1_000, help="how many (default: %(default)s)")
        parser.add_argument("--days", type=int, default=90, help="over how many days (default: %(default)s)")
        parser.add_argument(
            "--planted",
            type=int,
            default=0,
            help="how many runs more of a flow whose history has known truths (default: %(default)s)",
        )
        parser.add_argument("--remove", action="store_true", help="remove all sample history instead of storing some")
        parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        runs, planted, progress = options["runs"], options["planted"], Progress(self)
        if options["days"] < 1 or min(runs, planted) < 0 or not (runs or planted):
            raise CommandError("--runs and --planted take numbers of runs, one in all at least; --days one from 1.")
        try:
            if options["remove"]:
                remove_samples()
                self.stdout.write("Sample history is removed.")
                return
            seed_history(
                runs=runs,
                planted=planted,
                days=options["days"],
                seed=options["seed"],
                until=timezone.now(),
                report=lambda what, done: progress(f"{done:,} of {runs + planted:,} runs {what}."),
            )
        except SampleError as error:
            raise CommandError(str(error)) from error
        with connection.cursor() as cursor:
            # The database plans queries by its figures on the tables.
            cursor.execute("ANALYZE")
        self.stdout.write(f"{runs + planted:,} runs stored and counted.")
