"""What goes on at this moment as a document: runs under way, the queue and its workers."""

from __future__ import annotations

from typing import Any

from flows.providers import describe_providers
from runs.models import Run
from runs.statistics.queue_state import QueueState, WorkerFigures, fetch_queue_state

MAX_RUNNING = 20
MAX_COUNTED = 1_000
"""Running runs that are counted."""


def describe_now() -> dict[str, Any]:
    """Runs under way, queue and workers. Takes six queries."""
    return {"running": _describe_running(), **_describe_queue(fetch_queue_state())}


def describe_workers() -> dict[str, Any]:
    """The worker processes one by one, the queue and the model providers. Takes four queries."""
    found = fetch_queue_state()
    return {
        "items": [_describe_worker(worker) for worker in found.workers],
        "queue": _describe_queue(found)["queue"],
        "providers": describe_providers(),
    }


def _describe_worker(worker: WorkerFigures) -> dict[str, Any]:
    return {
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "status": worker.state,
        "slots": worker.slots,
        "in_flight": worker.in_flight,
        "running_for": round(max(worker.running_for.total_seconds(), 0.0), 3),
        "silent_for": round(worker.silent_for.total_seconds(), 3),
    }


def _describe_running() -> dict[str, Any]:
    fields = ("pk", "flow__name", "version__number", "started_at", "steps_passed", "step_count")
    running = Run.objects.running()
    newest = running.order_by("-created_at", "-pk").values_list(*fields)[:MAX_RUNNING]
    return {
        "count": running.order_by()[:MAX_COUNTED].count(),
        "items": [
            {
                "id": key,
                "flow": flow,
                "version": version,
                "started_at": started_at,
                "steps_passed": passed,
                "step_count": count,
            }
            for key, flow, version, started_at, passed, count in newest
        ],
    }


def _describe_queue(found: QueueState) -> dict[str, Any]:
    oldest = found.oldest_ready
    return {
        "queue": {
            "ready": found.ready,
            "later": found.later,
            "waiting": found.waiting,
            "oldest_ready": None if oldest is None else round(max(oldest.total_seconds(), 0.0), 3),
            "is_unattended": found.is_unattended,
        },
        "workers": {
            "alive": sum(worker.state != "silent" for worker in found.workers),
            "silent": sum(worker.state == "silent" for worker in found.workers),
            "slots": found.slots,
            "in_flight": found.in_flight,
        },
    }
