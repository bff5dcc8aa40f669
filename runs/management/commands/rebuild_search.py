"""``manage.py rebuild_search``: the words that runs are found by, made anew from their history."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Max

from runs.models import Run
from runs.search import reindex_runs

BATCH = 100
"""Runs indexed in one transaction: few, since workers that have something to store wait for it."""
REPORT = 50
"""Batches between two lines of progress."""


class Command(BaseCommand):
    help = (
        "Make the search index anew from the history of all ended runs, batch by batch. Web servers and workers may "
        "go on meanwhile, and runs stay findable. After a break go on with --from."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="first", type=int, default=1, help="the run number to begin with")

    def handle(self, *args: Any, **options: Any) -> None:
        last, done = options["first"] - 1, 0
        highest = Run.objects.aggregate(Max("pk"))["pk__max"] or 0
        try:
            while run_ids := reindex_runs(above=last, limit=BATCH):
                last, done = run_ids[-1], done + len(run_ids)
                if done % (BATCH * REPORT) == 0:
                    self.stdout.write(f"{done:,} runs indexed, up to #{last} of #{highest}.")
        except BaseException:
            # Ctrl-C, or a database that went away: what was done is stored.
            self.stderr.write(f"Stopped after run #{last}. Go on with --from {last + 1}.")
            raise
        self.stdout.write(f"{done:,} runs indexed; done.")
