"""The query parameters of runs in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter

from runs.api.run_query import ATTEMPTS, LONGEST_TEXT, SEVERITIES
from runs.api.schema_parts import LIMIT
from runs.api.schemas.runs import OUTCOMES, STATUSES
from runs.models import EndReason

_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}
_MOMENT = {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 999_999_999}
_STEP = OpenApiParameter("step", _NUMBER, description="Only those of this step, counted from 1.")


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

MIN_SEVERITY = OpenApiParameter(
    "min_severity", _one_of(SEVERITIES, default="low"), description="Leave out issues of lower severity."
)
USAGE = OpenApiParameter(
    "usage", {"type": "boolean", "default": True}, description="`false` leaves out tokens and cost."
)
DETAIL_PARAMETERS = [USAGE, MIN_SEVERITY]
READING_PARAMETERS = [
    OpenApiParameter(
        "attempts",
        _one_of(ATTEMPTS, default="all"),
        description="`final`: of each step only the attempt that decides, which is its last one that was not "
        "interrupted. `none`: no attempts.",
    ),
    *DETAIL_PARAMETERS,
]

ATTEMPT_FILTERS = [
    _STEP,
    _some_of("outcome", OUTCOMES, "Only attempts that ended with one of these outcomes."),
]
ISSUE_FILTERS = [
    MIN_SEVERITY,
    OpenApiParameter("code", _TEXT, description="Only issues of this code."),
    OpenApiParameter("audit", _TEXT, description="Only issues of the audit of this name."),
    _STEP,
]


def _page_by_places(pattern: str, example: str, what: str) -> list[OpenApiParameter]:
    place = {"type": "string", "pattern": pattern}
    make = f"{what}, such as `{example}`. Follow `next` and `previous` rather than make it."
    return [
        LIMIT,
        OpenApiParameter("before", place, description=f"Only what comes before the place of {make}"),
        OpenApiParameter("after", place, description=f"Only what comes after the place of {make}"),
    ]


PLACE_PARAMETERS = _page_by_places(r"^[0-9]{1,10}\.[0-9]{1,10}$", "2.1", "an attempt: step and number")
ISSUE_PLACE_PARAMETERS = _page_by_places(
    r"^[0-9]{1,10}\.[0-9]{1,10}\.[0-9]{1,10}$", "2.1.0", "an issue: step, attempt and position"
)
