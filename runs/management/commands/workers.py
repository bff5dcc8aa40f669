"""``manage.py workers``: the workers, the queue and the model providers."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError

from flows.providers import describe_providers
from runs.statistics.queue_state import QueueFigures, WorkerFigures, read_queue_figures

UNATTENDED_EXIT = 1
DATABASE_EXIT = 2

TEXT_COLUMNS = {"HOST", "VERSION", "STATE", "PROVIDER", "API"}


class Command(BaseCommand):
    help = (
        "Show the workers, the queue and the model providers. Exit status: 0 all is well, 1 runs are ready and no "
        "worker is alive, 2 the database can't be read."
    )
    # A health check asks often, and only for this.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON object, for scripts; times in seconds")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = read_queue_figures()
        except (DatabaseError, InterfaceError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CommandError(
                f"The database can't be read: {reason}. If it is new, `manage.py migrate` sets it up.",
                returncode=DATABASE_EXIT,
            ) from error
        if options["json"]:
            self.stdout.write(json.dumps(build_document(found), indent=2))
        else:
            self._show(found)
        if found.is_unattended:
            sys.exit(UNATTENDED_EXIT)

    def _show(self, found: QueueFigures) -> None:
        if found.workers:
            for line in lay_out_workers(found.workers):
                self.stdout.write(line)
        else:
            self.stdout.write("No worker is at work.")
        age = f", the oldest for {format_age(found.oldest_ready)}" if found.oldest_ready is not None else ""
        self.stdout.write("")
        self.stdout.write(f"Ready:                  {found.ready}{age}")
        self.stdout.write(f"Waiting for later:      {found.later}")
        self.stdout.write(f"Waiting for something:  {found.waiting}")
        self.stdout.write("")
        for line in lay_out_table(
            ("PROVIDER", "HOST", "API", "STATE"),
            [
                (one["name"] or "default", one["host"] or "simulated model", one["api"], one["problem"] or "ready")
                for one in describe_providers()
            ],
        ):
            self.stdout.write(line)
        if found.is_unattended:
            # After what is on its way to the same terminal.
            self.stdout.flush()
            self.stderr.write("Runs wait and no worker is alive. Start one with: manage.py run_worker")


def build_document(found: QueueFigures) -> dict[str, Any]:
    """The figures as JSON: counts, and times in seconds."""
    return {
        "workers": [
            {
                "host": worker.host,
                "pid": worker.pid,
                "version": worker.version,
                "state": worker.state,
                "slots": worker.slots,
                "in_flight": worker.in_flight,
                "running_for": round(worker.running_for.total_seconds(), 3),
                "silent_for": round(worker.silent_for.total_seconds(), 3),
            }
            for worker in found.workers
        ],
        "queue": {
            "ready": found.ready,
            "later": found.later,
            "waiting": found.waiting,
            "oldest_ready": None if found.oldest_ready is None else round(found.oldest_ready.total_seconds(), 3),
        },
        "is_unattended": found.is_unattended,
        "providers": describe_providers(),
    }


def lay_out_workers(workers: Sequence[WorkerFigures]) -> list[str]:
    """Lines of a table with a row for each worker."""
    head = ("HOST", "PROCESS", "VERSION", "STATE", "IN FLIGHT", "SLOTS", "RUNNING FOR", "LAST HEARD OF")
    rows = [
        (
            worker.host,
            str(worker.pid),
            worker.version,
            worker.state.upper() if worker.state == "silent" else worker.state,
            str(worker.in_flight),
            str(worker.slots),
            format_age(worker.running_for),
            f"{format_age(worker.silent_for)} ago",
        )
        for worker in workers
    ]
    return lay_out_table(head, rows)


def lay_out_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, columns aligned: those of numbers and ages to the right."""
    rows = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = {head.index(name) for name in TEXT_COLUMNS & set(head)}
    return [
        "  ".join(
            cell.ljust(width) if position in texts else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def format_age(length: timedelta) -> str:
    """A length of time in its largest unit: ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    seconds = max(0, int(length.total_seconds()))
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
