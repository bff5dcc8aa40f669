"""``manage.py rebuild_search``: index the words by which runs are found again."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from runs.management.terminal import Progress
from runs.models import Run
from runs.search import empty_index, index_runs

BATCH_SIZE = 100
"""Runs indexed in one transaction: few, since workers that have something to store wait for it."""


class Command(BaseCommand):
    help = (
        "Empty the search index and fill it again from the history of all ended runs, batch by batch. Web servers and "
        "workers may go on meanwhile. After a break continue with --from, which keeps what is indexed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="first", type=int, help="the run number to continue with")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["first"] is None:
            empty_index()
        progress = Progress(self)
        last, done = (options["first"] or 1) - 1, 0
        try:
            while run_ids := _index_batch(last):
                last, done = run_ids[-1], done + len(run_ids)
                progress(f"{done:,} runs indexed, up to #{last}.")
        except BaseException:
            # Ctrl-C, or a database that went away: what was done is stored.
            self.stderr.write(f"Stopped after run #{last}. Continue with --from {last + 1}.")
            raise
        self.stdout.write(f"{done:,} runs indexed; done.")


def _index_batch(last: int) -> list[int]:
    """Index the next runs after ``last`` that have outputs; gives the numbers of all next runs."""
    with transaction.atomic():
        runs = Run.objects.filter(pk__gt=last, is_counted=True).order_by("pk").select_for_update()
        rows = list(runs.values_list("pk", "outputs_removed_at")[:BATCH_SIZE])
        index_runs([run_id for run_id, removed_at in rows if removed_at is None])
    return [run_id for run_id, _ in rows]
