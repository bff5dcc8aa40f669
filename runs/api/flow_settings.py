"""How this installation runs a flow: what the editor keeps beside the definition."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import Http404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.forms import OPERATIONAL_FIELDS, FlowForm
from flows.models import Flow as FlowRow
from flows.publishing import raise_revision
from runs.api.access import CHANGE_FLOWS, READ_FLOWS
from runs.api.base import ApiView, operation
from runs.api.conditions import make_tag, require_unchanged
from runs.api.flow_changes import log_change
from runs.api.problems import InvalidBody
from runs.api.schemas.flows import ChangedSettings, FlowSettings
from runs.retention.policy import read_policy

IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` of the settings as they were read: if they have changed meanwhile, they are left alone "
    "(412).",
)
ETAG = OpenApiParameter(
    "ETag",
    str,
    OpenApiParameter.HEADER,
    response=[200],
    description="The same for the same settings, in double quotes: send it back as `If-Match`. What changes in the "
    "definition of the flow does not change it.",
)
EXAMPLE = OpenApiExample(
    "Of an example flow",
    value={"max_runs_in_flight": 20},
    request_only=True,
)


class _SettingsForm(FlowForm):
    """The part of the editor's form that is no definition: both are held to the same rules."""

    name = None  # type: ignore[assignment]  # so a form does without a field
    input_schema = None  # type: ignore[assignment]
    redact = None  # type: ignore[assignment]

    class Meta(FlowForm.Meta):
        fields = OPERATIONAL_FIELDS


class FlowSettingsDetail(ApiView):
    """``/flows/<name>/settings``"""

    @operation(
        "getFlowSettings",
        "Read how a flow is run here",
        tag="Flows",
        requires=READ_FLOWS,
        parameters=[ETAG],
        answers={200: OpenApiResponse(FlowSettings, "The settings.")},
        problems=[404],
    )
    def get(self, request: Request, name: str) -> Response:
        """The runs that may be in flight, budgets of all runs together, and how long runs are kept. None of that is in
        the definition, and no flow file holds it.
        """
        flow = FlowRow.objects.filter(name=name).first()
        if flow is None:
            raise Http404
        return _answer(flow)

    @operation(
        "changeFlowSettings",
        "Change how a flow is run here",
        tag="Flows",
        requires=CHANGE_FLOWS,
        parameters=[IF_MATCH, ETAG],
        body=ChangedSettings,
        examples=[EXAMPLE],
        answers={200: OpenApiResponse(FlowSettings, "The settings now.")},
        problems=[404, 412],
    )
    def patch(self, request: Request, name: str, body: ChangedSettings) -> Response:
        """What the body names is set, null takes it away, and all else stays. It holds at once, also for runs that are
        queued, and makes no version.
        """
        with transaction.atomic():
            flow = FlowRow.objects.select_for_update().filter(name=name).first()
            if flow is None:
                raise Http404
            require_unchanged(request, "settings-changed", _build_tag(_build_settings(flow)))
            _change(request, flow, body)
            # As it will be read: an amount has as many places as its column.
            flow.refresh_from_db()
        return _answer(flow)


def _change(request: Request, flow: FlowRow, body: ChangedSettings) -> None:
    """Store what differs. Raises ``InvalidBody`` where the settings don't fit together."""
    before = {name: getattr(flow, name) for name in OPERATIONAL_FIELDS}
    wanted = {**before, **{name: getattr(body, name) for name in body.model_fields_set}}
    form = _SettingsForm({name: "" if value is None else value for name, value in wanted.items()}, instance=flow)
    if not form.is_valid():
        raise InvalidBody([Problem(f"/{name}", str(one)) for name, errors in form.errors.items() for one in errors])
    changes = [
        f"{name} {_format_setting(name, before[name])} → {_format_setting(name, getattr(flow, name))}"
        for name in OPERATIONAL_FIELDS
        if getattr(flow, name) != before[name]
    ]
    if changes:
        form.save()
        # Pages of the editor that are open would write what they were made of.
        raise_revision(flow=flow)
        log_change(request, flow, f"Changed through the API: {', '.join(changes)}.")


def _format_setting(name: str, value: Any) -> str:
    if value in (None, ""):
        return "none"
    return str(value)


def _answer(flow: FlowRow) -> Response:
    settings = _build_settings(flow)
    return Response(settings, headers={"ETag": _build_tag(settings)})


def _build_settings(flow: FlowRow) -> FlowSettings:
    return FlowSettings.model_validate({**vars(flow), "retention": read_policy(flow)})


def _build_tag(settings: FlowSettings) -> str:
    return make_tag(settings.model_dump_json(exclude={"updated_at"}).encode())


urls: list[URLPattern] = [path("flows/<slug:name>/settings", FlowSettingsDetail.as_view(), name="flow-settings")]
