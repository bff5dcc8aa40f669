"""Metrics as Prometheus reads them."""

from __future__ import annotations

from typing import Any

from django.test import Client
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from runs import observability

TOKEN = "a-token-of-this-test"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def forget() -> None:
    """Let this process measure from 0."""
    observability.find_web_meter.cache_clear()
    observability.find_worker_meter.cache_clear()


def read_samples(text: str) -> Samples:
    return _collect(text_string_to_metric_families(text))


def read_registry(registry: CollectorRegistry) -> Samples:
    return _collect(registry.collect())


def _collect(families: Any) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def ask(client: Client, token: str = TOKEN) -> Any:
    return client.get("/metrics", headers={"Authorization": f"Bearer {token}"})


def read(client: Client) -> Samples:
    answer = ask(client)
    assert answer.status_code == 200
    return read_samples(answer.content.decode())


def of(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))
