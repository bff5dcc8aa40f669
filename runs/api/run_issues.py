"""The issues of a run, each with the attempt that it was found in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from django.db.models import F, Q
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.history import Severity
from runs.api.paging import PAGING, answer_page, cut_page, find_paging, make_places
from runs.api.problems import InvalidQuery
from runs.api.run_links import RunLinks
from runs.api.run_part import RunPart, check_run
from runs.api.run_query import SEVERITIES, find_choice, find_number, find_text
from runs.api.runs_parameters import ISSUE_FILTERS, ISSUE_PLACE_PARAMETERS
from runs.api.schema_parts import problem_responses
from runs.api.schemas.runs import IssuePage
from runs.models import Issue

PLACES = make_places("step", "attempt", "position of the issue")
_COLUMNS = ("code", "severity", "description", "audit", "path", "context", "suggestions", "added_fields", "position")


class IssueList(RunPart):
    """The issues of a run."""

    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": ("min_severity", "code", "audit", "step", *PAGING)}

    @extend_schema(
        operation_id="listIssues",
        tags=["Runs"],
        summary="List the issues of a run",
        description="The issues of all attempts in the order of steps, attempts and audits. Each says in which attempt "
        "it was found; a field of an audit’s own that is called `attempt` stands in the document of the attempt only.",
        parameters=[*ISSUE_FILTERS, *ISSUE_PLACE_PARAMETERS],
        responses={200: OpenApiResponse(IssuePage, "A page of issues."), **problem_responses(404)},
    )
    def get(self, request: Request, run_id: int) -> Response:
        """A page of issues."""
        query = request.query_params
        paging, problems = find_paging(query, PLACES)
        severity = find_choice(query, "min_severity", SEVERITIES, Severity.LOW.value, problems)
        texts = {name: find_text(query, name, problems) for name in ("code", "audit")}
        step = find_number(query, "step", problems)
        if problems:
            raise InvalidQuery(problems)
        check_run(run_id)
        issues = Issue.objects.at_least(Severity(severity)).filter(attempt__step__run=run_id)
        issues = issues.filter(**{name: text for name, text in texts.items() if text})
        if step is not None:
            issues = issues.filter(attempt__step__index=step)
        if paging.before is not None:
            issues = issues.filter(_lies_on_side(paging.before, "lt"))
        if paging.after is not None:
            issues = issues.filter(_lies_on_side(paging.after, "gt"))
        sign = "-" if paging.is_backward(is_descending=False) else ""
        order = [f"{sign}{column}" for column in ("attempt__step__index", "attempt__number", "position")]
        rows = (
            issues.annotate(step_index=F("attempt__step__index"), number=F("attempt__number"))
            .order_by(*order)
            .values_list("step_index", "number", *_COLUMNS, named=True)
        )
        page = cut_page(rows[: paging.limit + 1], paging, key_of=_read_place)
        links = RunLinks(request)
        return answer_page(request, page, [_describe(row, run_id, links) for row in page.rows])


def _lies_on_side(place: tuple[int, ...], side: str) -> Q:
    """What is true of issues before (``lt``) or after (``gt``) a place."""
    index, number, position = place
    of_attempt = Q(attempt__step__index=index, attempt__number=number, **{f"position__{side}": position})
    of_step = Q(attempt__step__index=index, **{f"attempt__number__{side}": number})
    return of_attempt | of_step | Q(**{f"attempt__step__index__{side}": index})


def _read_place(row: Any) -> tuple[int, ...]:
    return (row.step_index, row.number, row.position)


def _describe(row: Any, run_id: int, links: RunLinks) -> dict[str, Any]:
    place = {"step": row.step_index, "number": row.number}
    return {
        **row.added_fields,
        "attempt": {**place, "url": links.link_attempt(run_id, **place)},
        "code": row.code,
        "severity": row.severity,
        "description": row.description,
        "audit": row.audit,
        "path": row.path,
        "context": row.context,
        "suggestions": row.suggestions,
    }


urls: list[URLPattern] = [path("runs/<int:run_id>/issues", IssueList.as_view(), name="issue-list")]
