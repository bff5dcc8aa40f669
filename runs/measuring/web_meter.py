"""What the processes of a web server measure."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.conf import settings
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from runs.measuring.shared_folder import VARIABLE, is_one_of_several

logger = logging.getLogger(__name__)

# When each series began: half as many lines again, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # as it ships

REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "(none)"
"""Stands for all addresses that lead nowhere."""
OTHER_METHOD = "(other)"


class WebMeter:
    """Requests that were answered, by the pattern of their address and not by the address itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._has_warned = False
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
        """Count one request; ``route`` is the pattern that its address fits, None if it fits none.

        ``seconds`` are None if it took its time because it was asked to.
        """
        route = NO_ROUTE if route is None else route
        method = method if method in METHODS else OTHER_METHOD
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(route).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """What all processes of this server measured together. Nothing if there are others that it doesn't know of:
        figures of one process, then of another, are worse than none.
        """
        if folder := settings.TOOLFLOW_WEB_METRICS_DIR:
            return list(MultiProcessCollector(None, folder).collect())  # type: ignore[no-untyped-call]  # as it ships
        if is_one_of_several():
            if not self._has_warned:
                self._has_warned = True
                logger.warning("Metrics of requests are left out: name a folder in %s for all processes.", VARIABLE)
            return []
        return self.registry.collect()
