"""``manage.py seed_history``: invented history of any size."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection
from django.utils import timezone

from runs.seeding import seed_history

MOST = 100_000_000


class Command(BaseCommand):
    help = (
        "Store invented runs, about four attempts each, of flows of their own (“seeded-…”), to try or measure ToolFlow "
        "at any size. The same seed gives the same runs. Meant for a database that nobody will miss."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--runs", type=_read_count, default=1_000, help="how many (default: %(default)s)")
        parser.add_argument("--days", type=_read_count, default=90, help="over how many days (default: %(default)s)")
        parser.add_argument("--seed", type=int, default=1, help="what chance begins with (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        def report(what: str, done: int) -> None:
            if done % 10_000 == 0 or done >= options["runs"]:
                self.stdout.write(f"{done:,} of {options['runs']:,} runs {what}.")

        seed_history(
            runs=options["runs"], days=options["days"], seed=options["seed"], until=timezone.now(), report=report
        )
        with connection.cursor() as cursor:
            # The planner chooses by what it knows of the tables.
            cursor.execute("ANALYZE")


def _read_count(text: str) -> int:
    try:
        count = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        count = 0
    if not 1 <= count <= MOST:
        raise ArgumentTypeError(f"“{text[:40]}” is no count: give a whole number from 1 to {MOST:,}.")
    return count
