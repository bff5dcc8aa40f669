"""``manage.py workers``: the workers, the queue and the model providers."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError

from flows.providers import describe_providers
from runs.formatting import format_age
from runs.management.terminal import format_table
from runs.statistics.queue_state import QueueState, fetch_queue_state

NO_WORKER_EXIT = 1
DATABASE_EXIT = 2

FIELDS = ("host", "pid", "version", "slots", "in_flight", "state", "running_for", "silent_for")
HEAD = ("HOST", "PROCESS", "VERSION", "STATE", "IN FLIGHT", "SLOTS", "RUNNING FOR", "LAST HEARTBEAT")


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
            found = fetch_queue_state()
        except (DatabaseError, InterfaceError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CommandError(
                f"The database can't be read: {reason}. If it is new, `manage.py migrate` sets it up.",
                returncode=DATABASE_EXIT,
            ) from error
        self.stdout.write(_render_json(found) if options["json"] else _render_tables(found))
        if found.is_unattended:
            if not options["json"]:
                self.stdout.flush()
                self.stderr.write("Runs are ready and no worker is alive. Start one with: manage.py run_worker")
            sys.exit(NO_WORKER_EXIT)


def _render_tables(found: QueueState) -> str:
    workers = [
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
        for worker in found.workers
    ]
    providers = [
        (one["name"] or "default", one["host"] or "simulated model", one["api"], one["problem"] or "ready")
        for one in describe_providers()
    ]
    oldest = f", the oldest for {format_age(found.oldest_ready)}" if found.oldest_ready is not None else ""
    parts = [
        format_table([HEAD, *workers]) if workers else "No workers online.",
        f"Queued:     {found.ready}{oldest}\nScheduled:  {found.later}\nBlocked:    {found.waiting}",
        format_table([("PROVIDER", "HOST", "API", "STATE"), *providers]),
    ]
    return "\n\n".join(parts)


def _render_json(found: QueueState) -> str:
    document = {
        "workers": [{name: getattr(worker, name) for name in FIELDS} for worker in found.workers],
        "queue": {name: getattr(found, name) for name in ("ready", "later", "waiting", "oldest_ready")},
        "is_unattended": found.is_unattended,
        "providers": describe_providers(),
    }
    return json.dumps(document, indent=2, default=lambda length: round(length.total_seconds(), 3))
