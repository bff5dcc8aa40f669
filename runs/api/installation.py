"""What this installation has: worker processes, plug-ins, and the caller's own account."""

from __future__ import annotations

import inspect
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BeforeValidator, Field
from rest_framework.request import Request

from flows import checks
from flows.engine import plugins
from flows.engine.errors import SpecError
from flows.engine.providers import Api
from flows.engine.typed_output import schema_of_type
from flows.plugin_use import fetch_flow_uses
from flows.providers import describe_providers
from runs.api.access import READ_FLOWS, READ_RUNS
from runs.api.base import ApiView, operation
from runs.api.figures import QueueState, Seconds
from runs.documents.base import Answer, Count
from runs.models import ApiToken, TokenScope
from runs.statistics.queue_state import fetch_queue_state

_operation = partial(operation, tag="Installation")

# ---------------------------------------------------------------------------------------------------------------------
# Workers and plug-ins


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


def _read_docstring(thing: Any) -> str | None:
    # Its own: that of a base says nothing of it.
    text = thing.__dict__.get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    return inspect.cleandoc(text) if text else None


class PluginFunction(Answer):
    """An audit or a function; an expression names it as `python:` and its name."""

    name: str = Field(description="The name that flows use.")
    description: Annotated[str | None, BeforeValidator(_read_docstring)] = Field(
        validation_alias="function", description="The author’s description."
    )
    parameters: Annotated[list[str], BeforeValidator(lambda function: list(inspect.signature(function).parameters))] = (
        Field(validation_alias="function", description="The variables that it takes.")
    )
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

    kind: Annotated[
        Literal["output_type", "audit", "function"], BeforeValidator(lambda kind: kind.replace(" ", "_"))
    ] = Field(validation_alias=AliasPath("use", "kind"), description="The kind of plug-in.")
    name: str = Field(validation_alias=AliasPath("use", "name"), description="The name.")
    flow: str = Field(validation_alias=AliasPath("flow", "name"), description="The name of the flow.")
    place: str = Field(validation_alias=AliasPath("use", "place"), description="Where in the flow, in words.")
    is_live: bool = Field(description="Whether the live version uses it; else only what is being edited.")


class Plugins(Answer):
    """What plug-ins register."""

    output_types: list[OutputType] = Field(description="By name.")
    audits: list[PluginFunction] = Field(description="By name.")
    functions: list[PluginFunction] = Field(description="By name.")
    missing: list[MissingPlugin] = Field(description="Ordered by flow title.")
    problems: list[str] = Field(description="Modules that could not be loaded.")


def _describe_type(known: plugins.OutputType) -> OutputType:
    schema, problems = None, []
    try:
        schema = schema_of_type(known.model)
    except SpecError as error:
        problems = [str(problem) for problem in error.problems]
    return OutputType(
        name=known.name,
        description=_read_docstring(known.model),
        has_audit=callable(getattr(known.model, "audit", None)),
        output_schema=schema,
        problems=problems,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The caller


class Token(Answer):
    """The token that a request was sent with."""

    name: str = Field(description="What its owner calls it.")
    scope: TokenScope = Field(description="What it may do at most, besides the permissions of its owner.")
    expires_at: datetime | None = Field(validation_alias="expiry", description="UTC; null if it does not expire.")


class Account(Answer):
    """The caller of a request."""

    username: str = Field(description="The name of the account.")
    permissions: list[str] = Field(description="What the account may do with flows and runs, such as `runs.add_run`.")
    token: Token | None = Field(description="The token; null for a session of the pages.")


# ---------------------------------------------------------------------------------------------------------------------
# Operations


class Installation(ApiView):
    """What is asked of the installation itself."""

    @_operation("GET workers", "List worker processes", READ_RUNS)
    def list_workers(self, request: Request) -> Workers:
        """Workers with and without a recent heartbeat, the queue, and the model providers: as on the page of the
        workers.
        """
        found = fetch_queue_state()
        return Workers.model_validate({"items": found.workers, "queue": found, "providers": describe_providers()})

    @_operation("GET plugins", "List the plug-ins that flows can name", READ_FLOWS)
    def list_plugins(self, request: Request) -> Plugins:
        """Output types, audits and functions that Python modules register; names that flows use and that are not
        registered; and modules that could not be loaded.
        """
        registry = plugins.registry
        return Plugins.model_validate(
            {
                "output_types": [_describe_type(one) for _, one in sorted(registry.output_types.items())],
                "audits": [one for _, one in sorted(registry.audits.items())],
                "functions": [one for _, one in sorted(registry.functions.items())],
                "missing": [found for found in fetch_flow_uses() if found.use.is_missing()],
                "problems": checks.plugin_errors,
            }
        )

    @_operation("GET me", "Get the current user", None)
    def get_me(self, request: Request) -> Account:
        """The account and the token that this request is let in by."""
        granted = request.user.get_all_permissions()
        return Account.model_validate(
            {
                "username": request.user.get_username(),
                "permissions": sorted(name for name in granted if name.startswith(("flows.", "runs."))),
                "token": request.auth if isinstance(request.auth, ApiToken) else None,
            }
        )
