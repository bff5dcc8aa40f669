"""What this installation has: worker processes, plug-ins, the caller's own account, and the audit log."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from pydantic import AliasPath, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator
from rest_framework.request import Request

from flows import checks
from flows.engine import plugins
from flows.engine.errors import SpecError
from flows.engine.providers import Api
from flows.engine.typed_output import schema_of_type
from flows.plugin_use import fetch_flow_uses
from flows.providers import describe_providers
from runs.api.access import READ_AUDIT_LOG, READ_FLOWS, READ_RUNS
from runs.api.base import ApiView, operation
from runs.api.figures import Day, QueueState, Seconds
from runs.api.paging import build_page, cut_rows
from runs.audit_log.entries import KINDS, fetch_entries, filter_entries
from runs.audit_log.events import AuditAction
from runs.documents.base import Answer, Count, Name, Omitted, Page, RowPaging, TextOrNull
from runs.models import ApiToken, AuditEntry, TokenScope
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
# The audit log


class AuditLogEntry(Answer):
    """An action of a user, a command or the worker. Names are those of the time of the action."""

    list_name = "AuditLog"

    id: int = Field(ge=1, description="The number of the entry.")
    at: datetime = Field(description="When, in UTC.")
    actor: TextOrNull = Field(
        validation_alias="actor_name",
        description="The user, command or part of ToolFlow; null for a failed sign-in by an unknown name.",
    )
    token: TextOrNull = Field(validation_alias="token_name", description="The name of the API token, if one was used.")
    ip_address: TextOrNull = Field(
        validation_alias="address", description="Where the request came from; null without a request."
    )
    action: str = Field(description="The action: one of the values of the parameter `action`, or one added later.")
    object_kind: TextOrNull = Field(description="The kind of object, such as `flow` or `run`.")
    object_id: TextOrNull = Field(description="The number of the object.")
    object_label: TextOrNull = Field(description="The name of the object.")
    details: Mapping[str, Any] = Field(description="A few figures and names; no inputs, no outputs, no secrets.")
    request_id: TextOrNull = Field(description="The id of the request in the log.")


class AuditLogQuery(RowPaging):
    """Which entries are meant."""

    actor: Name | Omitted = Field(None, description="Only actions of the user with this name.")
    action: list[AuditAction] = Field(default_factory=list, description="Only these actions.")
    kind: Annotated[str, WithJsonSchema({"type": "string", "enum": list(KINDS)})] | Omitted = Field(
        None, description="Only actions on this kind of object."
    )
    id: Name | Omitted = Field(None, description="Only actions on the object with this number; requires `kind`.")
    since: Day | Omitted = Field(None, alias="from", description="Only actions on this day or later, in UTC.")
    until: Day | Omitted = Field(None, alias="to", description="Only actions on this day or earlier, in UTC.")

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str | None) -> str | None:
        if kind is not None and kind not in KINDS:
            raise ValueError(f"This must be one of {', '.join(KINDS)}.")
        return kind

    @field_validator("id")
    @classmethod
    def _check_id(cls, key: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("kind", "") is None:
            raise ValueError("“id” requires “kind”, such as kind=run.")
        return key

    @field_validator("until")
    @classmethod
    def _check_order(cls, until: date | None, info: ValidationInfo) -> date | None:
        since = info.data.get("since")
        if until is not None and since is not None and since > until:
            raise ValueError("This must not be before “from”.")
        return until

    def filter_entries(self) -> QuerySet[AuditEntry]:
        """The entries that match; days are in UTC."""
        return filter_entries(
            actor=self.actor or "",
            actions=self.action,
            kind=self.kind or "",
            object_id=self.id or "",
            since=None if self.since is None else datetime.combine(self.since, time.min, UTC),
            until=None if self.until is None else datetime.combine(self.until + timedelta(days=1), time.min, UTC),
        )


# ---------------------------------------------------------------------------------------------------------------------
# Operations


class Installation(ApiView):
    """What is asked of the installation itself."""

    @_operation("GET workers", "List worker processes", READ_RUNS)
    def list_workers(self, request: Request) -> Workers:
        """Those at work, those without a recent heartbeat, the queue, and the model providers: as on the page of the
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

    @operation("GET trail", "Read the audit log", READ_AUDIT_LOG, tag="Trail")
    def list_trail(self, request: Request, query: AuditLogQuery) -> Page[AuditLogEntry]:
        """Sign-ins, changes of flows, users, tokens and limits, runs started or cancelled, exports: the newest first.

        It takes the permission to see the audit log, which administrators have. To read on from where a script
        stopped, send `after` with the number of the last entry that it has.
        """
        # One more than the page holds tells whether there is another.
        limit = query.limit + 1
        entries = fetch_entries(query.filter_entries(), limit=limit, before=query.before, after=query.after)
        page = cut_rows(entries, query, is_descending=True)
        return build_page(Page[AuditLogEntry], request, page)
