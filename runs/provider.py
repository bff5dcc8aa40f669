"""The model client of this installation: a real provider, or the simulated model in process.

The ``openai`` package takes as long to load as all else together, and only what calls the model needs it: so functions
here import it when they are called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from django.conf import settings

from flows.engine.providers import OPENAI_BASE_URL, Provider

if TYPE_CHECKING:
    from flows.engine.execution import Pricing
    from flows.engine.model_client import ModelClient

SIMULATED_LATENCY = (0.4, 1.6)
"""Seconds that the simulated model takes, so that its runs can be watched."""


def is_simulated() -> bool:
    """Whether outputs are invented here and nothing is billed."""
    return bool(settings.TOOLFLOW_PROVIDER == "simulated")


def find_provider_problem() -> str | None:
    """What keeps every call from being made, in a sentence that says what to mend; None where nothing does."""
    if is_simulated():
        return None
    return _default_provider().find_problem()


def load_client() -> None:
    """Load what calls are made with, for processes that are forked later to share."""
    import_module("flows.engine.openai_client")


def create_client() -> ModelClient:
    """A client for the calls of one worker process; whoever creates it closes it."""
    from flows.engine.openai_client import OpenAIClient, simulated_client

    if is_simulated():
        from flows.engine.simulated_model import SimulatedModel
        from flows.examples.scripts import example_script

        return simulated_client(SimulatedModel(script=example_script(), latency=SIMULATED_LATENCY, keep_calls=0))
    return OpenAIClient.for_provider(_default_provider())


def _default_provider() -> Provider:
    return Provider(
        base_url=settings.TOOLFLOW_OPENAI_BASE_URL or OPENAI_BASE_URL, api_key=settings.TOOLFLOW_OPENAI_API_KEY or ""
    )


def choose_pricing() -> Pricing:
    """How calls of this installation are priced: by the list, unless they are simulated."""
    from flows.engine.pricing import leave_free, price_usage

    return leave_free if is_simulated() else price_usage
