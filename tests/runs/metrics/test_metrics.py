"""What Prometheus reads: of the whole installation, and of single processes."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from flows.models import FlowVersion
from runs import health
from runs.api import waiting
from runs.models import DailyRuns, DailySteps
from runs.observability.meters import WebMeter
from runs.rollup import count_ended_runs
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.executing import drain, script
from tests.runs.metrics.scraping import TOKEN, ask, of, read
from tests.runs.webhooks.deliveries import make_delivery

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


def count_run(version: FlowVersion, *, age: int = 0, is_simulated: bool = False) -> None:
    """What a run of one attempt adds to the statistics that ended so many days ago."""
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
        assert of(samples, "toolflow_database_up") == of(samples, "toolflow_broker_up") == 1

    def test_whether_redis_answers_is_told_where_it_is_the_broker(
        self, client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.Q_CLUSTER = {"redis": "redis://127.0.0.1:1"}
        for problem in ("", "Connection refused"):
            monkeypatch.setattr(health, "find_broker_problem", lambda problem=problem: problem)
            assert of(read(client), "toolflow_broker_up") == (not problem)

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

        monkeypatch.setattr("runs.metrics.read_queue_figures", fail)
        samples = read(client)
        assert of(samples, "toolflow_database_up") == of(samples, "toolflow_broker_up") == 0
        assert not [name for name, _ in samples if name.startswith("toolflow_runs")]


class TestRequests:
    def test_they_are_counted_by_the_pattern_of_their_address(self, client: Client) -> None:
        for path in ("/runs/1/", "/runs/2/", "/nowhere/1", "/nowhere/2"):
            client.get(path)
        samples = read(client)
        pattern = "/runs/<int:run_id>/"
        assert of(samples, "toolflow_http_requests_total", route=pattern, method="GET", status="302") == 2
        assert of(samples, "toolflow_http_requests_total", route="(none)", method="GET", status="404") == 2
        assert of(samples, "toolflow_http_request_seconds_count", route=pattern) == 2

    def test_one_that_was_asked_to_wait_is_counted_and_says_nothing_of_how_fast_the_website_is(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = make_version()
        monkeypatch.setattr(waiting, "_wait_for_end", lambda run_id, seconds: waiting.RunState(0, has_ended=False))
        client.force_login(User.objects.create_superuser("ada"))
        order = {"flow": version.flow.name, "input": {"topic": "tea"}}
        for headers in ({}, {"Prefer": "wait=60"}):
            answer = client.post("/api/v1/runs", order, content_type="application/json", headers=headers)
            assert answer.status_code == 202
        samples, route = read(client), f"/{answer.resolver_match.route}"
        assert of(samples, "toolflow_http_requests_total", route=route, method="POST", status="202") == 2
        assert of(samples, "toolflow_http_request_seconds_count", route=route) == 1

    def test_no_client_can_make_series_of_its_own(self) -> None:
        meter = WebMeter()
        for number in range(100):
            meter.note_request(route=None, method=f"M{number}", status=405, seconds=0.1)
        counted = [sample for family in meter.registry.collect() for sample in family.samples]
        assert len([sample for sample in counted if sample.name == "toolflow_http_requests_total"]) == 1
