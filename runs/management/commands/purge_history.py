"""``manage.py purge_history``: take away now what the policies say, or what ended before a day."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from datetime import UTC, date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from flows.models import Flow
from runs.management.reading import find_flow, read_day
from runs.retention.leftovers import clear, list_leftovers
from runs.retention.pacing import Pace
from runs.retention.policy import Part, read_policy
from runs.retention.purging import Purged, Task, list_tasks, purge
from runs.retention.telling import PurgeTelling

LOOK = 2.0
"""Seconds between two lines that say how far it has come."""
_MOST_NAMED = 20


class Command(BaseCommand):
    help = (
        "Delete runs, or take away what they read and wrote, as the policies of flows say: what the queue does by "
        "itself every hour. With --before whatever the policies say. Workers may go on; it takes its time while runs "
        "are under way. Interrupted, it goes on where it stopped when called again. Exit status: 0 done, 1 not done."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")
        parser.add_argument("--flow", metavar="NAME", help="only runs of this flow")
        parser.add_argument(
            "--before",
            metavar="DAY",
            type=read_day,
            help="delete runs that ended before this day (UTC), such as 2026-11-21, instead of what policies say",
        )
        parser.add_argument(
            "--outputs", action="store_true", help="with --before: take only what they read and wrote; figures stay"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.left: list[int] = []
        now = timezone.now()
        flow = find_flow(options["flow"])
        tasks = self._list_tasks(flow, options["before"], only_outputs=options["outputs"], now=now)
        is_dry: bool = options["dry_run"]
        if not tasks:
            self.stdout.write("No policy takes anything away: all runs are kept for ever. See docs/retention.md.")
        for task in tasks:
            runs, attempts = task.count(is_forecast=is_dry)
            self.stdout.write(_describe(task, runs, attempts, is_dry=is_dry))
            if runs and not is_dry:
                self._purge(task, attempts)
        if flow is None and options["before"] is None:
            self._clear_leftovers(now, is_dry=is_dry)
        if self.left:
            named = ", ".join(map(str, self.left[:_MOST_NAMED])) + (", …" if len(self.left) > _MOST_NAMED else "")
            raise CommandError(f"It failed for {len(self.left):,} runs, which are left; the log says why: {named}")

    def _list_tasks(self, flow: Flow | None, before: date | None, *, only_outputs: bool, now: datetime) -> list[Task]:
        if before is None:
            if only_outputs:
                raise CommandError("--outputs goes with --before: say until which day outputs are to go.")
            return list_tasks(now=now, flow=flow)
        limit = datetime(before.year, before.month, before.day, tzinfo=UTC)
        if limit > now:
            raise CommandError(f"--before {before} lies in the future; give today or an earlier day.")
        part = Part.OUTPUTS if only_outputs else Part.RUNS
        flows = Flow.objects.order_by("name") if flow is None else [flow]
        return [Task(one, part, limit) for one in flows]

    def _purge(self, task: Task, attempts: int) -> None:
        told_at = begin = time.monotonic()

        def report(purged: Purged) -> None:
            nonlocal told_at
            if time.monotonic() - told_at >= LOOK:
                told_at = time.monotonic()
                share = min(99, purged.attempts * 100 // attempts) if attempts else 99
                self.stdout.write(f"  {share} %: {purged.attempts:,} of {attempts:,} attempts")

        telling = PurgeTelling(task, by_worker=False)
        purged = purge(task, pace=Pace(), report=report, begin=telling.begin, tell=telling.end)
        self.left += purged.left
        taken = time.monotonic() - begin
        self.stdout.write(
            f"  Done in {taken:,.1f} s: {purged.runs:,} runs, {purged.attempts:,} attempts; the longest transaction "
            f"took {purged.longest * 1000:,.0f} ms."
        )

    def _clear_leftovers(self, now: datetime, *, is_dry: bool) -> None:
        for leftover in list_leftovers():
            count = leftover.count(now) if is_dry else sum(clear(leftover, now=now))
            if count:
                self.stdout.write(f"{leftover.name}: {count:,} {'would go' if is_dry else 'deleted'}.")


def _describe(task: Task, runs: int, attempts: int, *, is_dry: bool) -> str:
    verb = "would be deleted" if is_dry else "are deleted"
    if task.part is Part.OUTPUTS:
        verb = "would lose their outputs" if is_dry else "lose their outputs"
    return (
        f"{task.flow.name} ({read_policy(task.flow)}): {runs:,} runs that ended before "
        f"{task.ended_before:%Y-%m-%d %H:%M} UTC {verb}, {attempts:,} attempts."
    )
