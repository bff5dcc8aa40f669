"""``manage.py run_worker``: the worker of this host."""

from __future__ import annotations

import resource
import sys
import time
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, OperationalError, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils.module_loading import import_string

from flows.providers import build_providers, find_provider_problem, load_client
from runs.backup import refuse_older_database
from runs.checks import TAG
from runs.management.terminal import announce
from runs.observability.log_events import Outage
from runs.queue import DRAIN_TASK, draining
from runs.queue_processes.process_tree import ProcessTree, ProcessTreeError, StopSignals

RETRY_INTERVAL = 1.0
"""Seconds between two tries to reach the database."""


class Command(BaseCommand):
    help = (
        "Run the worker of this host until it is stopped (Ctrl-C or SIGTERM; a second signal forces it). "
        "Exit status: 0 after a stop, 1 if it can't start, if its processes failed, or if it had to be killed."
    )

    # Django's own checks load what serves pages, which takes half a second and 40 MB; `manage.py check` runs them.
    requires_system_checks = [TAG]

    def handle(self, *args: Any, **options: Any) -> None:
        if sys.platform != "linux":
            raise CommandError("Workers run on Linux only; start them there, or in a container.")
        StopSignals()
        # Without a key every claimed run would end as errored; as long as no worker runs, they wait.
        if problem := find_provider_problem():
            raise CommandError(problem)
        for provider in build_providers().named.values():
            if problem := provider.find_problem():
                self.stderr.write(f"Warning: {problem} Until then its models can't be called.")
        wait_for_database()
        # The children must not share a connection.
        connections.close_all()
        # A call is a connection: the children may have as many files open as the system allows.
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
        # What tasks need is loaded here, once: children share its memory, and one that is replaced is soon ready again.
        import_string(DRAIN_TASK)
        load_client()
        if not draining.is_set():
            tree = ProcessTree(say=partial(announce, self))
            announce(self, "Worker started.")
            try:
                tree.run()
            except ProcessTreeError as error:
                raise CommandError(str(error)) from error
        announce(self, "Worker stopped.")


def wait_for_database() -> None:
    """Return once the database answers and has all tables, or a stop is asked for.

    Raises ``CommandError`` if it lacks tables, and ``DatabaseError`` if it is a file that can't be opened.
    """
    connection = connections["default"]
    outage = Outage("The database")
    while not draining.is_set():
        try:
            refuse_older_database()
            executor = MigrationExecutor(connection)
            is_current = not executor.migration_plan(executor.loader.graph.leaf_nodes())
        except DatabaseError as error:
            if connection.vendor == "sqlite" or not isinstance(error, OperationalError):
                raise
            outage.note(error)
            connection.close()
            time.sleep(RETRY_INTERVAL)
            continue
        outage.end()
        if not is_current:
            raise CommandError("The database is not up to date. Run `manage.py migrate` first.")
        return
