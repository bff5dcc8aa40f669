"""The query parameters of runs in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter

from runs.api.run_query import LONGEST_TEXT, SEVERITIES
from runs.api.schemas.runs import STATUSES
from runs.models import EndReason

_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}
_MOMENT = {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 999_999_999}


def _one_of(values: Any, **more: Any) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), **more}


def _some_of(name: str, values: Any, description: str) -> OpenApiParameter:
    return OpenApiParameter(
        name, {"type": "array", "items": _one_of(values), "minItems": 1}, explode=False, description=description
    )


FILTERS = [
    OpenApiParameter(
        "q",
        {"type": "string", "minLength": 1, "maxLength": 500},
        description='Words that inputs, outputs and issues of ended runs hold: `tea leaves` both, `"tea leaves"` one '
        "after the other, `order*` words that begin so, `-draft` without that word. Or the number of a run.",
    ),
    OpenApiParameter("flow", _TEXT, description="Only runs of the flow of this name."),
    OpenApiParameter("version", _NUMBER, description="Only runs of this version; only together with `flow`."),
    _some_of("status", STATUSES, "Only runs that have one of these statuses."),
    OpenApiParameter("reason", _one_of(EndReason.values), description="Only runs that ended for this reason."),
    OpenApiParameter(
        "severity",
        _one_of(SEVERITIES),
        description="Only runs with an issue of at least this severity. With `audit` or `code`, all of them hold for "
        "one and the same issue.",
    ),
    OpenApiParameter("audit", _TEXT, description="Only runs with an issue of the audit of this name."),
    OpenApiParameter("code", _TEXT, description="Only runs with an issue of this code."),
    OpenApiParameter("model", _TEXT, description="Only runs in which this model answered."),
    OpenApiParameter(
        "label",
        {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]},
        explode=True,
        description="Only runs with this label; repeat the parameter for runs that have all of several labels.",
    ),
    OpenApiParameter(
        "from", _MOMENT, description="Only runs that were created on this day, in UTC, or at this time, or later."
    ),
    OpenApiParameter(
        "to", _MOMENT, description="Only runs that were created on this day, in UTC, or at this time, or earlier."
    ),
    OpenApiParameter(
        "cost",
        {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,8})?$"},
        description="Only runs that cost more USD than this.",
    ),
    OpenApiParameter(
        "tokens",
        {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999},
        description="Only runs that used more tokens than this.",
    ),
    OpenApiParameter("by", _TEXT, description="Only runs that the user of this name started."),
]
