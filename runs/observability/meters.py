"""What single processes measure: requests of the website, attempts and transactions of a worker."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

# When each series began: half as many lines again, which no chart uses.
disable_created_metrics()  # type: ignore[no-untyped-call]  # as it ships

REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ATTEMPT_BUCKETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
WRITES_BUCKETS = (1, 2, 5, 10, 20, 50, 100)
COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE, OTHER_METHOD, LOCAL = "(none)", "(other)", "(local)"
"""Labels of addresses that lead nowhere, of unknown methods, and of steps without a model."""


class WebMeter:
    """Requests that were answered, by the pattern of their address."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "toolflow_http_requests", "Requests answered.", ("route", "method", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "toolflow_http_request_seconds",
            "Seconds until the answer was known, of requests that were not asked to wait.",
            ("route",),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )

    def note_request(self, *, route: str | None, method: str | None, status: int, seconds: float | None) -> None:
        """Count one request; ``route`` is the pattern of its address, ``seconds`` None if it was asked to wait."""
        route = NO_ROUTE if route is None else route
        method = method if method in METHODS else OTHER_METHOD
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(route).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """What all processes of this server measured together."""
        if folder := settings.TOOLFLOW_WEB_METRICS_DIR:
            return list(MultiProcessCollector(None, folder).collect())  # type: ignore[no-untyped-call]  # as it ships
        return self.registry.collect()


def prepare_metrics_folder(port: int) -> None:
    """Let the processes of the server that this process becomes, on ``port``, count together from 0.

    Raises ``OSError`` if the folder can't be written.
    """
    folder = Path(settings.TOOLFLOW_WEB_METRICS_DIR or settings.TOOLFLOW_DATA_DIR / "web-metrics" / str(port))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink(missing_ok=True)
    # The folder in which the processes of one web server count together.
    os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", str(folder))


class WorkerMeter:
    """Attempts, errors of providers and transactions of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._attempts = Histogram(
            "toolflow_attempt_seconds",
            "Seconds that attempts took, by requested model and outcome.",
            ("model", "outcome"),
            buckets=ATTEMPT_BUCKETS,
            registry=self.registry,
        )
        self._errors = Counter(
            "toolflow_provider_errors",
            "Model calls without an answer, by error code.",
            ("model", "code"),
            registry=self.registry,
        )
        self._writes = Histogram(
            "toolflow_recorder_batch_writes",
            "Writes of runs that were stored in one transaction.",
            buckets=WRITES_BUCKETS,
            registry=self.registry,
        )
        self._commits = Histogram(
            "toolflow_recorder_commit_seconds",
            "Seconds that a transaction with writes of runs took.",
            buckets=COMMIT_BUCKETS,
            registry=self.registry,
        )

    def note_attempt(self, *, model: str | None, outcome: str, seconds: float, error: str | None) -> None:
        """Count an attempt that ended; ``error`` is the code of what went wrong with its call."""
        model = model or LOCAL
        self._attempts.labels(model, outcome).observe(seconds)
        if error is not None:
            self._errors.labels(model, error).inc()

    def note_batch(self, *, writes: int, seconds: float) -> None:
        """Count a transaction that stored ``writes`` writes."""
        self._writes.observe(writes)
        self._commits.observe(seconds)
