"""Which models can be called how, at which provider and by which API, and what their calls cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.errors import SpecError
from flows.engine.history import TokenUsage
from flows.engine.model_families import find_family
from flows.engine.openai_client import simulated_client
from flows.engine.plugins import Registry
from flows.engine.pricing import has_price, price_usage
from flows.engine.prompt import build_request
from flows.engine.providers import Api, Provider, Providers
from flows.engine.simulated_model import SimulatedModel
from flows.engine.spec import ModelSettings
from flows.engine.spec_check import check_spec, prepare_spec
from tests.engine.builders import make_flow, make_history, make_step
from tests.engine.executions import execute
from tests.engine.test_call_gate import Gate

OPENAI = Providers(Provider(api_key="sk-1"))
AZURE = Providers(Provider(base_url="https://here.openai.azure.com/openai/v1", api_key="1"))
OTHER = Providers(Provider(base_url="http://localhost:4000/v1"))
ONLY_CHAT = Providers(Provider(api_key="sk-1", api=Api.CHAT))
ONLY_RESPONSES = Providers(Provider(base_url="http://localhost:4000/v1", api=Api.RESPONSES))
GROQ = Provider("groq", "https://api.groq.com/openai/v1", "gsk-1")


def ask(model: str, providers: Providers = OPENAI, **settings: Any) -> dict[str, Any]:
    """The request of a step that passed the checks."""
    defaults = ModelSettings.model_validate({"model": "gpt-4.1", **settings.pop("defaults", {})})
    flow = make_flow(make_step(model=model, **settings))
    spec = prepare_spec(flow, registry=Registry(), defaults=defaults, providers=providers)
    return build_request(spec, make_history(), 1, {"topic": "tea"}, providers=providers)


def refuse(
    providers: Providers | None = OPENAI, *, defaults: ModelSettings | None = None, **settings: Any
) -> list[str]:
    """Where saving a flow of one step refuses it."""
    flow = make_flow(make_step(**settings))
    return [problem.path for problem in check_spec(flow, Registry(), defaults=defaults, providers=providers)]


FAMILIES = {
    "GPT-4": "gpt-4.1 gpt-4o-mini gpt-35-turbo chatgpt-4o-latest",
    "GPT-5": "gpt-5 gpt-5-mini-2025-08-07 openai/gpt-5-nano",
    "GPT-5 chat": "gpt-5.1-chat-latest",
    "GPT-5.1": "gpt-5.1",
    "GPT-5.2 to 5.4": "gpt-5.2 gpt-5.4-mini",
    "GPT-5.2 to 5.4 codex": "gpt-5.3-codex",
    "GPT-5.2 to 5.4 pro": "gpt-5.4-pro",
    "GPT-5.5 and 5.6": "gpt-5.5 gpt-5.6-luna",
    "GPT-6": "gpt-6-sol-2026-09-01 gpt-6-luna",
    "GPT-6 Astra and GPT-6.1": "gpt-6-astra gpt-6.1-terra",
    "o-series": "o4-mini ft:o4-mini-2025-04-16:org::1",
    "o-series pro": "o3-pro",
    "o-series codex": "codex-mini-latest",
    "newer": "gpt-7-unknown gpt-5.7 gpt-6-nova",
    "newer pro": "gpt-7-pro",
    "compatible": "gpt-oss-120b olmo-2 llama3:8b",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_tells_the_family(family: str) -> None:
    assert {find_family(name).name for name in FAMILIES[family].split()} == {family}


class TestApi:
    @pytest.mark.parametrize(
        ("model", "given", "api", "effort"),
        [
            ("gpt-4.1", None, "chat", None),
            ("gpt-5-mini", "low", "chat", "low"),
            ("gpt-5.1", "none", "chat", "none"),
            ("gpt-5.4", None, "chat", None),
            ("gpt-5.4", "none", "chat", None),
            ("gpt-5.4", "low", "responses", "low"),
            ("gpt-5.5", None, "responses", None),
            ("gpt-5.6-luna", "none", "chat", "none"),
            ("gpt-6-sol", "max", "responses", "max"),
            ("gpt-6-sol", "none", "chat", "none"),
            ("gpt-5.4-pro", None, "responses", None),
            ("gpt-7-unknown", "minimal", "responses", "minimal"),
        ],
    )
    @pytest.mark.parametrize("providers", [OPENAI, AZURE])
    def test_at_openai_each_model_is_asked_by_the_api_that_it_needs(
        self, providers: Providers, model: str, given: str | None, api: str, effort: str | None
    ) -> None:
        request = ask(model, providers, reasoning_effort=given)
        sent = request.get("reasoning", {}).get("effort") or request.get("reasoning_effort")
        assert ("responses" if "input" in request else "chat", sent) == (api, effort)

    @pytest.mark.parametrize("providers", [OTHER, ONLY_CHAT])
    @pytest.mark.parametrize(("model", "effort"), [("gpt-5.4", None), ("gpt-6-luna", "none"), ("qwen-3", None)])
    def test_elsewhere_models_are_asked_by_chat_completions_without_reasoning_where_they_need_that(
        self, providers: Providers, model: str, effort: str | None
    ) -> None:
        request = ask(model, providers)
        assert ("messages" in request, request.get("reasoning_effort")) == (True, effort)

    @pytest.mark.parametrize(
        ("model", "effort", "pointer"),
        [
            ("gpt-6-astra", None, "/steps/0/model"),
            ("gpt-5.3-codex", None, "/steps/0/model"),
            ("gpt-5.4", "high", "/steps/0/reasoning_effort"),
        ],
    )
    def test_what_needs_responses_is_refused_where_the_provider_is_not_asked_by_it(
        self, model: str, effort: str | None, pointer: str
    ) -> None:
        settings: dict[str, Any] = {"model": model, "reasoning_effort": effort}
        assert refuse(OTHER, **settings) == refuse(ONLY_CHAT, **settings) == [pointer]
        assert refuse(ONLY_RESPONSES, **settings) == refuse(OPENAI, **settings) == []


class TestSettings:
    @pytest.mark.parametrize(
        ("model", "effort", "fields"),
        [
            ("gpt-4.1", None, []),
            ("o4-mini", None, ["temperature"]),
            ("gpt-5.1", None, []),
            ("gpt-5.1", "low", ["temperature"]),
            ("gpt-5.6-sol", "none", []),
            ("gpt-7-unknown", None, []),
            ("gpt-5-mini", "none", ["reasoning_effort"]),
            ("qwen-3", "minimal", []),
        ],
    )
    @pytest.mark.parametrize("providers", [OPENAI, None])
    def test_what_a_model_does_not_take_is_refused_on_saving(
        self, providers: Providers | None, model: str, effort: str | None, fields: list[str]
    ) -> None:
        found = refuse(providers, model=model, temperature=0.2, reasoning_effort=effort)
        assert sorted(found) == sorted(f"/steps/0/{field}" for field in fields)

    @pytest.mark.parametrize(
        ("model", "field", "is_one_call"),
        [
            ("gpt-4.1", "max_tokens", True),
            ("o4-mini", "max_completion_tokens", False),
            ("gpt-6-sol", "max_output_tokens", True),
        ],
    )
    def test_the_token_limit_has_the_name_that_the_model_knows_and_one_call_is_asked_for_where_it_can_be(
        self, model: str, field: str, is_one_call: bool
    ) -> None:
        request = ask(model, max_tokens=500)
        assert {name: value for name, value in request.items() if name.startswith("max_")} == {field: 500}
        assert ("parallel_tool_calls" in request) is is_one_call


class TestProviders:
    FLOW = make_flow(make_step(1, model="gpt-4.1"), make_step(2, model="house:gpt-4.1-mini"))

    @pytest.mark.parametrize(
        ("named", "provider", "model"),
        [
            ("gpt-4.1", "", "gpt-4.1"),
            ("groq:meta/llama:free", "groq", "meta/llama:free"),
            ("ft:gpt-4.1:org::1", "", "ft:gpt-4.1:org::1"),
        ],
    )
    def test_what_stands_before_the_first_colon_is_the_provider(self, named: str, provider: str, model: str) -> None:
        found, name = Providers(OPENAI.default, {"groq": GROQ}).split(named)
        assert (found.name, name, found.qualify(name)) == (provider, model, named)

    @pytest.mark.parametrize(
        ("model", "words"),
        [
            ("grok:llama", "No provider is called “grok”. Configured: “groq”, “keyless”, “nowhere”."),
            ("groq:", "names a provider but no model"),
            ("keyless:gpt-4.1", "Set TOOLFLOW_PROVIDER_KEYLESS_API_KEY"),
            ("nowhere:gpt-4.1", "TOOLFLOW_PROVIDER_NOWHERE_BASE_URL"),
        ],
    )
    def test_a_provider_that_can_t_be_asked_is_refused_with_one_sentence(self, model: str, words: str) -> None:
        named = {"groq": GROQ, "keyless": Provider("keyless"), "nowhere": Provider("nowhere", "localhost:1")}
        with pytest.raises(SpecError) as refusal:
            ask(model, Providers(OPENAI.default, named))
        (problem,) = refusal.value.problems
        assert (problem.path, words in problem.message) == ("/steps/0/model", True)

    @pytest.mark.parametrize(
        ("base_url", "is_openai"),
        [
            ("https://eu.api.openai.com/v1", True),
            ("https://here.services.ai.azure.com/openai/v1", True),
            ("https://api.openai.com.example.com/v1", False),
            ("https://notopenai.azure.com/v1", False),
            ("http://[::1", False),
        ],
    )
    def test_openai_s_own_servers_are_known_by_their_address(self, base_url: str, is_openai: bool) -> None:
        assert Provider(base_url=base_url).is_openai is is_openai

    async def test_limits_and_prices_know_the_provider(self) -> None:
        asked: list[tuple[str, str]] = []

        def price(model: str, usage: Any, *, provider: Provider, service_tier: str | None) -> Any:
            asked.append((provider.name, model))
            return usage

        gate, house = Gate(), simulated_client(SimulatedModel())
        await execute(self.FLOW, clients={"house": house}, gate=gate, price=price)
        assert [request["model"] for request in gate.requests] == ["gpt-4.1", "house:gpt-4.1-mini"]
        assert asked == [("", "gpt-4.1"), ("house", "gpt-4.1-mini")]


def make_usage(prompt: int = 0, completion: int = 0, cached: int = 0) -> TokenUsage:
    return TokenUsage(prompt=prompt, completion=completion, total=prompt + completion, cached=cached)


MODELS = [model.id for provider in get_snapshot().providers if provider.id == "openai" for model in provider.models]


def ask_list(model: str, usage: TokenUsage) -> Decimal | None:
    """What the price list itself says; None where it lacks the price of a unit that was used."""
    tokens = Usage(input_tokens=usage.prompt, cache_read_tokens=usage.cached, output_tokens=usage.completion)
    try:
        price = calc_price(tokens, model, provider_id="openai")
    except (LookupError, ValueError):
        return None
    lacks_prompt = usage.prompt and price.model_price.input_mtok is None
    lacks_completion = usage.completion and price.model_price.output_mtok is None
    return None if lacks_prompt or lacks_completion else price.total_price


@given(data=st.data())
def test_every_listed_model_costs_exactly_what_the_list_says(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS))
    # Where some prices change with the length of the prompt.
    prompt = data.draw(st.integers(0, 1_000_000) | st.integers(271_990, 272_010))
    completion = data.draw(st.integers(0, 100_000))
    usage = make_usage(prompt, completion, data.draw(st.integers(0, prompt)))
    expected = ask_list(model, usage) if prompt or completion else None
    assert price_usage(model, usage).cost == expected


@pytest.mark.parametrize("model", ["gpt-9", "", "whisper-1", "x" * 10_000])
def test_a_model_without_a_listed_price_is_unpriced_and_never_free(model: str) -> None:
    usage = price_usage(model, make_usage(1_000, 10))
    assert (usage.cost, usage.unpriced, has_price(model), has_price("gpt-5-mini")) == (None, 1, False, True)


def test_prices_of_a_provider_are_found_by_its_address() -> None:
    found = {
        url: price_usage("gpt-4o-mini", make_usage(1_000_000), provider=Provider(base_url=url)).cost
        for url in ("https://here.openai.azure.com/openai/v1", "https://models.example.com/v1")
    }
    assert list(found.values()) == [Decimal("0.15"), None]


@pytest.mark.parametrize(
    ("model", "tier", "part"),
    [("gpt-5-mini", tier, 1) for tier in (None, "default", "auto", "on_demand")]
    + [("gpt-5-mini", "flex", 2), ("gpt-4.1", "flex", None), ("gpt-5-mini", "scale", None)],
)
def test_tiers_have_prices_of_their_own_or_none_that_are_known(model: str, tier: str | None, part: int | None) -> None:
    usage = make_usage(1_000_000, 1_000_000, 100_000)
    standard = price_usage(model, usage).cost
    assert standard is not None
    assert price_usage(model, usage, service_tier=tier).cost == (standard / part if part else None)
