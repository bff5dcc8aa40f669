"""What an installation has: workers, model providers and plug-ins."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from flows.engine.providers import Api
from runs.api.schemas.statistics import QueueState, Seconds
from runs.documents.base import Answer, Count


class Worker(Answer):
    """A worker process at its last heartbeat."""

    host: str = Field(description="The name of its machine.")
    pid: int = Field(description="The number of its process.")
    version: str = Field(description="The version of ToolFlow that it runs.")
    status: Literal["working", "stopping", "silent"] = Field(
        validation_alias="state", description="`stopping` takes no more runs; `silent` has no recent heartbeat."
    )
    slots: Count = Field(description="The maximum number of concurrent runs.")
    in_flight: Count = Field(description="The number of runs in progress.")
    running_for: Seconds = Field(description="Seconds from its start to its last heartbeat.")
    silent_for: Seconds = Field(description="Seconds since its last heartbeat.")


class Provider(Answer):
    """A server that models are asked at, as this web server is configured."""

    name: str | None = Field(
        description="The part before the colon in `provider:model`; null for the default provider."
    )
    host: str | None = Field(description="Its host and port; null for the simulated model.")
    api: Api = Field(description="`auto` uses the Responses API only for OpenAI models that need it.")
    is_simulated: bool = Field(description="Whether the simulated model answers; nothing is billed.")
    problem: str | None = Field(description="Why it can’t be called, if it can’t: no usable key.")


class Workers(Answer):
    """The workers, the queue and the model providers."""

    items: list[Worker] = Field(description="The worker processes.")
    queue: QueueState = Field(description="Runs that are queued.")
    providers: list[Provider] = Field(description="The default one first.")


class PluginFunction(Answer):
    """An audit or a function; an expression names it as `python:` and its name."""

    name: str = Field(description="The name that flows use.")
    description: str | None = Field(description="The author’s description.")
    parameters: list[str] = Field(description="The variables that it takes.")
    is_async: bool = Field(description="Whether it is a coroutine.")


class OutputType(Answer):
    """A type that outputs of a step are built from; a step names it as its `output_type`."""

    name: str = Field(description="The name that flows use.")
    description: str | None = Field(description="The author’s description.")
    has_audit: bool = Field(description="Whether it has its own audit.")
    output_schema: dict[str, Any] | None = Field(description="JSON Schema of its outputs.")
    problems: list[str] = Field(description="Why it can’t be used, if it can’t.")


class MissingPlugin(Answer):
    """A name that a flow uses and that is not registered."""

    kind: Literal["output_type", "audit", "function"] = Field(description="The kind of plug-in.")
    name: str = Field(description="The name.")
    flow: str = Field(description="The name of the flow.")
    place: str = Field(description="Where in the flow, in words.")
    is_live: bool = Field(description="Whether the live version uses it; else only what is being edited.")


class Plugins(Answer):
    """What plug-ins register."""

    output_types: list[OutputType] = Field(description="By name.")
    audits: list[PluginFunction] = Field(description="By name.")
    functions: list[PluginFunction] = Field(description="By name.")
    missing: list[MissingPlugin] = Field(description="Ordered by flow title.")
    problems: list[str] = Field(description="Modules that could not be loaded.")
