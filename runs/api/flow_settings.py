"""How this installation runs a flow: what the editor keeps beside the definition."""

from __future__ import annotations

from django.db import transaction
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow as FlowRow
from runs.api.access import CHANGE_FLOWS, READ_FLOWS
from runs.api.base import ETAG, IF_MATCH, ApiView, make_tag, operation
from runs.api.flow_changes import log_change, require_unchanged
from runs.api.problems import InvalidBody
from runs.api.schemas.flows import ChangedSettings, FlowSettings
from runs.retention.policy import effective_policy

EXAMPLE = OpenApiExample("Of an example flow", value={"max_runs_in_flight": 20}, request_only=True)


class FlowSettingsDetail(ApiView):
    """``/flows/<name>/settings``"""

    @operation(
        "getFlowSettings",
        "Get the settings of a flow",
        READ_FLOWS,
        tag="Flows",
        parameters=[ETAG],
        answers={200: FlowSettings},
    )
    def get(self, request: Request, name: str) -> Response:
        """The runs that may be in flight, budgets of all runs together, and how long runs are kept. None of that is in
        the definition, and no flow file holds it.
        """
        return _answer(get_object_or_404(FlowRow, name=name))

    @operation(
        "changeFlowSettings",
        "Change the settings of a flow",
        CHANGE_FLOWS,
        tag="Flows",
        parameters=[IF_MATCH, ETAG],
        examples=[EXAMPLE],
        answers={200: FlowSettings},
    )
    @transaction.atomic
    def patch(self, request: Request, name: str, body: ChangedSettings) -> Response:
        """What the body names is set, null takes it away, and all else stays. It holds at once, also for runs that are
        queued, and makes no version.
        """
        flow = get_object_or_404(FlowRow.objects.select_for_update(), name=name)
        require_unchanged(request, "settings-changed", _answer(flow)["ETag"])
        _change(request, flow, body)
        # As it will be read: an amount has as many places as its column.
        flow.refresh_from_db()
        return _answer(flow)


def _change(request: Request, flow: FlowRow, body: ChangedSettings) -> None:
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


def _answer(flow: FlowRow) -> Response:
    settings = FlowSettings.model_validate({**vars(flow), "retention": effective_policy(flow)})
    # What changes in the definition changes no setting.
    tag = make_tag(settings.model_dump_json(exclude={"updated_at"}).encode())
    return Response(settings, headers={"ETag": tag})


urls: list[URLPattern] = [path("flows/<slug:name>/settings", FlowSettingsDetail.as_view(), name="flow-settings")]
