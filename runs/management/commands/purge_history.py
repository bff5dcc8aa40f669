"""``manage.py purge_history``: delete now what retention policies say, or what ended before a day."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, date, datetime, time
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from flows.management.terminal import fetch_flow
from flows.models import Flow
from runs.management.terminal import Progress
from runs.retention.policy import Part, PurgeTask, build_tasks, effective_policy
from runs.retention.purging import Purged, purge
from runs.retention.tasks import delete_batch, find_expired


class Command(BaseCommand):
    help = (
        "Delete runs or their outputs by the retention policies of flows, as the queue does every hour. "
        "--before overrides the policies. Workers may go on; it is slower while runs are in flight. "
        "Interrupted, it continues when called again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only report what would be deleted")
        parser.add_argument("--flow", metavar="NAME", help="only runs of this flow")
        parser.add_argument(
            "--before",
            metavar="DAY",
            type=date.fromisoformat,
            help="delete runs that ended before this day (UTC), such as 2026-11-21, instead of what policies say",
        )
        parser.add_argument(
            "--outputs", action="store_true", help="with --before: delete only inputs and outputs; figures stay"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        now, is_dry = timezone.now(), options["dry_run"]
        has_flow, before = options["flow"] is not None, options["before"]
        flows = [fetch_flow(options["flow"])] if has_flow else list(Flow.objects.order_by("name"))
        tasks = [task for flow in flows for task in _list_tasks(flow, before, options["outputs"], now)]
        if not tasks:
            self.stdout.write("No retention policy deletes anything: all runs are kept. See docs/retention.md.")
        for task in tasks:
            runs, attempts = task.count()
            self.stdout.write(_describe(task, runs, attempts, is_dry=is_dry))
            if runs and not is_dry:
                self._purge(task, runs)
        if not has_flow and before is None:
            self._delete_expired(now, is_dry=is_dry)

    def _purge(self, task: PurgeTask, runs: int) -> None:
        progress, purged = Progress(self), Purged()
        for purged in purge(task):
            progress(f"  {purged.runs:,} of {runs:,} runs")
        self.stdout.write(f"  Done: {purged.runs:,} runs, {purged.attempts:,} attempts.")

    def _delete_expired(self, now: datetime, *, is_dry: bool) -> None:
        for name, expired in find_expired(now).items():
            count = expired.count()
            while not is_dry and delete_batch(expired):
                pass
            if count:
                self.stdout.write(f"{name}: {count:,} {'would be deleted' if is_dry else 'deleted'}.")


def _list_tasks(flow: Flow, before: date | None, only_outputs: bool, now: datetime) -> list[PurgeTask]:
    if before is None:
        if only_outputs:
            raise CommandError("--outputs needs --before: give the day before which runs lose their outputs.")
        return build_tasks(flow, effective_policy(flow), now)
    limit = datetime.combine(before, time.min, UTC)
    if limit > now:
        raise CommandError(f"--before {before} lies in the future; give today or an earlier day.")
    return [PurgeTask(flow, Part.OUTPUTS if only_outputs else Part.RUNS, limit)]


def _describe(task: PurgeTask, runs: int, attempts: int, *, is_dry: bool) -> str:
    verb = "would be deleted" if is_dry else "are deleted"
    if task.part is Part.OUTPUTS:
        verb = "would lose their outputs" if is_dry else "lose their outputs"
    return (
        f"{task.flow.name} ({effective_policy(task.flow)}): {runs:,} runs that ended before "
        f"{task.ended_before:%Y-%m-%d %H:%M} UTC {verb}, {attempts:,} attempts."
    )
