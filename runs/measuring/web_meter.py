"""What a process of the web server measures."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

# When each series began: half as many lines again, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # as it ships

REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "(none)"
"""Stands for all addresses that lead nowhere."""
OTHER_METHOD = "(other)"


class WebMeter:
    """Requests that this process answered, by the pattern of their address and not by the address itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "toolflow_http_requests", "Requests answered.", ("route", "method", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "toolflow_http_request_seconds",
            "Seconds until the answer was known.",
            ("route",),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )

    def note_request(self, *, route: str | None, method: str | None, status: int, seconds: float) -> None:
        """Count one request; ``route`` is the pattern that its address fits, None if it fits none."""
        route = NO_ROUTE if route is None else route
        method = method if method in METHODS else OTHER_METHOD
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
