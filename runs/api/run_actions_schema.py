"""Bodies of requests that start runs, and what answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from flows.engine.json_values import describe_type
from flows.engine.spec import MAX_TIME_LIMIT, MAX_TOKEN_BUDGET
from runs.api.body_fields import (
    AmountField,
    LabelsField,
    ObjectField,
    PriorityField,
    TextField,
    VersionField,
    WebhookField,
    WholeNumberField,
)
from runs.api.problems import MAX_ERRORS
from runs.api.reading import StrictSerializer

MOST_RUNS = 1_000
"""Runs that one request may start."""


def _answer_header(name: str, kind: Any, description: str, *statuses: int) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, response=list(statuses))


LOCATION = _answer_header("Location", OpenApiTypes.URI, "Where the run is read.", 200, 202)
LOCATION_OF_MANY = _answer_header("Location", OpenApiTypes.URI, "Where the runs are listed.", 202)
RETRY_AFTER = _answer_header("Retry-After", OpenApiTypes.INT, "Seconds after which it may be read again.", 202)
APPLIED = _answer_header("Preference-Applied", OpenApiTypes.STR, "How long the request may have waited.", 200, 202)
REPLAYED = _answer_header(
    "Idempotency-Replayed",
    {"type": "string", "enum": ["true"]},
    "The answer is that to an earlier request with the same key.",
    200,
    201,
    202,
)

_INPUT = "What the run works on: an object that fits the input schema of the flow’s version."
_LABELS = (
    "Short texts by which the run is found again, at most 10. Those such as `bulk-7` are left to bulk actions, which "
    "give them to what they start."
)
_METADATA = "Whatever you want to keep with the run, at most 16 KB of JSON. ToolFlow only hands it on."


class RunOptionsSerializer(StrictSerializer):
    """What a run may be given besides its input. What is left out or null is as the flow’s version says."""

    priority = PriorityField(
        required=False, allow_null=True, help_text="Which queued runs begin first; `normal` if it is left out."
    )
    token_budget = WholeNumberField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MAX_TOKEN_BUDGET,
        help_text="Tokens that all attempts may use together.",
    )
    cost_budget = AmountField(required=False, allow_null=True, help_text="USD that all attempts may cost together.")
    time_limit = WholeNumberField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MAX_TIME_LIMIT,
        help_text="Seconds that the run may take from its start.",
    )
    webhook_url = WebhookField(
        required=False,
        allow_null=True,
        help_text="An http or https address that is told when the run has ended, signed with the "
        "secret of the installation, which an administrator knows.",
    )


class OneOfManySerializer(StrictSerializer):
    """One of many runs to be started."""

    input = ObjectField(help_text=_INPUT)
    labels = LabelsField(
        required=False, allow_null=True, help_text="Labels that this run has besides those of all; at most 10 together."
    )
    metadata = ObjectField(required=False, allow_null=True, help_text=_METADATA)

    def to_internal_value(self, data: Any) -> Any:
        """The values. Raises ``ValidationError`` with all that is wrong."""
        if not isinstance(data, Mapping):
            raise serializers.ValidationError(f"A run must be an object with an input, got {describe_type(data)}.")
        return super().to_internal_value(data)


class ManyRunsField(serializers.ListField):
    """The runs to be started."""

    child = OneOfManySerializer()
    default_error_messages = {
        "required": "This is missing.",
        "null": "This must not be null.",
        "not_a_list": "This must be a list of runs.",
    }

    def to_internal_value(self, data: Any) -> list[Any]:
        """The runs. Raises ``ValidationError`` that says what is wrong with each."""
        if isinstance(data, list) and not 1 <= len(data) <= MOST_RUNS:
            raise serializers.ValidationError(f"One request starts 1 to {MOST_RUNS:,} runs; these are {len(data):,}.")
        found: list[Any] = super().to_internal_value(data)
        return found

    def run_child_validation(self, data: list[Any]) -> list[Any]:
        """The runs. Stops where there are as many errors as one answer lists."""
        found: list[Any] = []
        wrong: dict[Any, Any] = {}
        count = 0
        for index, run in enumerate(data):
            try:
                found.append(self.child.run_validation(run))
            except serializers.ValidationError as error:
                wrong[index] = error.detail
                count += len(error.detail)
                if count >= MAX_ERRORS:
                    break
        if wrong:
            raise serializers.ValidationError(wrong)
        return found


class NewRunsSerializer(RunOptionsSerializer):
    """Many runs of one version to be started, all or none."""

    flow = TextField(min_length=1, max_length=100, help_text="The name of the flow.")
    version = WholeNumberField(
        required=False, allow_null=True, min_value=1, help_text="The number of a version; the live one if left out."
    )
    labels = LabelsField(required=False, allow_null=True, help_text="Labels that all of them have.")
    runs = ManyRunsField(
        min_length=1, max_length=MOST_RUNS, help_text="The runs, each with its input and what is its own."
    )


class RunAgainSerializer(RunOptionsSerializer):
    """What a run that is run again has other than before. What is left out stays as it was; null takes it away."""

    version = VersionField(
        required=False,
        help_text="`same` (if left out) for the version that the run had, `live` for the live one, or a number.",
    )
    input = ObjectField(required=False, help_text="Another input.")
    labels = LabelsField(required=False, allow_null=True, help_text=_LABELS)
    metadata = ObjectField(required=False, allow_null=True, help_text=_METADATA)


class NothingSerializer(StrictSerializer):
    """An empty object, or no body at all."""


class StartedRunSerializer(serializers.Serializer[Any]):
    """One of many runs that were started."""

    id = serializers.IntegerField(help_text="The number of the run.")
    url = serializers.URLField(help_text="Where the run is read.")


class StartedRunsSerializer(serializers.Serializer[Any]):
    """Runs that were started together."""

    flow = serializers.CharField(help_text="The name of the flow.")
    version = serializers.IntegerField(help_text="The number of the version that they run.")
    count = serializers.IntegerField(help_text="How many runs were started.")
    url = serializers.URLField(help_text="Where they are listed, with how they stand.")
    runs = serializers.ListField(child=StartedRunSerializer(), help_text="The runs, in the order of the request.")
