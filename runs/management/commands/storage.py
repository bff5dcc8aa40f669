"""``manage.py storage``: what takes the space."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from flows.models import MAX_KEEP_DAYS
from runs.management.terminal import format_table
from runs.retention.policy import Policy
from runs.storage import measure_storage

MAX_TABLES = 12


class Command(BaseCommand):
    help = (
        "Report what takes the space, by table and by flow, and what retention would free. Figures of flows are "
        "estimated from a sample of their runs. Exit status: 0."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        days: Any = {"type": int, "choices": range(1, MAX_KEEP_DAYS + 1), "metavar": "DAYS"}
        parser.add_argument("--json", action="store_true", help="the same as JSON, in bytes")
        parser.add_argument("--exact", action="store_true", help="measure tables of a large SQLite file too")
        parser.add_argument("--keep-days", **days, help="what would go if all flows kept runs for this long")
        parser.add_argument("--keep-outputs-days", **days, help="the same for outputs")

    def handle(self, *args: Any, **options: Any) -> None:
        runs, outputs = options["keep_days"], options["keep_outputs_days"]
        if runs and outputs and outputs > runs:
            raise CommandError("Outputs can’t be kept longer than their runs.")
        policy = Policy(runs, outputs) if runs or outputs else None
        storage = measure_storage(now=timezone.now(), policy=policy, is_detailed=options["exact"])
        if options["json"]:
            self.stdout.write(json.dumps(storage, indent=2))
            return
        self.stdout.write(f"The database takes {_format_size(storage['total'])}.")
        if storage["free"]:
            self.stdout.write(
                f"{_format_size(storage['free'])} of the file are empty and will be used again before it grows. To "
                "give them back to the disk, stop everything and run “VACUUM”; see docs/retention.md."
            )
        if storage["tables"] is None:
            self.stdout.write("Tables are measured with --exact, which reads all of the file.")
        else:
            sizes = [
                (one["name"], _format_size(one["data"]), _format_size(one["indexes"])) for one in storage["tables"]
            ]
            self.stdout.write("\n" + format_table([("table", "data", "indexes"), *sizes[:MAX_TABLES]]))
        for flow in storage["flows"]:
            self._show_flow(flow)

    def _show_flow(self, flow: dict[str, Any]) -> None:
        self.stdout.write(f"\n{flow['flow']}: {flow['runs']:,} runs, {flow['policy']}")
        if flow["runs"]:
            names = ("requests", "outputs", "inputs", "issues")
            parts = ", ".join(f"{name} {_format_size(flow[name])}" for name in names)
            self.stdout.write(
                f"  about {_format_size(flow['run_bytes'])} a run with {flow['attempts']:g} attempts: {parts}"
            )
        if flow["runs_due"] or flow["outputs_due"]:
            self.stdout.write(
                f"  due now: {flow['runs_due']:,} runs, and the outputs of {flow['outputs_due']:,}; "
                f"about {_format_size(flow['freed'])}"
            )


def _format_size(size: int) -> str:
    return filesizeformat(size).replace("\xa0", " ")
