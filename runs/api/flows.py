"""Flows: list, read, create, change, archive and delete them, and how this installation runs them.

Each change is one transaction, and has its entry in the admin's history of the flow.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.db import transaction
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from pydantic import AfterValidator, BeforeValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response

from flows.admin.protection import is_referred_to
from flows.engine.errors import Problem
from flows.engine.spec import MAX_TOKEN_BUDGET, FlowSpec
from flows.models import MAX_KEEP_DAYS
from flows.models import Flow as FlowRow
from flows.models import FlowVersion as VersionRow
from flows.publishing import NOTE_LENGTH, publish_flow
from runs.api.access import ADD_FLOWS, CHANGE_FLOWS, DELETE_FLOWS, READ_FLOWS, find_user, require_permission
from runs.api.base import (
    DELETED,
    ETAG,
    IF_MATCH,
    LOCATION,
    ApiView,
    example,
    header,
    operation,
)
from runs.api.conditions import make_tag, require_other, require_unchanged
from runs.api.flow_documents import (
    FLOW_BODY,
    FLOW_PARSERS,
    Flow,
    ListedFlow,
    StoredFlow,
    WholeFlow,
    list_tags,
    load_whole_flow,
    parse_flow_body,
    select_flows,
)
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_rows
from runs.api.problems import Conflict, InvalidBody
from runs.api.run_bodies import Budget
from runs.documents.base import (
    WHOLE,
    Amount,
    Answer,
    Body,
    Flag,
    Name,
    Nothing,
    Omitted,
    Page,
    Paging,
    Query,
    refuse_unstorable,
)
from runs.retention.policy import effective_policy

# ---------------------------------------------------------------------------------------------------------------------
# Parameters

Note = Annotated[
    str,
    Field(max_length=NOTE_LENGTH),
    AfterValidator(refuse_unstorable),
    BeforeValidator(lambda text: " ".join(text.split())),
]


class FlowFilters(Paging):
    """Which flows are listed, and how."""

    archived: Literal["true", "false", "all"] = Field(
        "false", description="Only flows in the archive, only others, or all."
    )
    input_schema: Flag = Field(False, description="Whether each flow comes with its input schema.")
    before: Name | Omitted = Field(
        None, description="Only flows before this name. Follow `next` instead of building it."
    )
    after: Name | Omitted = Field(None, description="Only flows after this name. Follow `next` instead of building it.")


class NewFlowQuery(Query):
    """What is said of a new flow."""

    note: Note = Field("", description="A short note on the new version.")


class ChangedFlowQuery(NewFlowQuery):
    """What is said of a flow that changes."""

    make_live: Flag = Field(
        False, description="Whether new runs use it from now on. The first version of a flow is always live."
    )


_operation = partial(operation, tag="Flows")
_ARCHIVED: dict[str, dict[str, bool]] = {"false": {"is_archived": False}, "true": {"is_archived": True}, "all": {}}

IF_NONE_MATCH = header("If-None-Match", str, "`*` creates the flow only if no flow has this name (else 412).")
STORED_TAG = header("ETag", str, "That of the flow as it is read now.", 200, 201)


_SETTINGS_EXAMPLE = example("Of an example flow", {"max_runs_in_flight": 20})
MAX_RUNS_IN_FLIGHT = 2**31 - 1
_RUNS = "Maximum number of concurrent runs; others wait in the queue. null: no limit."
_TOKENS = "Once all runs of the flow have used this many tokens, no more calls are made until the next period."
_COST = "The same for the cost of all runs of the flow, in USD."
_PERIOD = "How long the two budgets last; days and months are in UTC."
_DAYS = "Days from the end of a run until it is deleted. 0: never. null: the default of this installation."
_OUTPUT_DAYS = (
    "Days from the end of a run until its inputs and outputs are deleted; its figures are kept. At most `keep_days`. "
    "0: with the run. null: the default of this installation."
)

PeriodName = Literal["day", "month"]
_Runs = Annotated[int, Field(ge=1, le=MAX_RUNS_IN_FLIGHT), WHOLE]
_Tokens = Annotated[int, Field(ge=1, le=MAX_TOKEN_BUDGET), WHOLE]
Days = Annotated[int, Field(ge=0, le=MAX_KEEP_DAYS), WHOLE]


class ChangedSettings(Body):
    """Settings of a flow that change. What is left out stays as it is."""

    max_runs_in_flight: _Runs | None = Field(None, description=_RUNS)
    total_token_budget: _Tokens | None = Field(None, description=_TOKENS)
    total_cost_budget: Budget | None = Field(None, description=_COST)
    budget_period: PeriodName = Field("month", description=_PERIOD)
    keep_days: Days | None = Field(None, description=_DAYS)
    keep_outputs_days: Days | None = Field(None, description=_OUTPUT_DAYS)


class Retention(Answer):
    """For how long runs are kept; null is for ever."""

    keep_days: int | None = Field(description="Days from the end of a run until it is deleted.")
    keep_outputs_days: int | None = Field(
        description="Days until its inputs and outputs are deleted, if that is earlier."
    )


class FlowSettings(Answer):
    """How this installation runs a flow. No part of its definition: a change makes no version and holds at once."""

    flow: str = Field(validation_alias="name", description="The name of the flow.")
    max_runs_in_flight: int | None = Field(description=_RUNS)
    total_token_budget: int | None = Field(description=_TOKENS)
    total_cost_budget: Amount | None = Field(description=_COST)
    budget_period: PeriodName = Field(description=_PERIOD)
    keep_days: int | None = Field(description=_DAYS)
    keep_outputs_days: int | None = Field(description=_OUTPUT_DAYS)
    retention: Retention = Field(description="The values in effect: these, or the defaults of the installation.")
    updated_at: datetime = Field(description="When the flow was last saved, in UTC.")


class Flows(ApiView):
    """Flows as documents."""

    parser_classes = FLOW_PARSERS

    @_operation("GET flows", "List flows", READ_FLOWS)
    def list_flows(self, request: Request, query: FlowFilters) -> Page[ListedFlow]:
        """By name, without definitions."""
        # The text of a schema lies within that of the definition: databases can't look inside.
        flows = select_flows(*(["live_version__spec"] if query.input_schema else []))
        flows = flows.filter(**_ARCHIVED[query.archived])
        page = fetch_rows(flows, query, columns=["name"])
        for row in page.rows if query.input_schema else ():
            row["input_schema"] = (row["live_version__spec"] or {}).get("input_schema")
        return build_page(Page[ListedFlow], request, page)

    @_operation(
        "POST flows",
        "Create a flow",
        ADD_FLOWS,
        parameters=[STORED_TAG, LOCATION],
        body=FLOW_BODY,
        answers={201: StoredFlow},
    )
    @idempotent
    def create_flow(self, request: Request, query: NewFlowQuery) -> HttpResponseBase:
        """From the same document as a flow file, in JSON or YAML. Its first version is live at once."""
        return _answer_stored(request, create_flow(request, parse_flow_body(request), query.note), is_new=True)

    @_operation("GET flows/<slug:name>", "Read a flow", READ_FLOWS, has_etag=True)
    def get_flow(self, request: Request, name: str) -> WholeFlow:
        """With the definitions of its live and of its latest version."""
        return load_whole_flow(name)

    @_operation(
        "PUT flows/<slug:name>",
        "Change a flow, or create it",
        CHANGE_FLOWS,
        parameters=[IF_MATCH, IF_NONE_MATCH, STORED_TAG, LOCATION],
        body=FLOW_BODY,
        answers={200: StoredFlow, 201: StoredFlow},
    )
    def put_flow(self, request: Request, name: str, query: ChangedFlowQuery) -> Response:
        """Makes the flow what the document says. If that differs from the latest version, a new one is made; else
        nothing changes, so that a pipeline may send all its flow files each time. A flow that is not there yet is
        created (201). The name in the document is the name in the address.
        """
        spec = parse_flow_body(request)
        if spec.name != name:
            sentence = f"“name” must be “{name}”, as in the address; got “{spec.name}”. Flows keep their names."
            raise InvalidBody([Problem("/name", sentence)])
        stored, is_new = store_flow(request, spec, query)
        return _answer_stored(request, stored, is_new=is_new)

    @_operation(
        "DELETE flows/<slug:name>",
        "Delete a flow",
        DELETE_FLOWS,
        parameters=[IF_MATCH],
        answers=DELETED,
        problems=[409],
    )
    @transaction.atomic
    def delete_flow(self, request: Request, name: str) -> HttpResponse:
        """Deletes a flow without runs, with all its versions. A flow with runs can be archived."""
        # A run that is started meanwhile waits, and then finds no flow.
        flow = lock_read_flow(request, name)
        if is_referred_to(flow):
            raise Conflict("has-runs", f"“{name}” has runs, so it can’t be deleted. Archive the flow instead.")
        log_change(request, flow, "Deleted through the API, with all its versions.", action=DELETION)
        flow.delete()
        return HttpResponse(status=HTTPStatus.NO_CONTENT)


class FlowStates(ApiView):
    """What no document holds: whether a flow is in the archive, and its settings."""

    @_operation("POST flows/<slug:name>/archive", "Archive a flow", CHANGE_FLOWS, parameters=[IF_MATCH])
    def archive_flow(self, request: Request, name: str, body: Nothing) -> Flow:
        """No new runs can be started; runs under way go on, and history stays."""
        return change_flow(request, name, lambda flow: flow.set_archived(True))

    @_operation("POST flows/<slug:name>/take-out", "Unarchive a flow", CHANGE_FLOWS, parameters=[IF_MATCH])
    def take_flow_out(self, request: Request, name: str, body: Nothing) -> Flow:
        """New runs can be started again."""
        return change_flow(request, name, lambda flow: flow.set_archived(False))

    @_operation("GET flows/<slug:name>/settings", "Get the settings of a flow", READ_FLOWS, parameters=[ETAG])
    def get_flow_settings(self, request: Request, name: str) -> Annotated[Response, FlowSettings]:
        """The runs that may be in flight, budgets of all runs together, and how long runs are kept. None of that is in
        the definition, and no flow file holds it.
        """
        return _answer_settings(get_object_or_404(FlowRow, name=name))

    @_operation(
        "PATCH flows/<slug:name>/settings",
        "Change the settings of a flow",
        CHANGE_FLOWS,
        parameters=[IF_MATCH, ETAG],
        examples=[_SETTINGS_EXAMPLE],
    )
    @transaction.atomic
    def change_flow_settings(
        self, request: Request, name: str, body: ChangedSettings
    ) -> Annotated[Response, FlowSettings]:
        """What the body names is set, null takes it away, and all else stays. It holds at once, also for runs that are
        queued, and makes no version.
        """
        flow = get_object_or_404(FlowRow.objects.select_for_update(), name=name)
        require_unchanged(request, "settings-changed", _answer_settings(flow)["ETag"])
        _change_settings(request, flow, body)
        # As it will be read: an amount has as many places as its column.
        flow.refresh_from_db()
        return _answer_settings(flow)


def _change_settings(request: Request, flow: FlowRow, body: ChangedSettings) -> None:
    """Store what differs. Raises ``InvalidBody`` where the settings don't fit together."""
    changes = {}
    for name in type(body).model_fields:
        old, new = getattr(flow, name), getattr(body, name)
        if name in body.model_fields_set and old != new:
            changes[name] = f"{name} {'none' if old is None else old} → {'none' if new is None else new}"
            setattr(flow, name, new)
    is_about_days = not {"keep_days", "keep_outputs_days"}.isdisjoint(changes)
    if is_about_days and flow.keep_days and flow.keep_outputs_days and flow.keep_outputs_days > flow.keep_days:
        sentence = f"Outputs can’t be kept longer than their runs: send at most {flow.keep_days:,} days, or null."
        raise InvalidBody([Problem("/keep_outputs_days", sentence)])
    if changes:
        flow.save()
        log_change(request, flow, f"Changed through the API: {', '.join(changes.values())}.")


def _answer_settings(flow: FlowRow) -> Response:
    settings = FlowSettings.model_validate({**vars(flow), "retention": effective_policy(flow)})
    # What changes in the definition changes no setting.
    tag = make_tag(settings.model_dump_json(exclude={"updated_at"}).encode())
    return Response(settings, headers={"ETag": tag})


# ---------------------------------------------------------------------------------------------------------------------
# Changes


@transaction.atomic
def create_flow(request: Request, spec: FlowSpec, note: str) -> StoredFlow:
    """Store a new flow, whose first version is live. Raises ``Conflict`` if the name is taken."""
    # Another request that takes the name at the same moment waits here, or is waited for.
    _, is_new = FlowRow.objects.get_or_create(name=spec.name)
    if not is_new:
        sentence = f"A flow “{spec.name}” already exists. To change it, send a PUT request to its address."
        raise Conflict("name-taken", sentence)
    return _store_first_version(request, spec, note)


@transaction.atomic
def store_flow(request: Request, spec: FlowSpec, query: ChangedFlowQuery) -> tuple[StoredFlow, bool]:
    """Make a flow what ``spec`` says: a new version if that differs from the latest, a new flow if there is none.

    Gives the flow, and whether it is new. Raises ``ApiProblem`` if the request's conditions aren't met,
    ``PermissionDenied`` if the flow is new and the user may add none.
    """
    flow, is_new = FlowRow.objects.select_for_update().get_or_create(name=spec.name)
    tags = [] if is_new else list_tags(load_whole_flow(spec.name))
    require_other(request, "flow-exists", *tags)
    require_unchanged(request, "flow-changed", *tags)
    if is_new:
        require_permission(request, "flows.add_flow")
        return _store_first_version(request, spec, query.note), True
    latest = flow.versions.first()
    version = publish_flow(spec=spec, by=find_user(request), note=query.note)
    is_made = version != latest
    messages = []
    if is_made:
        messages.append(f"Saved version {version.number} through the API.")
    if query.make_live and version.flow.live_version_id != version.pk:
        version.flow.make_live(version)
        messages.append(f"Made version {version.number} live.")
    if messages:
        log_change(request, version.flow, " ".join(messages))
    return _load_stored(spec.name, version.number if is_made else None), False


def _store_first_version(request: Request, spec: FlowSpec, note: str) -> StoredFlow:
    version = publish_flow(spec=spec, by=find_user(request), note=note)
    log_change(request, version.flow, "Created through the API.", action=ADDITION)
    return _load_stored(spec.name, version.number)


def _load_stored(name: str, made_version: int | None) -> StoredFlow:
    # Within the transaction: what another request saves a moment later is not answered as if it were this.
    return StoredFlow.model_validate({**dict(load_whole_flow(name)), "made_version": made_version})


def _answer_stored(request: Request, stored: StoredFlow, *, is_new: bool) -> Response:
    headers = {"ETag": list_tags(stored)[0]}
    if is_new:
        headers["Location"] = request.build_absolute_uri(reverse("api:get_flow", args=[stored.name]))
    return Response(stored, HTTPStatus.CREATED if is_new else HTTPStatus.OK, headers=headers)


@transaction.atomic
def change_flow(request: Request, name: str, change: Callable[[FlowRow], str]) -> Flow:
    """Do something to a flow that makes no version, and give it without its definition.

    ``change`` gives what the history says of it, nothing if all was so before. Raises ``Http404``, and ``ApiProblem``
    if the request's ``If-Match`` isn't met.
    """
    flow = lock_read_flow(request, name)
    if message := change(flow):
        log_change(request, flow, message)
    return Flow.model_validate(select_flows().get(pk=flow.pk))


def lock_read_flow(request: Request, name: str) -> FlowRow:
    """The flow, locked, as the request's ``If-Match`` says that it was read."""
    flow = get_object_or_404(FlowRow.objects.select_for_update(), name=name)
    require_unchanged(request, "flow-changed", *list_tags(load_whole_flow(name)))
    return flow


def log_change(request: Request, row: FlowRow | VersionRow, message: str, *, action: int = CHANGE) -> None:
    """Add an entry to the admin's history of a flow or version."""
    LogEntry.objects.log_actions(find_user(request).pk, [row], action, message, single_object=True)
