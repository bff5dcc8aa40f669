"""Log lines, and what single processes measure for Prometheus; see ``docs/observability.md``.

Meters are loaded only where a setting asks for them.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from runs.observability.meters import WebMeter, WorkerMeter


@cache
def find_web_meter() -> WebMeter | None:
    """The meter of this process's requests; None without a metrics token."""
    if not settings.TOOLFLOW_METRICS_TOKEN:
        return None
    from runs.observability.meters import WebMeter

    return WebMeter()


@cache
def find_worker_meter() -> WorkerMeter | None:
    """The meter of this worker process; None without a port to serve it on."""
    if not settings.TOOLFLOW_WORKER_METRICS_PORT:
        return None
    # Each worker process has a port of its own, and counts for itself.
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    from runs.observability.meters import WorkerMeter

    return WorkerMeter()
