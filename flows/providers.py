"""The model providers and default model settings of this installation; checks, clients and prices that depend on them.

The ``openai`` package takes as long to load as all else together, and only what calls the model needs it: so functions
here import it when they are called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings

from flows.engine.errors import Problem
from flows.engine.plugins import registry
from flows.engine.providers import OPENAI_BASE_URL, SIMULATED_BASE_URL, Api, Provider, Providers
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import check_spec, find_warnings

if TYPE_CHECKING:
    from flows.engine.history import TokenUsage
    from flows.engine.providers import ModelClient

SIMULATED_LATENCY = (0.4, 1.6)
"""Seconds that the simulated model takes, so that its runs can be watched."""


def build_providers() -> Providers:
    """The default provider and the named ones, as the settings describe them."""
    api = Api(settings.TOOLFLOW_API)
    if settings.TOOLFLOW_PROVIDER == "simulated":
        default = Provider(base_url=SIMULATED_BASE_URL, api=api)
    else:
        default = Provider(
            base_url=settings.TOOLFLOW_OPENAI_BASE_URL or OPENAI_BASE_URL,
            api_key=settings.TOOLFLOW_OPENAI_API_KEY,
            api=api,
            headers=settings.TOOLFLOW_API_HEADERS,
        )
    return Providers(default, settings.TOOLFLOW_PROVIDERS)


def list_providers() -> list[Provider]:
    """All of them, the default one first."""
    providers = build_providers()
    return [providers.default, *providers.named.values()]


def default_model_settings() -> ModelSettings:
    """What calls of this installation fall back to."""
    names = ModelSettings.model_fields
    return ModelSettings.model_validate({name: getattr(settings, f"TOOLFLOW_{name.upper()}") for name in names})


def check_flow(spec: FlowSpec) -> list[Problem]:
    """Everything that keeps a flow from running at this installation, with JSON pointers into its document."""
    return check_spec(spec, registry, defaults=default_model_settings(), providers=build_providers())


def find_flow_warnings(spec: FlowSpec) -> list[Problem]:
    """What is allowed and yet most likely not meant, to be shown as warnings when a flow is saved."""
    return find_warnings(spec, default_model=settings.TOOLFLOW_MODEL, providers=build_providers())


def is_simulated() -> bool:
    """Whether all outputs are invented here and nothing is billed."""
    return all(provider.is_simulated for provider in list_providers())


def find_simulation() -> bool | None:
    """Whether runs are simulated whatever their models are; None where the models decide."""
    if is_simulated():
        return True
    return None if build_providers().default.is_simulated else False


def is_simulated_flow(spec: FlowSpec) -> bool:
    """Whether no call of a checked, resolved flow reaches a real provider."""
    providers = build_providers()
    models = {model for step in spec.steps if not step.is_local for model in (step.model, step.last_model) if model}
    return providers.default.is_simulated and all(providers.split(model)[0].is_simulated for model in models)


def describe_providers() -> list[dict[str, Any]]:
    """The providers as JSON, without keys and headers; the default one has no name."""
    return [
        {
            "name": provider.name or None,
            "host": None if provider.is_simulated else provider.place,
            "api": provider.api.value,
            "is_simulated": provider.is_simulated,
            "problem": provider.find_problem(),
        }
        for provider in list_providers()
    ]


def find_provider_problem() -> str | None:
    """What keeps calls at the default provider from being made, in a sentence; None where nothing does."""
    return build_providers().default.find_problem()


def load_client() -> None:
    """Load what calls are made with, for processes that are forked later to share."""
    import_module("flows.engine.openai_client")


def create_client(provider: Provider) -> ModelClient:
    """A client for calls at ``provider``; the caller closes it."""
    from flows.engine.openai_client import OpenAIClient, simulated_client

    if provider.is_simulated:
        from flows.engine.simulated_model import SimulatedModel
        from flows.examples.scripts import example_script

        app = SimulatedModel(script=example_script(), latency=SIMULATED_LATENCY, keep_calls=0)
        return simulated_client(app, api=provider.api)
    return OpenAIClient.for_provider(provider)


def price_call(model: str, usage: TokenUsage, *, provider: Provider, service_tier: str | None) -> TokenUsage:
    """``usage`` with its cost by the price list; calls of the simulated model are free."""
    from flows.engine.pricing import leave_free, price_usage

    price = leave_free if provider.is_simulated else price_usage
    return price(model, usage, provider=provider, service_tier=service_tier)
