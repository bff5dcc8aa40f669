"""How parameters of requests for statistics are described in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from runs.api.statistics_query import MOST_DAYS, USUAL_DAYS
from runs.statistics.figures import FLOW, GROUPS

_NAME = {"type": "string", "minLength": 1, "maxLength": 200}


def _choices(*names: str, usual: str) -> dict[str, Any]:
    return {"type": "string", "enum": names, "default": usual}


_SPAN = [
    OpenApiParameter(
        "from",
        OpenApiTypes.DATE,
        description=f"The first day (UTC) on which runs ended. By default the span has {USUAL_DAYS} days; it may have "
        f"{MOST_DAYS:,}.",
    ),
    OpenApiParameter("to", OpenApiTypes.DATE, description="The last day (UTC), counted in; by default today."),
]
_SIMULATED = OpenApiParameter(
    "simulated",
    {"type": "string", "enum": ["true", "false"], "default": "false"},
    description="Whether runs that the simulated model answered are meant, or real ones. They are never mixed.",
)
_VERSION = OpenApiParameter(
    "version", {"type": "integer", "minimum": 1}, description="Only runs of the version of this number."
)

FLOW_PARAMETERS = [
    *_SPAN,
    _VERSION,
    OpenApiParameter("model", _NAME, description="Only attempts that this model answered."),
    _SIMULATED,
    OpenApiParameter(
        "group_by",
        _choices("day", "week", "none", usual="day"),
        description="What `periods` are; `none` leaves them out.",
    ),
]
AUDIT_PARAMETERS = [
    *_SPAN,
    _VERSION,
    _SIMULATED,
    OpenApiParameter(
        "sort",
        _choices("fired", "cost", usual="fired"),
        description="What comes first: what fired most, or what cost most in retries.",
    ),
]
USAGE_PARAMETERS = [
    *_SPAN,
    OpenApiParameter(
        "group_by",
        {
            "type": "array",
            "items": {"type": "string", "enum": list(GROUPS)},
            "minItems": 1,
            "default": [FLOW],
        },
        style="form",
        explode=False,
        description="What usage is told apart by, with commas: any of `flow`, `version`, `model` and `day`. "
        "Versions are numbered within their flow, so `version` brings the flow along.",
    ),
    OpenApiParameter("flow", _NAME, description="Only runs of the flow of this name."),
    OpenApiParameter(
        "version", {"type": "integer", "minimum": 1}, description="Only runs of this version of `flow`, which it needs."
    ),
    OpenApiParameter("model", _NAME, description="Only attempts that this model answered."),
    _SIMULATED,
]
OVERVIEW_PARAMETERS = [_SIMULATED]


def name_parameters(parameters: Sequence[OpenApiParameter]) -> tuple[str, ...]:
    """The names of those that stand in the query."""
    return tuple(one.name for one in parameters if one.location == OpenApiParameter.QUERY)
