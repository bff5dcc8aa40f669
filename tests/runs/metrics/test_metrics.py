"""What Prometheus reads: of the whole installation and of single processes, and that documents name what there is."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from flows.engine.simulated_model import Fault, FaultKind
from flows.models import FlowVersion
from runs import observability
from runs.models import DailyRuns, DailySteps
from runs.observability.meters import WebMeter, WorkerMeter
from runs.observability.worker_metrics import serve_metrics
from runs.rollup import count_ended_runs
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.executing import drain, script
from tests.runs.metrics.scraping import TOKEN, ask, of, read, read_registry, read_samples
from tests.runs.webhooks.deliveries import make_delivery
from tests.test_docs import read_table

pytestmark = pytest.mark.django_db

TEA = {"text": "Tea is a warm drink."}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class TestWhoMayRead:
    def test_without_a_token_of_the_installation_there_is_nothing(self, client: Client, settings: Any) -> None:
        settings.TOOLFLOW_METRICS_TOKEN = ""
        assert ask(client, "").status_code == 404

    @pytest.mark.parametrize(
        "header", ["", "Bearer", f"Token {TOKEN}", f"Bearer {TOKEN}x", "Basic %%%", basic(TOKEN, "")]
    )
    def test_no_other_client_may(self, client: Client, header: str) -> None:
        answer = client.get("/metrics", headers={"Authorization": header})
        assert answer.status_code == 401
        assert "toolflow_" not in answer.content.decode()

    @pytest.mark.parametrize("header", [f"bearer {TOKEN}", basic("prometheus", TOKEN)])
    @pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
    def test_whoever_knows_the_token_may(self, client: Client, header: str, accept: str) -> None:
        answer = client.get("/metrics", headers={"Authorization": header, "Accept": f"{accept};version=1.0.0"})
        assert answer.status_code == 200 and answer["Content-Type"].startswith(accept)


def count_run(version: FlowVersion, *, age: int = 0, is_simulated: bool = False) -> None:
    """What a run of one attempt adds to the statistics that ended this number of days ago."""
    day = timezone.now().date() - timedelta(days=age)
    about = {"flow": version.flow, "version": version, "day": day, "is_simulated": is_simulated}
    DailyRuns.objects.create(**about, runs=1, succeeded=1)
    DailySteps.objects.create(**about, step=1, model="gpt-5", attempts=1, prompt_tokens=10)


class TestTheInstallation:
    def test_queue_workers_and_webhooks_are_those_of_this_moment(self, client: Client) -> None:
        make_run()
        make_run(available_at=timezone.now() + timedelta(hours=1))
        make_run(cancel_requested=False, available_at=timezone.now() + timedelta(hours=1), waiting_for="a permit")
        make_worker(slots=7)
        make_worker(is_stopping=True, slots=5)
        make_worker(heartbeat_at=timezone.now() - timedelta(hours=1))
        make_delivery("https://example.com/")
        samples = read(client)
        for name, label, values in (
            ("toolflow_queued_runs", "waits_for", ("worker", "time", "something")),
            ("toolflow_workers", "state", ("working", "stopping", "silent")),
        ):
            assert [of(samples, name, **{label: value}) for value in values] == [1, 1, 1]
        assert of(samples, "toolflow_worker_slots") == 12
        assert of(samples, "toolflow_webhooks_waiting", state="due") == 1
        oldest = of(samples, "toolflow_queue_oldest_seconds")
        assert oldest is not None and oldest >= 0
        assert of(samples, "toolflow_database_up") == of(samples, "toolflow_broker_up") == 1

    def test_what_ended_is_counted_by_flow_and_model(
        self, client: Client, transactional_db: None, provider: ModelServer
    ) -> None:
        script(provider, tool_1=[{"text": 7}, TEA])
        run = make_run()
        drain()
        count_ended_runs()
        for age in (1, 400):
            count_run(run.version, age=age)
        count_run(run.version, is_simulated=True, age=2)
        run.refresh_from_db()
        samples = read(client)
        flow, model = run.flow.name, run.steps.get().attempts.get(number=1).model
        assert of(samples, "toolflow_runs_ended_total", flow=flow, status="succeeded") == 3
        assert of(samples, "toolflow_runs_ended_total", flow=flow, status="failed") == 0
        assert of(samples, "toolflow_attempts_total", flow=flow, model=model) == 2
        assert of(samples, "toolflow_attempts_total", flow=flow, model="gpt-5") == 2
        assert of(samples, "toolflow_retries_total", flow=flow) == 1
        assert of(samples, "toolflow_tokens_total", flow=flow, model=model, kind="prompt") == run.prompt_tokens > 0
        assert of(samples, "toolflow_tokens_total", flow=flow, model=model, kind="completion") == run.completion_tokens
        assert of(samples, "toolflow_tokens_total", flow=flow, model="gpt-5", kind="prompt") == 20

    def test_a_scrape_costs_the_same_however_much_there_is(
        self, client: Client, django_assert_num_queries: Any
    ) -> None:
        for number in range(12):
            version = make_version(make_flow(make_step(1)).model_copy(update={"name": f"flow-{number}"}))
            make_run(version)
            for age in range(3):
                count_run(version, age=age)
        read(client)
        with django_assert_num_queries(8):
            read(client)

    def test_without_a_database_it_says_so(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise OperationalError("gone")

        monkeypatch.setattr("runs.metrics.fetch_queue_state", fail)
        samples = read(client)
        assert of(samples, "toolflow_database_up") == of(samples, "toolflow_broker_up") == 0
        assert not [name for name, _ in samples if name.startswith("toolflow_runs")]


class TestRequests:
    def test_they_are_counted_by_the_pattern_of_their_address(self, client: Client) -> None:
        for path in ("/runs/1/", "/runs/2/", "/nowhere/1", "/nowhere/2"):
            client.get(path)
        samples = read(client)
        pattern = "/runs/<number:run_id>/"
        assert of(samples, "toolflow_http_requests_total", route=pattern, method="GET", status="302") == 2
        assert of(samples, "toolflow_http_requests_total", route="(none)", method="GET", status="404") == 2
        assert of(samples, "toolflow_http_request_seconds_count", route=pattern) == 2

    def test_no_client_can_make_series_of_its_own(self) -> None:
        meter = WebMeter()
        for number in range(100):
            meter.note_request(route=None, method=f"M{number}", status=405, seconds=0.1)
        names = [sample.name for family in meter.registry.collect() for sample in family.samples]
        assert names.count("toolflow_http_requests_total") == 1


class TestWorkers:
    def test_a_worker_measures_attempts_errors_and_transactions(
        self, transactional_db: None, provider: ModelServer, settings: Any
    ) -> None:
        settings.TOOLFLOW_WORKER_METRICS_PORT = 9464
        script(provider, tool_1=[TEA], tool_2=[Fault(FaultKind.SERVER_ERROR)])
        make_run(make_version(make_flow(make_step(1), make_step(2, retry_window=0))))
        drain()
        meter = observability.find_worker_meter()
        assert meter is not None
        samples = read_registry(meter.registry)
        assert of(samples, "toolflow_attempt_seconds_count", model="gpt-4.1", outcome="passed") == 1
        assert of(samples, "toolflow_attempt_seconds_count", model="gpt-4.1", outcome="errored") == 1
        assert of(samples, "toolflow_provider_errors_total", model="gpt-4.1", code="server_error") == 1
        assert of(samples, "toolflow_recorder_batch_writes_sum") == 3, "two beginnings, one with an end, and the end"
        assert of(samples, "toolflow_recorder_commit_seconds_count") == 3

    def test_each_process_takes_the_first_port_that_is_free_and_asks_for_the_token(self) -> None:
        port = find_free_ports(2)
        options: Any = {"host": "127.0.0.1", "port": port, "count": 2, "token": TOKEN}
        first_meter, second_meter = WorkerMeter(), WorkerMeter()
        first_meter.note_batch(writes=3, seconds=0.01)
        first = serve_metrics(first_meter.registry, **options)
        second = serve_metrics(second_meter.registry, **options)
        assert first is not None and second is not None
        try:
            assert (first.server_port, second.server_port) == (port, port + 1)
            status, text = fetch(port, TOKEN)
            assert (status, of(read_samples(text), "toolflow_recorder_batch_writes_sum")) == (200, 3)
            assert fetch(port, "wrong")[0] == 401
            # Only the address that is set answers.
            assert not is_open("127.0.0.2", port)
            assert serve_metrics(first_meter.registry, **options) is None
        finally:
            for server in (first, second):
                server.shutdown()
                server.server_close()


def find_free_ports(count: int) -> int:
    """The first of ``count`` free ports in a row.

    Linux gives none of these to connections, and processes that test beside this one begin to look elsewhere.
    """
    for port in range(20_000 + os.getpid() % 1_000 * 10, 32_000, count):
        if not any(is_open("127.0.0.1", number) for number in range(port, port + count)):
            return port
    pytest.fail("All ports are taken.")


def is_open(host: str, port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((host, port)) == 0


def fetch(port: int, token: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


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
    families = [*text_string_to_metric_families(ask(client).content.decode()), *worker.registry.collect()]
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
        documented = {
            name.strip("`"): (kind, tuple(sorted(re.findall(r"`([a-z_]+)`", labels))))
            for name, kind, labels, *_ in rows
        }
        assert documented == list_metrics(client)

    def test_dashboard_and_alerts_ask_metrics_that_there_are_for_labels_that_they_have(self, client: Client) -> None:
        metrics, asked = list_metrics(client), list_expressions()
        unknown = {}
        for expression in asked:
            # Each scrape adds the last ones.
            known = {label for name in find_names(expression) for label in metrics[name][1]} | {"le", "job", "instance"}
            if unexpected := find_labels(expression) - known:
                unknown[expression] = unexpected
            assert [expression.count(sign) for sign in "([{"] == [expression.count(sign) for sign in ")]}"]
        assert unknown == {} and len(asked) > 20
