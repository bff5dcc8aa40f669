"""``manage.py rebuild_statistics``: count the stored runs again."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import pluralize

from flows.management.terminal import fetch_flow
from flows.models import Flow
from runs.locks import STATISTICS, acquire, release
from runs.management.terminal import Progress
from runs.statistics.rebuild import LEASE, LeaseLostError, Rebuilt, rebuild_flow


class Command(BaseCommand):
    help = (
        "Count all runs again and correct the statistics. Workers may go on; runs that end meanwhile are counted "
        "afterwards. Days that lack runs since retention deleted them stay as they are; the counts of runs that were "
        "deleted by hand go, unless --since leaves their days alone. Exit status: 0 done, 1 not done, and nothing "
        "changed of the flow at which it stopped."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flow", metavar="NAME", help="only the statistics of this flow")
        parser.add_argument(
            "--since",
            metavar="DAY",
            type=date.fromisoformat,
            help="leave days before this one (UTC) as they are: 2026-11-21",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["flow"]
        for flow in Flow.objects.order_by("name") if name is None else [fetch_flow(name)]:
            self.stdout.write(f"{flow.name}: {_describe(self._rebuild(flow, options['since']))}")

    def _rebuild(self, flow: Flow, since: date | None) -> Rebuilt:
        progress = Progress(self)
        token = acquire(STATISTICS, LEASE)
        if token is None:
            raise CommandError("Statistics are being rebuilt already. If that was killed, try again in a minute.")
        try:
            return rebuild_flow(
                flow, token=token, since=since, report=lambda done: progress(f"{flow.name}: {done:,} runs counted.")
            )
        except LeaseLostError as error:
            raise CommandError(f"{flow.name}: {error} Nothing was changed; try again.") from error
        finally:
            release(STATISTICS, token)


def _describe(rebuilt: Rebuilt) -> str:
    counted = f"{rebuilt.runs:,} run{pluralize(rebuilt.runs)} counted"
    if rebuilt.lacking:
        counted += f"; {rebuilt.lacking:,} day{pluralize(rebuilt.lacking)} left alone, whose runs are deleted"
    if not rebuilt.changed:
        return f"{counted}; all {rebuilt.rows:,} rows were right."
    return f"{counted}; {rebuilt.changed:,} rows corrected, of {rebuilt.rows:,}."
