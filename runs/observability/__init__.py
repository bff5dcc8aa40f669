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


def find_web_meter() -> WebMeter | None:
    """The meter of this process's requests; None without a metrics token."""
    return _create_web_meter() if settings.TOOLFLOW_METRICS_TOKEN else None


def find_worker_meter() -> WorkerMeter | None:
    """The meter of this worker process; None without a port to serve it on."""
    return _create_worker_meter() if settings.TOOLFLOW_WORKER_METRICS_PORT else None


@cache
def _create_web_meter() -> WebMeter:
    from runs.observability.meters import WebMeter

    return WebMeter()


@cache
def _create_worker_meter() -> WorkerMeter:
    # Each worker process has a port of its own, and counts for itself.
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    from runs.observability.meters import WorkerMeter

    return WorkerMeter()
