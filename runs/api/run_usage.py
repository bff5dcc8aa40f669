"""Tokens and cost of a run: of each attempt, of each step, of retries, and in all."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.history import TokenUsage, sum_usage
from runs.api.run_links import RunLinks
from runs.api.run_part import RunPart, check_run
from runs.api.schema_parts import problem_responses
from runs.api.schemas.runs import RunUsage as RunUsageSchema
from runs.attempt_rules import FIRST, USEFUL, WASTED, classify_attempts
from runs.documents import build_usage_document
from runs.models import Attempt

_RUNNING = "running"
_FIELDS = tuple(TokenUsage.model_fields)


class RunUsage(RunPart):
    """What a run used."""

    @extend_schema(
        operation_id="getRunUsage",
        tags=["Runs"],
        summary="Read what a run used",
        description="Tokens and cost of each attempt, each step and all together, and split into first attempts, "
        "retries of steps that passed in the end, and retries of steps that did not (or not yet).",
        responses={200: OpenApiResponse(RunUsageSchema, "What it used."), **problem_responses(404)},
    )
    def get(self, request: Request, run_id: int) -> Response:
        """The usage of the run."""
        check_run(run_id)
        rows = _load_rows(run_id)
        usages = [_read_usage(row) for row in rows]
        parts = classify_attempts([(row.step__index, row.outcome or _RUNNING) for row in rows])
        links = RunLinks(request)
        return Response(
            {
                "total": _sum(usages),
                "parts": {
                    part: _sum(usage for usage, own in zip(usages, parts, strict=True) if own == part)
                    for part in (FIRST, USEFUL, WASTED)
                },
                "steps": [
                    {"index": step, "usage": _sum(usage for _, usage in own)}
                    for step, own in groupby(zip(rows, usages, strict=True), key=lambda pair: pair[0].step__index)
                ],
                "attempts": [
                    _describe(row, part, usage, links.link_attempt(run_id, row.step__index, row.number))
                    for row, part, usage in zip(rows, parts, usages, strict=True)
                ],
            }
        )


def _load_rows(run_id: int) -> list[Any]:
    columns = ("step__index", "number", "outcome", "model", "usage", *(f"usage__{name}" for name in _FIELDS))
    rows = Attempt.objects.filter(step__run=run_id).order_by("step__index", "number")
    return list(rows.values_list(*columns, named=True))


def _read_usage(row: Any) -> TokenUsage | None:
    """The usage of an attempt; None while it runs."""
    if row.usage is None:
        return None
    return TokenUsage(**{name: getattr(row, f"usage__{name}") for name in _FIELDS})


def _describe(row: Any, part: str, usage: TokenUsage | None, url: str) -> dict[str, Any]:
    return {
        "step": row.step__index,
        "number": row.number,
        "outcome": row.outcome or None,
        "part": part,
        "model": row.model or None,
        "usage": None if usage is None else build_usage_document(usage),
        "url": url,
    }


def _sum(usages: Iterable[TokenUsage | None]) -> dict[str, Any]:
    return build_usage_document(sum_usage(usage for usage in usages if usage is not None))


urls: list[URLPattern] = [path("runs/<int:run_id>/usage", RunUsage.as_view(), name="run-usage")]
