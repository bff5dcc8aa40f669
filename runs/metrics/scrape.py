"""One answer to Prometheus: the installation's figures, and those of the requests that this server answered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from django.conf import settings
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from runs import health
from runs.measuring import find_web_meter
from runs.metrics.installation import Installation


class Everything(Collector):
    """What ``/metrics`` shows, read anew each time."""

    def __init__(self) -> None:
        self._installation = Installation()

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        database, *others = self._installation.collect()
        # A queue in the database is there with it. Redis may hang, and is looked at with a limit.
        is_there = bool(others) if "orm" in settings.Q_CLUSTER else health.readiness.read()["broker"]
        yield database
        yield GaugeMetricFamily("toolflow_broker_up", "Whether the queue's broker answers.", value=int(is_there))
        yield from others
        if (meter := find_web_meter()) is not None:
            yield from meter.collect()


def write_metrics(*, accept: str) -> tuple[bytes, str]:
    """The metrics in a format that ``accept`` allows, and the name of that format."""
    encode, content_type = choose_encoder(accept)
    return encode(_find_everything()), content_type


@cache
def _find_everything() -> Everything:
    return Everything()
