"""What Prometheus reads: of the whole installation, and of single processes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
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
from runs import measuring
from runs.measuring.exporter import serve_metrics
from runs.measuring.web_meter import WebMeter
from runs.measuring.worker_meter import MOST_MODELS, WorkerMeter
from runs.metrics import counted_days, scrape
from runs.models import DailyRuns, DailySteps
from runs.tally import tally_ended_runs
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.executing import drain, script
from tests.runs.webhooks.deliveries import make_delivery
from tests.test_docs import read_table, unquote

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TOKEN = "a-token-of-this-test"
TEA = {"text": "Tea is a warm drink."}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(autouse=True)
def _fresh(settings: Any) -> Iterator[None]:
    """Metrics are on, and no process has measured anything."""
    settings.TOOLFLOW_METRICS_TOKEN = TOKEN
    forget()
    yield
    forget()


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


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.any_database
class TestWhoMayRead:
    def test_without_a_token_of_the_installation_there_is_nothing(self, client: Client, settings: Any) -> None:
        settings.TOOLFLOW_METRICS_TOKEN = ""
        assert ask(client, "").status_code == 404

    @pytest.mark.parametrize(
        "header",
        [
            "",
            "Bearer",
            "Bearer wrong",
            f"Token {TOKEN}",
            f"Bearer {TOKEN}x",
            "Basic %%%",
            basic("x", "no"),
            basic(TOKEN, ""),
        ],
    )
    def test_nobody_else_may(self, client: Client, header: str) -> None:
        answer = client.get("/metrics", headers={"Authorization": header})
        assert answer.status_code == 401
        assert "toolflow_" not in answer.content.decode()

    @pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic("prometheus", TOKEN)])
    def test_whoever_knows_the_token_may(self, client: Client, header: str) -> None:
        answer = client.get("/metrics", headers={"Authorization": header})
        assert answer.status_code == 200
        assert answer["Content-Type"].startswith("text/plain; version=")

    def test_openmetrics_are_given_to_who_wants_them(self, client: Client) -> None:
        accept = "application/openmetrics-text;version=1.0.0"
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}", "Accept": accept})
        assert answer["Content-Type"].startswith("application/openmetrics-text")
        assert answer.content.endswith(b"# EOF\n")


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
        assert [of(samples, "toolflow_queued_runs", waits_for=name) for name in ("worker", "time", "something")] == [
            1,
            1,
            1,
        ]
        assert [of(samples, "toolflow_workers", state=name) for name in ("working", "stopping", "silent")] == [1, 1, 1]
        assert of(samples, "toolflow_worker_slots") == 12
        assert of(samples, "toolflow_webhooks_waiting", state="due") == 1
        oldest = of(samples, "toolflow_queue_oldest_seconds")
        assert oldest is not None and oldest >= 0
        assert of(samples, "toolflow_database_up") == 1

    def test_what_ended_is_counted_by_flow_and_model(
        self, client: Client, transactional_db: None, provider: ModelServer
    ) -> None:
        script(provider, tool_1=[{"text": 7}, TEA])
        run = make_run()
        drain()
        tally_ended_runs()
        run.refresh_from_db()
        samples = read(client)
        flow, model = run.flow.name, run.steps.get().attempts.get(number=1).model
        assert of(samples, "toolflow_runs_ended_total", flow=flow, status="succeeded") == 1
        assert of(samples, "toolflow_runs_ended_total", flow=flow, status="failed") == 0
        assert of(samples, "toolflow_attempts_total", flow=flow, model=model) == 2
        assert of(samples, "toolflow_retries_total", flow=flow) == 1
        assert of(samples, "toolflow_tokens_total", flow=flow, model=model, kind="prompt") == run.prompt_tokens > 0
        assert of(samples, "toolflow_tokens_total", flow=flow, model=model, kind="completion") == run.completion_tokens

    def test_counts_never_go_back_as_days_pass_and_old_days_are_remembered(
        self, client: Client, django_assert_num_queries: Any
    ) -> None:
        version = make_version()
        today = timezone.now().date()
        for age in (0, 1, 2, 3, 400):
            DailyRuns.objects.create(
                flow=version.flow, version=version, day=today - timedelta(days=age), runs=1, succeeded=1
            )

        def count() -> float | None:
            return of(read(client), "toolflow_runs_ended_total", flow=version.flow.name, status="succeeded")

        # The flows, two of the queue, running runs, webhooks, two of recent days, and two of all others.
        with django_assert_num_queries(9):
            assert count() == 5
        DailyRuns.objects.filter(day=today).update(succeeded=3)
        with django_assert_num_queries(7):
            assert count() == 7

    def test_a_scrape_costs_the_same_however_much_there_is(
        self, client: Client, django_assert_num_queries: Any
    ) -> None:
        for number in range(12):
            version = make_version(make_flow(make_step(1)).model_copy(update={"name": f"flow-{number}"}))
            make_run(version)
            DailySteps.objects.create(flow=version.flow, version=version, day=timezone.now().date(), step=1, model="m")
        read(client)
        with django_assert_num_queries(7):
            read(client)

    def test_series_have_a_bound_and_those_that_came_last_are_one(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(counted_days, "MOST_SERIES", 2)
        version = make_version()
        for name in ("first", "second", "third", "fourth"):
            DailySteps.objects.create(
                flow=version.flow, version=version, day=timezone.now().date(), step=1, model=name, prompt_tokens=10
            )
        found = {
            (dict(labels)["model"], value)
            for (name, labels), value in read(client).items()
            if name == "toolflow_tokens_total" and dict(labels)["kind"] == "prompt"
        }
        assert found == {("first", 10), ("second", 10), ("(other)", 20)}

    def test_without_a_database_it_says_so(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise OperationalError("gone")

        monkeypatch.setattr("runs.metrics.installation.read_queue_figures", fail)
        samples = read(client)
        assert of(samples, "toolflow_database_up") == 0
        assert not [name for name, _ in samples if name.startswith("toolflow_runs")]


@pytest.mark.any_database
class TestRequests:
    def test_they_are_counted_by_the_pattern_of_their_address(self, client: Client) -> None:
        for path in ("/runs/1/", "/runs/2/", "/nowhere/1", "/nowhere/2"):
            client.get(path)
        samples = read(client)
        pattern = "/runs/<int:run_id>/"
        assert of(samples, "toolflow_http_requests_total", route=pattern, method="GET", status="302") == 2
        assert of(samples, "toolflow_http_requests_total", route="(none)", method="GET", status="404") == 2
        assert of(samples, "toolflow_http_request_seconds_count", route=pattern) == 2

    def test_no_client_can_make_series_of_its_own(self) -> None:
        meter = WebMeter()
        for number in range(100):
            meter.note_request(route=None, method=f"M{number}", status=405, seconds=0.1)
        counted = [sample for family in meter.registry.collect() for sample in family.samples]
        assert len([sample for sample in counted if sample.name == "toolflow_http_requests_total"]) == 1


class TestWorkers:
    def test_a_worker_measures_attempts_errors_and_transactions(
        self, transactional_db: None, provider: ModelServer, settings: Any
    ) -> None:
        settings.TOOLFLOW_WORKER_METRICS_PORT = 9464
        script(provider, tool_1=[TEA], tool_2=[Fault(FaultKind.SERVER_ERROR)])
        make_run(make_version(make_flow(make_step(1), make_step(2, max_retries=0))))
        drain()
        meter = measuring.find_worker_meter()
        assert meter is not None
        samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in meter.registry.collect()
            for sample in family.samples
        }
        assert of(samples, "toolflow_attempt_seconds_count", model="gpt-4.1", outcome="passed") == 1
        assert of(samples, "toolflow_attempt_seconds_count", model="gpt-4.1", outcome="errored") == 1
        assert of(samples, "toolflow_provider_errors_total", model="gpt-4.1", code="server_error") == 1
        assert of(samples, "toolflow_recorder_batch_writes_sum") == 3, "two beginnings, one with an end, and the end"
        assert of(samples, "toolflow_recorder_commit_seconds_count") == 3

    def test_models_have_a_bound(self) -> None:
        meter = WorkerMeter()
        for number in range(MOST_MODELS + 50):
            meter.note_attempt(model=f"model-{number}", outcome="passed", seconds=1.0, error=None)
        names = {sample.labels.get("model") for family in meter.registry.collect() for sample in family.samples}
        assert len(names - {None}) == MOST_MODELS + 1

    def test_each_process_takes_the_first_port_that_is_free_and_asks_for_the_token(self) -> None:
        first_meter, second_meter = WorkerMeter(), WorkerMeter()
        first_meter.note_batch(writes=3, seconds=0.01)
        first = serve_metrics(first_meter.registry, port=39464, count=2, token=TOKEN)
        second = serve_metrics(second_meter.registry, port=39464, count=2, token=TOKEN)
        assert first is not None and second is not None
        try:
            assert (first.server_port, second.server_port) == (39464, 39465)
            assert fetch(39464, TOKEN)[0] == 200
            samples = read_samples(fetch(39464, TOKEN)[1])
            assert of(samples, "toolflow_recorder_batch_writes_sum") == 3
            assert fetch(39464, "wrong")[0] == 401
            assert fetch(39464, TOKEN, path="/")[0] == 404
            assert serve_metrics(first_meter.registry, port=39464, count=2, token=TOKEN) is None
        finally:
            for server in (first, second):
                server.shutdown()
                server.server_close()


def fetch(port: int, token: str, path: str = "/metrics") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


# ---------------------------------------------------------------------------------------------------------------
# What is written about metrics

OWN = re.compile(r"\btoolflow_[a-z_]+")


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


@pytest.mark.any_database
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

    def test_the_dashboard_is_one(self) -> None:
        board = json.loads((ROOT / "deploy/grafana/toolflow.json").read_text(encoding="utf-8"))
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        assert all(target["expr"] for panel in panels for target in panel["targets"])
        assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])

    def test_the_rules_are_alerts_that_say_what_to_do(self) -> None:
        rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text(encoding="utf-8"))
        alerts = [rule for group in rules["groups"] for rule in group["rules"]]
        assert all(rule["alert"] and rule["expr"] and rule["annotations"]["summary"] for rule in alerts)
