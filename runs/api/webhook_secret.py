"""By what receivers of webhooks check messages: one's own secret, and those of flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import Http404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from flows.models import Flow
from flows.webhook_secret import WebhookSigner
from runs.api.access import CHANGE_FLOWS, START_RUNS, Need
from runs.api.flow_reading import find_user
from runs.api.flows_schema import NAME
from runs.api.schema_parts import problem_responses
from runs.api.view import ApiView
from runs.api.webhook_deliveries_schema import TAGS

_USE = (
    "Give it to a library for Standard Webhooks, which checks the signature of a message with it. Keep it like a "
    "password: whoever has it can write such messages. It changes when somebody changes it, or the secret key of the "
    "installation; for a while messages are signed with that of before, too."
)


class WebhookSecretSerializer(serializers.Serializer[Any]):
    """By what receivers check that a message is one of ToolFlow’s."""

    secret = serializers.RegexField(
        r"^whsec_[A-Za-z0-9+/]{43}=$", help_text="The secret as libraries for Standard Webhooks take it."
    )


class OwnWebhookSecret(ApiView):
    """The secret of whoever asks."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": START_RUNS}

    @extend_schema(
        operation_id="getWebhookSecret",
        tags=TAGS,
        summary="Read the secret of your own webhooks",
        description="Messages to the `webhook_url` of runs that you start are signed with it; nobody else’s are. "
        f"{_USE} Takes the scope `run`.",
        responses={200: OpenApiResponse(WebhookSecretSerializer, "Your secret.")},
    )
    def get(self, request: Request) -> Response:
        """The secret."""
        return _answer(WebhookSigner.of_user(find_user(request).pk))


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
        return _answer(WebhookSigner.of_flow(flow_id))


def _answer(signer: WebhookSigner) -> Response:
    return Response({"secret": signer.secret})


urls: list[URLPattern] = [
    path("webhook-secret", OwnWebhookSecret.as_view(), name="webhook-secret"),
    path("flows/<slug:name>/webhook-secret", FlowWebhookSecret.as_view(), name="flow-webhook-secret"),
]
