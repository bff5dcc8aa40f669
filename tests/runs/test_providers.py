"""Flows whose steps ask several providers: real servers on this machine, a real drain."""

from __future__ import annotations

import json
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
from runs.models import EndReason, RateLimit, Run, RunStatus
from runs.submission import NotRunnableError, submit_run
from runs.worker import run_task
from tests.api.asking import Script, create_token, make_user
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.flows.loading import load_flow
from tests.runs.builders import make_run, make_version
from tests.runs.executing import attempts_of, drain, run_flow

LLAMA = "groq:llama-3.3-70b-versatile"
REFUSED = [("azure:gpt-4.1", "TOOLFLOW_PROVIDER_AZURE_API_KEY"), ("grok:gpt-4.1", "Configured: “azure”, “groq”.")]
"""Models that can't be asked, and what the reason speaks of."""
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
    def test_each_step_is_asked_at_its_provider_with_that_ones_key_headers_and_prices(
        self, servers: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run_task, "price_call", price_at_real_addresses)
        run = run_flow(TWO_PROVIDERS)
        assert run.status == RunStatus.SUCCEEDED, run.end_sentence
        names = (("default", "gpt-4.1"), ("groq", "llama-3.3-70b-versatile"))
        for server, (name, model) in zip(servers, names, strict=True):
            assert [call.body["model"] for call in server.app.calls] == [model]
            ((key, team),) = [(one[b"authorization"], one[b"x-team"]) for one in server.headers]
            assert (key, team) == (f"Bearer key-of-{name}".encode(), name.encode())
        first, second = attempts_of(run)
        assert (first.model.startswith("gpt-4.1"), second.model) == (True, LLAMA)
        for usage, million_in, million_out in ((first.usage, "2", "8"), (second.usage, "0.59", "0.79")):
            cost = usage.prompt * Decimal(million_in) + usage.completion * Decimal(million_out)
            assert usage.reported and usage.cost == cost / 1_000_000 > 0
        assert (run.total_tokens, run.unpriced_count) == (first.usage.total + second.usage.total, 0)

    def test_a_limit_counts_the_calls_of_its_provider_only(self, servers: Any) -> None:
        RateLimit.objects.create(model="groq:*", requests_per_minute=1)
        version = make_version(TWO_PROVIDERS)
        for _ in range(3):
            make_run(version)
        drain()
        assert [server.app.call_count for server in servers] == [3, 1]
        waiting = Run.objects.filter(status=RunStatus.QUEUED).values_list("waiting_for", flat=True)
        assert list(waiting) == ["Waits for the rate limit of groq:*: 1 request a minute."] * 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("model", "reason"), REFUSED)
def test_a_provider_that_can_not_be_asked_is_found_on_saving_on_starting_and_before_any_call(
    at_openai: None, settings: Any, model: str, reason: str
) -> None:
    settings.TOOLFLOW_MODEL = model
    flow = make_flow(make_step(1), make_step(2, model=model))
    for saved, place in ((flow, "/steps/1/model"), (make_flow(make_step(1, model=None)), "/model")):
        with pytest.raises(SpecError) as refusal:
            load_flow(document=saved.to_document())
        (problem,) = refusal.value.problems
        assert problem.path == place and reason in problem.message
    with pytest.raises(NotRunnableError, match=reason):
        submit_run(flow=make_version(flow).flow, input={"topic": "tea"})
    run = run_flow(flow)
    assert (run.status, run.end_reason, run.attempt_count) == (RunStatus.ERRORED, EndReason.CONFIGURATION, 0)
    assert reason in run.end_sentence


@pytest.mark.django_db
def test_operators_see_all_with_their_hosts_and_why_one_can_not_be_called_and_no_keys(
    servers: Any, admin_client: Client
) -> None:
    text, document = StringIO(), StringIO()
    call_command("workers", stdout=text)
    call_command("workers", "--json", stdout=document)
    answer = Script(create_token(make_user("vera", "Viewer"))).get("workers").content.decode()
    page = admin_client.get("/workers/").content.decode()
    default, azure, groq = json.loads(answer)["providers"]
    assert (default["name"], default["problem"], groq["name"], groq["problem"]) == (None, None, "groq", None)
    assert (azure["name"], azure["host"], azure["is_simulated"]) == ("azure", "ours.openai.azure.com", False)
    assert "TOOLFLOW_PROVIDER_AZURE_API_KEY" in azure["problem"]
    assert azure == json.loads(document.getvalue())["providers"][1]
    for shown in (answer, page, text.getvalue(), document.getvalue()):
        assert "ours.openai.azure.com" in shown and "key-of" not in shown and "X-Team" not in shown


def test_a_flow_whose_last_model_is_real_is_not_simulated(servers: Any, settings: Any) -> None:
    settings.TOOLFLOW_PROVIDER = "simulated"
    step = make_step(1, model="gpt-5-mini", max_retries=1)
    for last_model, expected in ((None, True), ("gpt-5", True), ("groq:llama-3.3-70b-versatile", False)):
        spec = make_flow(step.model_copy(update={"last_model": last_model}))
        assert providers.is_simulated_flow(spec) is expected


def test_a_worker_starts_while_the_default_one_can_be_called(servers: Any, settings: Any) -> None:
    assert providers.find_provider_problem() is None
    settings.TOOLFLOW_OPENAI_BASE_URL, settings.TOOLFLOW_OPENAI_API_KEY = "", ""
    assert providers.find_provider_problem() is not None
