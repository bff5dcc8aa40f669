"""Settings of a flow in bodies, and how the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from flows.engine.spec import MAX_TOKEN_BUDGET
from flows.models import MAX_KEEP_DAYS, BudgetPeriod
from runs.api.body_fields import AmountField, WholeNumberField, WordField
from runs.api.reading import StrictSerializer
from runs.api.schemas.base import AMOUNT_PATTERN as COST

MOST_RUNS = 2**31 - 1
"""Runs in flight that a number can say."""

SETTINGS_IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The `ETag` of the settings as they were read: if somebody has changed them meanwhile, they are left "
    "alone (412).",
)
SETTINGS_ETAG = OpenApiParameter(
    "ETag",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    response=[200],
    description="The same for the same settings, in double quotes: send it back as `If-Match`. What changes in the "
    "definition of the flow does not change it.",
)

_RUNS = "Most runs at work at one time; others wait in the queue. null: no limit."
_TOKENS = "Once all runs of the flow have used so many tokens, no more calls are made until the next period."
_COST = "The same for what all runs of the flow cost, in USD."
_PERIOD = "How long the two budgets last; days and months are those of UTC."
_DAYS = "Days from the end of a run until it is deleted. 0: never. null: as this installation keeps runs."
_OUTPUT_DAYS = (
    "Days from the end of a run until what it read and wrote goes; its figures stay. At most `keep_days`. "
    "0: not before the run goes. null: as this installation keeps outputs."
)


@extend_schema_field({"type": "string", "enum": list(BudgetPeriod.values)})
class PeriodField(WordField):
    """How long a budget of a flow lasts."""

    words = list(BudgetPeriod.values)


class ChangedSettingsSerializer(StrictSerializer):
    """Settings of a flow that change. What is left out stays as it is."""

    max_runs_in_flight = WholeNumberField(
        required=False, allow_null=True, min_value=1, max_value=MOST_RUNS, help_text=_RUNS
    )
    total_token_budget = WholeNumberField(
        required=False, allow_null=True, min_value=1, max_value=MAX_TOKEN_BUDGET, help_text=_TOKENS
    )
    total_cost_budget = AmountField(required=False, allow_null=True, help_text=_COST)
    budget_period = PeriodField(required=False, help_text=_PERIOD)
    keep_days = WholeNumberField(required=False, allow_null=True, min_value=0, max_value=MAX_KEEP_DAYS, help_text=_DAYS)
    keep_outputs_days = WholeNumberField(
        required=False, allow_null=True, min_value=0, max_value=MAX_KEEP_DAYS, help_text=_OUTPUT_DAYS
    )


class RetentionSerializer(serializers.Serializer[Any]):
    """For how long runs are kept; null is for ever."""

    keep_days = serializers.IntegerField(allow_null=True, help_text="Days from the end of a run until it is deleted.")
    keep_outputs_days = serializers.IntegerField(
        allow_null=True, help_text="Days until what it read and wrote goes; null also where that goes with the run."
    )


class FlowSettingsSerializer(serializers.Serializer[Any]):
    """How this installation runs a flow. No part of its definition: a change makes no version and holds at once."""

    flow = serializers.CharField(help_text="The name of the flow.")
    max_runs_in_flight = serializers.IntegerField(allow_null=True, help_text=_RUNS)
    total_token_budget = serializers.IntegerField(allow_null=True, help_text=_TOKENS)
    total_cost_budget = serializers.RegexField(COST, allow_null=True, help_text=_COST)
    budget_period = serializers.ChoiceField(list(BudgetPeriod.values), help_text=_PERIOD)
    keep_days = serializers.IntegerField(allow_null=True, help_text=_DAYS)
    keep_outputs_days = serializers.IntegerField(allow_null=True, help_text=_OUTPUT_DAYS)
    retention = RetentionSerializer(help_text="What holds in the end: these, or what the installation says.")
    updated_at = serializers.DateTimeField(help_text="When the flow was last saved, in UTC.")
