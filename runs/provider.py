"""The model clients of this installation: real providers, or the simulated model in process.

The ``openai`` package takes as long to load as all else together, and only what calls the model needs it: so functions
here import it when they are called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flows.providers import build_providers, list_providers

if TYPE_CHECKING:
    from flows.engine.history import TokenUsage
    from flows.engine.providers import ModelClient, Provider
    from flows.engine.spec import FlowSpec

SIMULATED_LATENCY = (0.4, 1.6)
"""Seconds that the simulated model takes, so that its runs can be watched."""


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
    models = [step.model for step in spec.steps if step.model is not None and not step.is_local]
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
