"""The model providers and default model settings of this installation, and the check of flows that knows them."""

from __future__ import annotations

from django.conf import settings

from flows.engine.errors import Problem
from flows.engine.plugins import registry
from flows.engine.providers import OPENAI_BASE_URL, SIMULATED_BASE_URL, Api, Provider, Providers
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import check_spec, find_warnings


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
