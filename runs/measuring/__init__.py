"""What this process measures of its own work, for Prometheus. ``docs/decisions/0017`` says what is measured where.

Nothing is loaded and nothing is measured where no setting asks for it.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

from runs.measuring.shared_folder import VARIABLE

if TYPE_CHECKING:
    from runs.measuring.web_meter import WebMeter
    from runs.measuring.worker_meter import WorkerMeter


def find_web_meter() -> WebMeter | None:
    """The meter of this process's requests; None where nobody reads it."""
    return _make_web_meter() if settings.TOOLFLOW_METRICS_TOKEN else None


def find_worker_meter() -> WorkerMeter | None:
    """The meter of this worker process; None where nobody reads it."""
    return _make_worker_meter() if settings.TOOLFLOW_WORKER_METRICS_PORT else None


@cache
def serve_worker_metrics() -> None:
    """Serve what this worker process measures, if that is set; once for each process."""
    port, meter = settings.TOOLFLOW_WORKER_METRICS_PORT, find_worker_meter()
    if port is None or meter is None:
        return
    from runs.measuring.exporter import serve_metrics

    serve_metrics(
        meter.registry,
        host=settings.TOOLFLOW_WORKER_METRICS_HOST,
        port=port,
        count=settings.TOOLFLOW_WORKERS,
        token=settings.TOOLFLOW_METRICS_TOKEN,
    )


@cache
def _make_web_meter() -> WebMeter:
    from runs.measuring.web_meter import WebMeter

    return WebMeter()


@cache
def _make_worker_meter() -> WorkerMeter:
    # Each process of the worker has a port of its own, and counts for itself.
    os.environ.pop(VARIABLE, None)
    from runs.measuring.worker_meter import WorkerMeter

    return WorkerMeter()
