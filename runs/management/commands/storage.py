"""``manage.py storage``: what takes the room."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from flows.models import MAX_KEEP_DAYS
from runs.retention.policy import Policy
from runs.storage import FlowSize, Storage, measure_storage

MOST_TABLES = 12


class Command(BaseCommand):
    help = (
        "Say what takes the room: by table and by flow, and what retention would free. What is said of flows is "
        "estimated from a sample of their runs. Exit status: 0."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="the same as JSON, in bytes")
        parser.add_argument("--exact", action="store_true", help="measure tables of a large SQLite file too")
        parser.add_argument("--keep-days", type=_read_days, help="what would go if all flows kept runs so long")
        parser.add_argument("--keep-outputs-days", type=_read_days, help="the same for outputs")

    def handle(self, *args: Any, **options: Any) -> None:
        runs, outputs = options["keep_days"], options["keep_outputs_days"]
        if runs is not None and outputs is not None and outputs > runs:
            raise CommandError("Outputs can’t be kept longer than their runs.")
        policy = Policy(runs, outputs) if runs is not None or outputs is not None else None
        storage = measure_storage(now=timezone.now(), policy=policy, is_detailed=options["exact"])
        if options["json"]:
            self.stdout.write(json.dumps(storage.as_document(), indent=2))
            return
        self.stdout.write(f"The database takes {_say(storage.total)}.")
        self._say_free(storage)
        self._say_tables(storage)
        for flow in storage.flows:
            self._say_flow(flow)

    def _say_free(self, storage: Storage) -> None:
        if storage.free:
            self.stdout.write(
                f"{_say(storage.free)} of the file are empty and will be used again before it grows. To give them back "
                "to the disk, stop everything and run “VACUUM”; see docs/retention.md."
            )

    def _say_tables(self, storage: Storage) -> None:
        if storage.tables is None:
            self.stdout.write("Tables are measured with --exact, which reads all of the file.")
            return
        self.stdout.write(f"\n{'table':<32}{'data':>12}{'indexes':>12}")
        for table in storage.tables[:MOST_TABLES]:
            self.stdout.write(f"{table.name[:31]:<32}{_say(table.data):>12}{_say(table.indexes):>12}")

    def _say_flow(self, flow: FlowSize) -> None:
        self.stdout.write(f"\n{flow.flow}: {flow.runs:,} runs, {flow.policy}")
        if not flow.runs:
            return
        parts = ", ".join(f"{name} {_say(getattr(flow, name))}" for name in ("requests", "outputs", "inputs", "issues"))
        self.stdout.write(f"  about {_say(flow.run_bytes)} a run with {flow.attempts:g} attempts: {parts}")
        if flow.runs_due or flow.outputs_due:
            self.stdout.write(
                f"  due now: {flow.runs_due:,} runs, and the outputs of {flow.outputs_due:,}; about {_say(flow.freed)}"
            )


def _say(size: int) -> str:
    return filesizeformat(size).replace("\xa0", " ")


def _read_days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_KEEP_DAYS:
        raise ArgumentTypeError(f"“{text[:20]}” is no number of days: give a whole number from 1 to {MAX_KEEP_DAYS:,}.")
    return int(text)
