"""What is written about metrics names those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from runs.models import DailyRuns, DailySteps
from runs.observability.meters import WorkerMeter
from tests.runs.builders import make_version
from tests.runs.metrics.scraping import ask
from tests.test_docs import read_table, unquote

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parent.parent.parent.parent

OWN = re.compile(r"\btoolflow_[a-z_]+")


def list_expressions() -> list[str]:
    """All that the dashboard and the alerts ask."""
    board = json.loads((ROOT / "deploy/grafana/toolflow.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return asked + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def list_metrics(client: Client) -> dict[str, tuple[str, tuple[str, ...]]]:
    """All metrics that there are, as they are exposed: kind and labels by name."""
    worker = WorkerMeter()
    worker.note_attempt(model="m", outcome="errored", seconds=1.0, error="timeout")
    version = make_version()
    DailyRuns.objects.create(flow=version.flow, version=version, day=timezone.now().date())
    DailySteps.objects.create(flow=version.flow, version=version, day=timezone.now().date(), step=1, model="m")
    client.get("/healthz")
    families = [
        *text_string_to_metric_families(ask(client).content.decode()),
        *worker.registry.collect(),
    ]
    found = {}
    for family in families:
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, tuple(sorted(labels)))
    return found


def find_names(text: str) -> set[str]:
    """The metrics that a text names; those of a histogram's parts count as the histogram."""
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in OWN.findall(text)}


def find_labels(expression: str) -> set[str]:
    """The labels that an expression of Prometheus filters and groups by."""
    filtered = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*[\"']", expression)
    grouped = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression)
    return {*filtered, *(name.strip() for names in grouped for name in names.split(",") if name.strip())}


class TestDocuments:
    def test_the_guide_lists_all_metrics(self, client: Client) -> None:
        rows = [
            row
            for heading in ("## Metrics of the installation", "## Metrics of a process")
            for row in read_table("docs/observability.md", heading)
        ]
        told = {
            unquote(name): (kind, tuple(sorted(re.findall(r"`([a-z_]+)`", labels)))) for name, kind, labels, *_ in rows
        }
        assert told == list_metrics(client)

    @pytest.mark.parametrize("path", ["deploy/grafana/toolflow.json", "deploy/prometheus/rules.yaml"])
    def test_what_is_ready_to_use_names_metrics_that_there_are(self, client: Client, path: str) -> None:
        text = (ROOT / path).read_text(encoding="utf-8")
        names = find_names(text)
        assert names
        assert names <= list_metrics(client).keys()

    def test_what_is_ready_to_use_asks_metrics_for_labels_that_they_have(self, client: Client) -> None:
        metrics, asked = list_metrics(client), list_expressions()
        unknown = {}
        for expression in asked:
            # Each scrape adds the last ones.
            known = {label for name in find_names(expression) for label in metrics[name][1]} | {"le", "job", "instance"}
            if strange := find_labels(expression) - known:
                unknown[expression] = strange
            assert [expression.count(sign) for sign in "([{"] == [expression.count(sign) for sign in ")]}"]
        assert unknown == {} and len(asked) > 20

    def test_what_every_website_says_of_the_installation_is_taken_once_however_many_are_scraped(self) -> None:
        rows = read_table("docs/observability.md", "## Metrics of the installation")
        shared = {unquote(name) for name, *_ in rows} - {"toolflow_database_up", "toolflow_broker_up"}
        once = re.compile(r"max without \(instance\) \((?:(?:rate|increase)\()?(toolflow_[a-z_]+)")
        for expression in list_expressions():
            asked = [name for name in OWN.findall(expression) if name in shared]
            assert [name for name in once.findall(expression) if name in shared] == asked, expression
        assert any(name in expression for expression in list_expressions() for name in shared)
