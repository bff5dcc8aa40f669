"""How this installation runs a flow: what no definition holds, and no flow file."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from django.db import transaction
from django.shortcuts import get_object_or_404
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.spec import MAX_TOKEN_BUDGET
from flows.models import MAX_KEEP_DAYS
from flows.models import Flow as FlowRow
from runs.api.access import CHANGE_FLOWS, READ_FLOWS
from runs.api.base import ETAG, IF_MATCH, ApiView, example, make_tag, operation
from runs.api.flows import log_change, require_unchanged
from runs.api.problems import InvalidBody
from runs.api.run_bodies import Budget
from runs.documents.base import WHOLE, Amount, Answer, Body
from runs.retention.policy import effective_policy

_operation = partial(operation, tag="Flows")
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


class SettingsOfFlows(ApiView):
    """Settings of flows."""

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
    if flow.keep_days and flow.keep_outputs_days and flow.keep_outputs_days > flow.keep_days:
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
