"""Metrics as Prometheus reads them."""

from __future__ import annotations

from typing import Any

from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from runs import measuring
from runs.metrics import scrape

TOKEN = "a-token-of-this-test"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def forget() -> None:
    for made in (measuring._make_web_meter, measuring._make_worker_meter, scrape._find_everything):
        made.cache_clear()


def read_samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
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
