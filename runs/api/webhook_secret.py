"""By what receivers of a flow's webhook check messages: reading its secret, and taking another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.http import Http404, HttpResponse
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from flows.models import Flow
from flows.webhook_secret import OVERLAP, WebhookSigner
from runs.api.access import CHANGE_FLOWS, Need
from runs.api.body_fields import FlagField
from runs.api.flows_schema import NAME
from runs.api.idempotency import answer_once
from runs.api.problems import Conflict
from runs.api.reading import StrictSerializer, read_body
from runs.api.run_actions_schema import REPLAYED
from runs.api.schema_parts import IDEMPOTENCY_KEY, problem_responses
from runs.api.view import ApiView
from runs.api.webhook_deliveries_schema import TAGS
from runs.webhooks.secrets import change_secret, find_signer

_USE = (
    "Give it to a library for Standard Webhooks, which checks the signature of a message with it. Keep it like a "
    "password: whoever has it can write such messages. It changes when somebody changes it, or the secret key of the "
    "installation; for a while messages are signed with that of before, too."
)
_CHANGE = (
    f"Messages are signed with the new secret at once, and for {OVERLAP.days} days with that of before, too: give "
    "receivers the new one until `earlier_until`. While an earlier one still counts, another change would end it at "
    "once; that is refused with 409 unless `again` is true."
)


class WebhookSecretSerializer(serializers.Serializer[Any]):
    """By what receivers check that a message is one of ToolFlow’s."""

    secret = serializers.RegexField(
        r"^whsec_[A-Za-z0-9+/]{43}=$", help_text="The secret as libraries for Standard Webhooks take it."
    )
    earlier_until = serializers.DateTimeField(
        allow_null=True,
        help_text="UTC. Until then messages are signed with the secret from before the last change, too; null if that "
        "has ended, or there was no change.",
    )


class SecretChangeSerializer(StrictSerializer):
    """How a secret is changed."""

    again = FlagField(
        required=False, help_text="Whether a secret from before the last change that still counts may end at once."
    )


class FlowWebhookSecret(ApiView):
    """The secret of a flow."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": CHANGE_FLOWS}

    @extend_schema(
        operation_id="getFlowWebhookSecret",
        tags=TAGS,
        summary="Read the secret of a flow’s own webhook",
        description="Messages to the address in the settings of the flow are signed with it. "
        f"{_USE} Takes the scope `edit`: it is for those who may change the address.",
        parameters=[NAME],
        responses={200: OpenApiResponse(WebhookSecretSerializer, "The flow’s secret."), **problem_responses(404)},
    )
    def get(self, request: Request, name: str) -> Response:
        """The secret."""
        flow_id = Flow.objects.filter(name=name).values_list("pk", flat=True).first()
        if flow_id is None:
            raise Http404
        secrets = WebhookSigner.of_flow(flow_id).read_secrets()
        return Response({"secret": secrets.current, "earlier_until": secrets.changes_until})


class FlowWebhookSecretChange(ApiView):
    """Another secret for a flow."""

    needs: ClassVar[Mapping[str, Need]] = {"POST": CHANGE_FLOWS}

    @extend_schema(
        operation_id="changeFlowWebhookSecret",
        tags=TAGS,
        summary="Change the secret of a flow’s own webhook",
        description=f"{_CHANGE} Takes the scope `edit`.",
        parameters=[NAME, IDEMPOTENCY_KEY, REPLAYED],
        request=SecretChangeSerializer,
        responses={
            200: OpenApiResponse(WebhookSecretSerializer, "The flow’s new secret."),
            **problem_responses(404, 409),
        },
    )
    def post(self, request: Request, name: str) -> Response:
        """Take another one; 409 if that would end one that receivers may still have."""
        flow = Flow.objects.filter(name=name).first()
        if flow is None:
            raise Http404
        return _change(request, flow)


def _change(request: Request, flow: Flow) -> Response:
    """Take another secret, or tell again which one that was. Raises ``Conflict``."""
    is_meant = read_body(SecretChangeSerializer, request).get("again", False)
    signer = find_signer(flow)

    def change() -> HttpResponse:
        secrets = signer.read_secrets()
        if not is_meant and (until := secrets.changes_until):
            raise Conflict(
                "secret-changed-lately",
                f"The secret was changed lately already: that of before counts until {until:%Y-%m-%d %H:%M} UTC, and "
                "another change ends it at once; say “again” if that is meant.",
            )
        if not change_secret(flow, number=secrets.number):
            raise Conflict("secret-changed", "Somebody else changed the secret in this moment; read which one it is.")
        # What is stored under the key of the request: the secret itself is stored nowhere.
        until = signer.read_secrets().changes_until
        assert until is not None, "It was changed just now."
        made = {"signer": signer.name, "number": secrets.number + 1, "until": until.isoformat()}
        return HttpResponse(json.dumps(made))

    answer = answer_once(request, lambda: change)
    assert isinstance(answer, HttpResponse), "Nothing here is a stream."
    stored = json.loads(answer.content)
    document = {
        "secret": WebhookSigner(stored["signer"]).derive_secret(stored["number"]),
        "earlier_until": datetime.fromisoformat(stored["until"]),
    }
    headers = {name: answer[name] for name in ("Idempotency-Replayed",) if name in answer}
    return Response(document, headers=headers)


urls: list[URLPattern] = [
    path("flows/<slug:name>/webhook-secret", FlowWebhookSecret.as_view(), name="flow-webhook-secret"),
    path(
        "flows/<slug:name>/webhook-secret/change",
        FlowWebhookSecretChange.as_view(),
        name="flow-webhook-secret-change",
    ),
]
