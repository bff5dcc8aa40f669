"""``manage.py run_worker``: the queue's processes, with a drain that stops at attempt boundaries."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django_q.cluster import Cluster

from runs import worker
from runs.sweep import sweep

LOOK = 0.2
"""Seconds between looks at the stop flag and at the queue's guard process."""


class Command(BaseCommand):
    help = "Run the worker of this host until it is told to stop (Ctrl-C or SIGTERM)."

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections["default"]
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            raise CommandError("The database is not up to date. Run `manage.py migrate` first.")
        sweep()
        # The cluster forks: a connection must not be shared with the children.
        connections.close_all()
        cluster = Cluster()
        # Handlers only set a flag: what the queue's own handler does can't be done inside a signal handler safely.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _request_stop)
        cluster.start()
        self.stdout.write("Worker started.")
        while not worker.stopping.is_set():
            if not cluster.sentinel.is_alive():
                raise CommandError("The queue's guard process died. Start the worker again.")
            time.sleep(LOOK)
        self.stdout.write("Worker stops: calls under way are allowed to end.")
        cluster.stop()
        self.stdout.write("Worker stopped.")


def _request_stop(number: int, frame: FrameType | None) -> None:
    worker.stopping.set()
