"""One answer to Prometheus: the installation's figures, and those of the requests that this process answered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from runs.measuring import find_web_meter
from runs.metrics.installation import Installation


class Everything(Collector):
    """What ``/metrics`` shows, read anew each time."""

    def __init__(self) -> None:
        self._installation = Installation()

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        yield from self._installation.collect()
        if (meter := find_web_meter()) is not None:
            yield from meter.registry.collect()


def write_metrics(*, accept: str) -> tuple[bytes, str]:
    """The metrics in a format that ``accept`` allows, and the name of that format."""
    encode, content_type = choose_encoder(accept)
    return encode(_find_everything()), content_type


@cache
def _find_everything() -> Everything:
    return Everything()
