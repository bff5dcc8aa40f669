"""Which models can be called how: by which API, with which settings, and what is refused when a flow is saved."""

from __future__ import annotations

from typing import Any

import pytest

from flows.engine.errors import SpecError
from flows.engine.model_families import find_family
from flows.engine.plugins import Registry
from flows.engine.prompt import build_request
from flows.engine.providers import Api, Provider, Providers
from flows.engine.spec import ModelSettings
from flows.engine.spec_check import check_spec, prepare_spec
from tests.engine.builders import make_flow, make_history, make_step

OPENAI = Providers(Provider(api_key="sk-1"))
AZURE = Providers(Provider(base_url="https://here.openai.azure.com/openai/v1", api_key="1"))
OTHER = Providers(Provider(base_url="http://localhost:4000/v1"))
ONLY_CHAT = Providers(Provider(api_key="sk-1", api=Api.CHAT))
ONLY_RESPONSES = Providers(Provider(base_url="http://localhost:4000/v1", api=Api.RESPONSES))


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


class TestNames:
    @pytest.mark.parametrize(
        ("name", "family"),
        [
            ("gpt-4.1", "GPT-4"), ("gpt-4o-mini", "GPT-4"), ("gpt-3.5-turbo", "GPT-4"), ("gpt-35-turbo", "GPT-4"),
            ("chatgpt-4o-latest", "GPT-4"), ("gpt-5", "GPT-5"), ("gpt-5-mini-2025-08-07", "GPT-5"),
            ("openai/gpt-5-nano", "GPT-5"), ("gpt-5.1-chat-latest", "GPT-5 chat"), ("gpt-5.1", "GPT-5.1"),
            ("gpt-5.2", "GPT-5.2 to 5.4"), ("gpt-5.4-mini", "GPT-5.2 to 5.4"), ("gpt-5.5", "GPT-5.5 and 5.6"),
            ("gpt-5.6-luna", "GPT-5.5 and 5.6"), ("gpt-6-sol-2026-09-01", "GPT-6"), ("gpt-6-luna", "GPT-6"),
            ("gpt-6-astra", "GPT-6 Astra and GPT-6.1"), ("gpt-6.1-terra", "GPT-6 Astra and GPT-6.1"),
            ("o4-mini", "o-series"), ("ft:o4-mini-2025-04-16:org::1", "o-series"), ("o3-pro", "o-series pro"),
            ("gpt-5.3-codex", "GPT-5.2 to 5.4 codex"), ("codex-mini-latest", "o-series codex"),
            ("gpt-5.4-pro", "GPT-5.2 to 5.4 pro"), ("gpt-7-unknown", "newer"), ("gpt-5.7", "newer"),
            ("gpt-6-nova", "newer"), ("gpt-7-pro", "newer pro"),
            ("gpt-oss-120b", "compatible"), ("olmo-2", "compatible"),
            ("llama3:8b", "compatible"),
        ],
    )  # fmt: skip
    def test_a_name_tells_the_family(self, name: str, family: str) -> None:
        assert find_family(name).name == family

    def test_a_deployment_of_azure_has_no_name_of_a_model(self) -> None:
        assert AZURE.default.find_family("our-chat").name == "compatible"
        assert AZURE.default.find_family("gpt-7-unknown").name == "newer"
        assert Provider().find_family("davinci-9").name == "newer"


class TestApi:
    @pytest.mark.parametrize(
        ("model", "settings", "api", "effort"),
        [
            ("gpt-4.1", {}, "chat", None),
            ("gpt-5-mini", {}, "chat", None),
            ("gpt-5-mini", {"reasoning_effort": "low"}, "chat", "low"),
            ("o4-mini", {"reasoning_effort": "low"}, "chat", "low"),
            ("gpt-5.1", {"reasoning_effort": "none"}, "chat", "none"),
            ("gpt-5.4", {}, "chat", None),
            ("gpt-5.4", {"reasoning_effort": "none"}, "chat", None),
            ("gpt-5.4", {"reasoning_effort": "low"}, "responses", "low"),
            ("gpt-5.5", {}, "responses", None),
            ("gpt-5.6-luna", {"reasoning_effort": "none"}, "chat", "none"),
            ("gpt-6-sol", {}, "responses", None),
            ("gpt-6-sol", {"reasoning_effort": "max"}, "responses", "max"),
            ("gpt-6-sol", {"reasoning_effort": "none"}, "chat", "none"),
            ("gpt-6-astra", {}, "responses", None),
            ("gpt-5.4-pro", {}, "responses", None),
            ("gpt-7-unknown", {}, "responses", None),
            ("gpt-7-unknown", {"reasoning_effort": "minimal"}, "responses", "minimal"),
        ],
    )
    @pytest.mark.parametrize("providers", [OPENAI, AZURE])
    def test_at_openai_each_model_is_asked_by_the_api_that_it_needs(
        self, providers: Providers, model: str, settings: dict[str, Any], api: str, effort: str | None
    ) -> None:
        request = ask(model, providers, **settings)
        sent = request.get("reasoning", {}).get("effort") or request.get("reasoning_effort")
        assert ("responses" if "input" in request else "chat", sent) == (api, effort)

    @pytest.mark.parametrize("providers", [OTHER, ONLY_CHAT])
    @pytest.mark.parametrize(
        ("model", "effort"),
        [("gpt-4.1", None), ("gpt-5.4", None), ("gpt-5.6-sol", "none"), ("gpt-6-luna", "none"), ("qwen-3", None)],
    )
    def test_elsewhere_models_are_asked_by_chat_completions_without_reasoning_where_they_need_that(
        self, providers: Providers, model: str, effort: str | None
    ) -> None:
        request = ask(model, providers)
        assert "messages" in request
        assert request.get("reasoning_effort") == effort

    @pytest.mark.parametrize(
        ("settings", "pointer"),
        [
            ({"model": "gpt-6-astra"}, "/steps/0/model"),
            ({"model": "gpt-5.3-codex"}, "/steps/0/model"),
            ({"model": "gpt-5.4", "reasoning_effort": "high"}, "/steps/0/reasoning_effort"),
            ({"model": "gpt-6-sol", "reasoning_effort": "low"}, "/steps/0/reasoning_effort"),
        ],
    )
    def test_what_needs_responses_is_refused_where_the_provider_is_not_asked_by_it(
        self, settings: dict[str, Any], pointer: str
    ) -> None:
        assert refuse(OTHER, **settings) == refuse(ONLY_CHAT, **settings) == [pointer]
        assert refuse(ONLY_RESPONSES, **settings) == refuse(OPENAI, **settings) == []

    def test_a_provider_of_responses_is_asked_by_nothing_else(self) -> None:
        assert "input" in ask("llama-3.3-70b", ONLY_RESPONSES)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "pointers"),
        [
            ({"model": "gpt-4.1", "temperature": 0.2}, []),
            ({"model": "gpt-5-chat-latest", "temperature": 0.2}, []),
            ({"model": "gpt-5-mini", "temperature": 0.2}, ["/steps/0/temperature"]),
            ({"model": "o4-mini", "temperature": 0.2}, ["/steps/0/temperature"]),
            ({"model": "gpt-5.1", "temperature": 0.2}, []),
            ({"model": "gpt-5.1", "temperature": 0.2, "reasoning_effort": "low"}, ["/steps/0/temperature"]),
            ({"model": "gpt-5.6-sol", "temperature": 0.2}, ["/steps/0/temperature"]),
            ({"model": "gpt-5.6-sol", "temperature": 0.2, "reasoning_effort": "none"}, []),
            ({"model": "gpt-6-sol", "temperature": 0.2, "reasoning_effort": "none"}, ["/steps/0/temperature"]),
            ({"model": "gpt-7-unknown", "temperature": 0.2}, []),
            ({"model": "gpt-4.1", "reasoning_effort": "low"}, ["/steps/0/reasoning_effort"]),
            ({"model": "gpt-5-mini", "reasoning_effort": "none"}, ["/steps/0/reasoning_effort"]),
            ({"model": "gpt-5.4-pro", "reasoning_effort": "none"}, ["/steps/0/reasoning_effort"]),
            ({"model": "gpt-6-astra", "reasoning_effort": "none"}, ["/steps/0/reasoning_effort"]),
            ({"model": "gpt-6-sol", "reasoning_effort": "minimal"}, ["/steps/0/reasoning_effort"]),
            ({"model": "qwen-3", "reasoning_effort": "minimal"}, []),
        ],
    )
    @pytest.mark.parametrize("providers", [OPENAI, None])
    def test_what_a_model_does_not_take_is_refused_on_saving(
        self, providers: Providers | None, settings: dict[str, Any], pointers: list[str]
    ) -> None:
        assert refuse(providers, **settings) == pointers

    def test_a_value_of_the_flow_is_reported_there_and_names_the_first_step_that_it_does_not_suit(self) -> None:
        steps = (make_step(1, model="gpt-4.1"), make_step(2, model="gpt-6-sol"), make_step(3, model="gpt-6-sol"))
        (problem,) = check_spec(make_flow(*steps, temperature=0.5), Registry(), providers=OPENAI)
        assert problem.path == "/temperature"
        assert problem.message == "Step 2 “Step 2”: “gpt-6-sol” takes no temperature. Remove it."

    def test_the_model_of_the_installation_is_checked_where_a_flow_names_none(self) -> None:
        defaults = ModelSettings(model="gpt-6-astra")
        assert refuse(OTHER, defaults=defaults, model=None) == ["/model"]
        assert refuse(defaults=defaults, model=None, temperature=0.2) == ["/steps/0/temperature"]

    @pytest.mark.parametrize("model", ["gpt-6-sol", "gpt-5-mini", "o4-mini", "gpt-5.6-terra", "gpt-7-unknown"])
    def test_a_temperature_of_the_installation_is_left_out_where_a_model_refuses_it(self, model: str) -> None:
        assert "temperature" not in ask(model, defaults={"temperature": 0.3})

    @pytest.mark.parametrize(
        ("model", "providers"), [("gpt-4.1", OPENAI), ("llama-3.3-70b", OTHER), ("gpt-5.6", OTHER)]
    )
    def test_a_temperature_of_the_installation_is_sent_where_a_model_takes_it(
        self, model: str, providers: Providers
    ) -> None:
        assert ask(model, providers, defaults={"temperature": 0.3})["temperature"] == 0.3

    @pytest.mark.parametrize(
        ("model", "providers", "effort"),
        [
            ("gpt-4.1", OPENAI, None),
            ("gpt-5-mini", OPENAI, "low"),
            ("gpt-5.4", OTHER, None),
            ("gpt-6-sol", OTHER, "none"),
        ],
    )
    def test_an_effort_of_the_installation_is_left_out_where_it_can_t_be_sent(
        self, model: str, providers: Providers, effort: str | None
    ) -> None:
        assert ask(model, providers, defaults={"reasoning_effort": "low"}).get("reasoning_effort") == effort

    @pytest.mark.parametrize(
        ("model", "field"),
        [
            ("gpt-4.1", "max_tokens"),
            ("gpt-5-mini", "max_completion_tokens"),
            ("gpt-5.4", "max_completion_tokens"),
            ("gpt-6-sol", "max_output_tokens"),
        ],
    )
    def test_the_token_limit_has_the_name_that_the_model_knows(self, model: str, field: str) -> None:
        request = ask(model, max_tokens=500)
        assert {name: value for name, value in request.items() if name.startswith("max_")} == {field: 500}

    @pytest.mark.parametrize(("model", "is_sent"), [("gpt-4.1", True), ("gpt-6-sol", True), ("o4-mini", False)])
    def test_one_call_at_a_time_is_asked_for_where_the_model_can_be_asked(self, model: str, is_sent: bool) -> None:
        assert ("parallel_tool_calls" in ask(model)) is is_sent


class TestProviders:
    GROQ = Provider("groq", "https://api.groq.com/openai/v1", "gsk-1")

    @pytest.mark.parametrize(
        ("named", "provider", "model"),
        [
            ("gpt-4.1", "", "gpt-4.1"),
            ("groq:llama-3.3-70b", "groq", "llama-3.3-70b"),
            ("groq:meta/llama:free", "groq", "meta/llama:free"),
            ("ft:gpt-4.1:org::1", "", "ft:gpt-4.1:org::1"),
        ],
    )
    def test_what_stands_before_the_first_colon_is_the_provider(self, named: str, provider: str, model: str) -> None:
        found, name = Providers(OPENAI.default, {"groq": self.GROQ}).split(named)
        assert (found.name, name) == (provider, model)
        assert found.qualify(name) == named

    def test_elsewhere_than_at_openai_a_colon_may_be_part_of_the_name(self) -> None:
        assert Providers(OTHER.default, {"groq": self.GROQ}).split("llama3:8b") == (OTHER.default, "llama3:8b")

    @pytest.mark.parametrize(
        ("model", "words"),
        [
            ("grok:llama", "No provider is called “grok”. Configured: “groq”, “keyless”, “nowhere”."),
            ("groq:", "names a provider and no model"),
            ("keyless:gpt-4.1", "Set TOOLFLOW_PROVIDER_KEYLESS_API_KEY"),
            ("nowhere:gpt-4.1", "TOOLFLOW_PROVIDER_NOWHERE_BASE_URL (in a script: base_url=…) is no web address"),
        ],
    )
    def test_a_provider_that_can_t_be_asked_is_refused_with_one_sentence(self, model: str, words: str) -> None:
        named = {"groq": self.GROQ, "keyless": Provider("keyless"), "nowhere": Provider("nowhere", "localhost:1")}
        with pytest.raises(SpecError) as refusal:
            ask(model, Providers(OPENAI.default, named))
        (problem,) = refusal.value.problems
        assert problem.path == "/steps/0/model"
        assert words in problem.message

    @pytest.mark.parametrize(
        ("base_url", "is_openai"),
        [
            ("https://api.openai.com/v1", True), ("https://eu.api.openai.com/v1", True),
            ("https://here.openai.azure.com/openai/v1/", True), ("https://here.services.ai.azure.com/openai/v1", True),
            ("https://here.cognitiveservices.azure.com/openai/v1", True),
            ("https://api.openai.com.example.com/v1", False), ("https://notopenai.azure.com/v1", False),
            ("https://openrouter.ai/api/v1", False), ("http://[::1", False),
        ],
    )  # fmt: skip
    def test_openai_s_own_servers_are_known_by_their_address(self, base_url: str, is_openai: bool) -> None:
        assert Provider(base_url=base_url).is_openai is is_openai
