"""Flows whose steps ask several providers: real servers on this machine, a real drain."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from flows import providers
from flows.engine.errors import SpecError
from flows.engine.history import TokenUsage
from flows.engine.pricing import price_usage
from flows.engine.providers import OPENAI_BASE_URL, Provider
from flows.portability import load_flow
from runs import observability
from runs.models import EndReason, RateLimit, Run, RunStatus
from runs.submission import NotRunnableError, submit_run
from runs.tracing.spans import describe_call
from runs.worker import run_task
from tests.api.asking import Script, make_token, make_user
from tests.engine.builders import make_attempt, make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.flows.editor_page import open_flow
from tests.runs.builders import make_run, make_version
from tests.runs.executing import attempts_of, drain, run_flow
from tests.runs.metrics.scraping import of, read_registry
from tests.runs.pages.reading import read_words

LLAMA = "groq:llama-3.3-70b-versatile"
NO_KEY = (
    "There is no API key for the provider “azure”. "
    "Set TOOLFLOW_PROVIDER_AZURE_API_KEY (in a script: api_key=…) and restart the worker."
)
UNKNOWN = "No provider is called “grok”. Configured: “azure”, “groq”."
KEYLESS_MODEL, UNKNOWN_MODEL = "azure:gpt-4.1", "grok:gpt-4.1"
REFUSED = [(KEYLESS_MODEL, NO_KEY), (UNKNOWN_MODEL, UNKNOWN)]

TWO_PROVIDERS = make_flow(make_step(1, model="gpt-4.1"), make_step(2, model=LLAMA))


class ServerWithHeaders(ModelServer):
    """A server that remembers the headers of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[dict[bytes, bytes]] = []

    async def _forward(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.headers.append(dict(scope["headers"]))
        await super()._forward(scope, receive, send)


@pytest.fixture
def servers(settings: Any) -> Any:
    """The server of the default provider and that of “groq”; “azure” has no key."""
    with ServerWithHeaders() as default, ServerWithHeaders() as groq:
        settings.TOOLFLOW_PROVIDER = "openai"
        settings.TOOLFLOW_OPENAI_BASE_URL = default.base_url
        settings.TOOLFLOW_OPENAI_API_KEY = "key-of-default"
        settings.TOOLFLOW_API_HEADERS = {"X-Team": "default"}
        settings.TOOLFLOW_PROVIDERS = {
            "azure": Provider("azure", "https://ours.openai.azure.com/openai/v1"),
            "groq": Provider("groq", groq.base_url, "key-of-groq", headers={"X-Team": "groq"}),
        }
        yield default, groq


@pytest.fixture
def at_openai(servers: Any, settings: Any) -> None:
    """OpenAI's own server as the default provider. Elsewhere a colon may be part of a model's name."""
    settings.TOOLFLOW_OPENAI_BASE_URL = ""


def price_at_real_addresses(model: str, usage: TokenUsage, *, provider: Provider, **options: Any) -> TokenUsage:
    """What the call would cost at the servers that those of this test stand for."""
    address = {"": OPENAI_BASE_URL, "groq": "https://api.groq.com/openai/v1"}[provider.name]
    return price_usage(model, usage, provider=replace(provider, base_url=address), **options)


@pytest.mark.django_db(transaction=True)
class TestRuns:
    def test_each_step_is_asked_at_its_provider_with_that_ones_key_and_headers_only(self, servers: Any) -> None:
        run = run_flow(TWO_PROVIDERS)
        assert run.status == RunStatus.SUCCEEDED, run.end_sentence
        for server, model, name in zip(
            servers, ("gpt-4.1", "llama-3.3-70b-versatile"), ("default", "groq"), strict=True
        ):
            assert [call.body["model"] for call in server.app.calls] == [model]
            ((authorization, team),) = [(one[b"authorization"], one[b"x-team"]) for one in server.headers]
            assert (authorization, team) == (f"Bearer key-of-{name}".encode(), name.encode())

    def test_tokens_and_price_of_each_step_are_those_of_its_provider(
        self, servers: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run_task, "price_call", price_at_real_addresses)
        run = run_flow(TWO_PROVIDERS)
        first, second = attempts_of(run)
        assert first.model.startswith("gpt-4.1")
        assert second.model == LLAMA
        for usage, million_in, million_out in (
            (first.usage, Decimal(2), Decimal(8)),
            (second.usage, Decimal("0.59"), Decimal("0.79")),
        ):
            assert usage.reported and usage.prompt > 0 and usage.completion > 0
            assert usage.cost == (usage.prompt * million_in + usage.completion * million_out) / 1_000_000
        assert (run.total_tokens, run.unpriced_count) == (first.usage.total + second.usage.total, 0)

    def test_a_limit_counts_the_calls_of_its_provider_only(self, servers: Any) -> None:
        RateLimit.objects.create(model="groq:*", requests_per_minute=1)
        version = make_version(TWO_PROVIDERS)
        runs = [make_run(version) for _ in range(3)]
        drain()
        default, groq = servers
        assert (default.app.call_count, groq.app.call_count) == (3, 1)
        waiting = Run.objects.filter(pk__in=[run.pk for run in runs], status=RunStatus.QUEUED)
        assert {run.waiting_for for run in waiting} == {"Waits for the rate limit of groq:*: 1 request a minute."}
        assert waiting.count() == 2

    def test_a_trace_names_the_provider_and_the_model_there(self) -> None:
        attempt = make_attempt(request={"model": "llama-3.3-70b-versatile"}, model=LLAMA)
        told = describe_call(attempt, Provider("groq", "https://api.groq.example/openai/v1"))
        assert told["gen_ai.provider.name"] == "groq"
        assert told["server.address"] == "api.groq.example"
        assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == "llama-3.3-70b-versatile"

    def test_metrics_of_the_worker_name_the_provider(self, servers: Any, settings: Any) -> None:
        settings.TOOLFLOW_WORKER_METRICS_PORT = 9464
        run_flow(TWO_PROVIDERS)
        meter = observability.find_worker_meter()
        assert meter is not None
        samples = read_registry(meter.registry)
        assert of(samples, "toolflow_attempt_seconds_count", model=LLAMA, outcome="passed") == 1

    @pytest.mark.parametrize(("model", "sentence"), REFUSED)
    def test_without_a_usable_provider_a_run_ends_before_any_call(
        self, at_openai: None, model: str, sentence: str
    ) -> None:
        run = run_flow(make_flow(make_step(1), make_step(2, model=model)))
        assert (run.status, run.end_reason, run.attempt_count) == (RunStatus.ERRORED, EndReason.CONFIGURATION, 0)
        assert sentence in run.end_sentence


@pytest.mark.django_db(transaction=True)
class TestTheSimulatedModelBesideProviders:
    @pytest.fixture(autouse=True)
    def _simulated_default(self, servers: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        settings.TOOLFLOW_PROVIDER = "simulated"
        monkeypatch.setattr(providers, "SIMULATED_LATENCY", 0.0)

    @pytest.mark.parametrize(
        ("flow", "is_simulated"), [(make_flow(make_step(model="gpt-4.1")), True), (TWO_PROVIDERS, False)]
    )
    def test_a_run_is_simulated_if_no_step_asks_a_real_provider(
        self, servers: Any, flow: Any, is_simulated: bool
    ) -> None:
        run = submit_run(flow=make_version(flow).flow, input={"topic": "tea"})
        drain()
        run.refresh_from_db()
        assert (run.status, run.is_simulated) == (RunStatus.SUCCEEDED, is_simulated)
        assert [server.app.call_count for server in servers] == [0, int(not is_simulated)]


@pytest.mark.django_db
@pytest.mark.parametrize(("model", "sentence"), REFUSED)
class TestSaving:
    def test_a_flow_is_refused_at_the_step_or_the_setting_that_names_the_model(
        self, at_openai: None, settings: Any, model: str, sentence: str
    ) -> None:
        settings.TOOLFLOW_MODEL = model
        for flow, place in (
            (make_flow(make_step(1, model="gpt-4.1"), make_step(2, model=model)), "/steps/1/model"),
            (make_flow(make_step(1, model=None)), "/model"),
        ):
            with pytest.raises(SpecError) as refusal:
                load_flow(document=flow.to_document())
            (problem,) = refusal.value.problems
            assert (problem.path, sentence in problem.message) == (place, True)

    def test_the_editor_shows_it_at_the_field(
        self, at_openai: None, admin_client: Client, model: str, sentence: str
    ) -> None:
        page = open_flow(admin_client)
        page.fill("steps-0-", model=model)
        assert list(page.save_in_vain()) == ["steps-0-model"]

    def test_a_stored_version_is_not_started(self, at_openai: None, model: str, sentence: str) -> None:
        version = make_version(make_flow(make_step(1, model=model)))
        with pytest.raises(NotRunnableError) as refusal:
            submit_run(flow=version.flow, input={"topic": "tea"})
        assert sentence in str(refusal.value)
        assert not Run.objects.exists()


@pytest.mark.django_db
class TestWhereOperatorsSeeThem:
    """All providers with their hosts, and why one can't be called; never keys and headers."""

    def test_the_api_the_page_and_the_command_list_them(self, servers: Any, admin_client: Client) -> None:
        text, document = StringIO(), StringIO()
        call_command("workers", stdout=text)
        call_command("workers", "--json", stdout=document)
        answer = Script(make_token(make_user("vera", "Viewer"))).get("workers").content.decode()
        page = admin_client.get("/workers/").content.decode()
        default, azure, groq = json.loads(answer)["providers"]
        assert (default["name"], default["problem"], groq["name"], groq["problem"]) == (None, None, "groq", None)
        known = {"name": "azure", "host": "ours.openai.azure.com", "api": "auto", "is_simulated": False}
        assert azure == json.loads(document.getvalue())["providers"][1] == {**known, "problem": NO_KEY}
        assert re.search(r"groq 127\.0\.0\.1:\d+ auto Ready", read_words(page))
        for listed in (read_words(page), " ".join(text.getvalue().split())):
            assert f"azure ours.openai.azure.com auto {NO_KEY}" in listed
        for shown in (answer, page, text.getvalue(), document.getvalue()):
            assert "key-of" not in shown and "X-Team" not in shown

    def test_a_worker_starts_while_the_default_one_can_be_called(self, servers: Any, settings: Any) -> None:
        assert providers.find_provider_problem() is None
        settings.TOOLFLOW_OPENAI_BASE_URL, settings.TOOLFLOW_OPENAI_API_KEY = "", ""
        assert providers.find_provider_problem() is not None
