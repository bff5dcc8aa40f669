"""How this installation runs a flow: what the editor keeps beside the definition."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.http import Http404
from django.urls import URLPattern, path
from django.utils.crypto import salted_hmac
from django.utils.http import quote_etag
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.json_values import dump_json
from flows.forms import OPERATIONAL_FIELDS, FlowForm
from flows.models import Flow
from flows.publishing import raise_revision
from runs.api.access import CHANGE_FLOWS, SEE_FLOWS
from runs.api.flow_changes import Condition
from runs.api.flow_reading import find_user
from runs.api.flow_settings_schema import (
    SETTINGS_ETAG,
    SETTINGS_IF_MATCH,
    ChangedSettingsSerializer,
    FlowSettingsSerializer,
)
from runs.api.flows_schema import NAME, TAGS
from runs.api.problems import InvalidBody
from runs.api.reading import read_body
from runs.api.schema_parts import problem_responses
from runs.api.schemas.base import format_amount
from runs.api.view import ApiView
from runs.retention.policy import read_policy

_CHANGED = "The settings have changed since you read them. Read them again."


class _SettingsForm(FlowForm):
    """The part of the editor's form that is no definition: both are held to the same rules."""

    name = None  # type: ignore[assignment]  # so a form does without a field
    input_schema = None  # type: ignore[assignment]
    redact = None  # type: ignore[assignment]

    class Meta(FlowForm.Meta):
        fields = OPERATIONAL_FIELDS


class FlowSettingsView(ApiView):
    """The settings of one flow."""

    needs: ClassVar[Any] = {"GET": SEE_FLOWS, "PATCH": CHANGE_FLOWS}

    @extend_schema(
        operation_id="getFlowSettings",
        tags=TAGS,
        summary="Read how a flow is run here",
        description="The runs that may be in flight, budgets of all runs together, and how long runs are "
        "kept. None of that is in the definition, and no flow file holds it.",
        parameters=[NAME, SETTINGS_ETAG],
        responses={200: OpenApiResponse(FlowSettingsSerializer, "The settings."), **problem_responses(404)},
    )
    def get(self, request: Request, name: str) -> Response:
        """The settings."""
        flow = Flow.objects.filter(name=name).first()
        if flow is None:
            raise Http404
        return _answer(flow)

    @extend_schema(
        operation_id="changeFlowSettings",
        tags=TAGS,
        summary="Change how a flow is run here",
        description="What the body names is set, null takes it away, and all else stays. It holds at once, also for "
        "runs that are queued, and makes no version.",
        parameters=[NAME, SETTINGS_IF_MATCH, SETTINGS_ETAG],
        request=ChangedSettingsSerializer,
        examples=[
            OpenApiExample(
                "Of an example flow",
                value={"max_runs_in_flight": 20},
                request_only=True,
            )
        ],
        responses={200: OpenApiResponse(FlowSettingsSerializer, "The settings now."), **problem_responses(404, 412)},
    )
    def patch(self, request: Request, name: str) -> Response:
        """Set what the body names."""
        condition = Condition(request.headers.get("If-Match"))
        values = read_body(ChangedSettingsSerializer, request)
        with transaction.atomic():
            # Whoever saves the flow meanwhile waits.
            flow = Flow.objects.select_for_update().filter(name=name).first()
            if flow is None:
                raise Http404
            condition.require_tag(_make_tag(flow), kind="settings-changed", sentence=_CHANGED)
            _change(flow, values, find_user(request).pk)
            # As it will be read: an amount has as many places as its column.
            flow.refresh_from_db()
        return _answer(flow)


def _change(flow: Flow, values: dict[str, Any], user_id: int) -> None:
    """Store what differs. Raises ``InvalidBody`` where the settings don't fit together."""
    before = {name: getattr(flow, name) for name in OPERATIONAL_FIELDS}
    wanted = {name: values[name] if name in values else before[name] for name in OPERATIONAL_FIELDS}
    form = _SettingsForm({name: "" if value is None else value for name, value in wanted.items()}, instance=flow)
    if not form.is_valid():
        raise InvalidBody(
            [Problem(f"/{name}", str(one)) for name, sentences in form.errors.items() for one in sentences]
        )
    changes = [
        f"{name} {_tell(name, before[name])} → {_tell(name, getattr(flow, name))}"
        for name in OPERATIONAL_FIELDS
        if getattr(flow, name) != before[name]
    ]
    if not changes:
        return
    form.save()
    # Pages of the editor that are open would write what they were made of.
    raise_revision(flow=flow)
    said = f"Changed through the API: {', '.join(changes)}."
    LogEntry.objects.log_actions(user_id, [flow], CHANGE, said, single_object=True)


def _tell(name: str, value: Any) -> str:
    if value in (None, ""):
        return "none"
    return str(value)


def _answer(flow: Flow) -> Response:
    return Response(_describe(flow), headers={"ETag": _make_tag(flow)})


def _make_tag(flow: Flow) -> str:
    """The ETag of the settings."""
    values = {name: getattr(flow, name) for name in OPERATIONAL_FIELDS}
    said = dump_json({**values, "flow": flow.pk, "total_cost_budget": _format_budget(flow)})
    return quote_etag(salted_hmac("runs.api.flow_settings", said, algorithm="sha256").hexdigest())


def _describe(flow: Flow) -> dict[str, Any]:
    policy = read_policy(flow)
    return {
        "flow": flow.name,
        **{name: getattr(flow, name) for name in OPERATIONAL_FIELDS},
        "total_cost_budget": _format_budget(flow),
        "retention": {"keep_days": policy.keep_days, "keep_outputs_days": policy.keep_outputs_days},
        "updated_at": flow.updated_at,
    }


def _format_budget(flow: Flow) -> str | None:
    return None if flow.total_cost_budget is None else format_amount(flow.total_cost_budget)


urls: list[URLPattern] = [path("flows/<slug:name>/settings", FlowSettingsView.as_view(), name="flow-settings")]
