"""Parts of one run: its steps, attempts, issues and usage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol, TypeVar

from django.db.models import F, Q, QuerySet
from django.http import Http404
from django.urls import URLPattern, path
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.history import TokenUsage, sum_usage
from runs.api.access import READ_RUNS
from runs.api.base import ApiView, build_page, operation
from runs.api.problems import InvalidQuery
from runs.api.run_documents import build_attempt, load_attempt, load_steps, select_attempts
from runs.api.run_links import RunLinks
from runs.api.schemas.runs import (
    Attempt,
    AttemptFilters,
    AttemptPage,
    AttemptParts,
    AttemptUsage,
    FoundIssue,
    IssueFilters,
    IssuePage,
    RunParts,
    RunUsage,
    Step,
    StepPage,
    StepUsage,
    UsageParts,
)
from runs.attempt_rules import FIRST, USEFUL, WASTED, classify_attempts
from runs.models import Attempt as AttemptRow
from runs.models import Issue, Run

_Row = TypeVar("_Row")

# ---------------------------------------------------------------------------------------------------------------------
# Steps and attempts


class StepList(ApiView):
    """``/runs/<run_id>/steps``"""

    @operation(
        "listSteps",
        "List the steps of a run",
        tag="Runs",
        requires=READ_RUNS,
        query=RunParts,
        answers={200: StepPage},
        problems=[404],
    )
    def get(self, request: Request, run_id: int, query: RunParts) -> Response:
        """All steps with their attempts, also those that have not begun. Step 0 is the input. They are one page."""
        steps = load_steps(run_id, RunLinks(request), query)
        if not steps:
            raise Http404
        return build_page(StepPage, request, steps, next=None, previous=None)


class StepDetail(ApiView):
    """``/runs/<run_id>/steps/<index>``"""

    @operation(
        "getStep", "Read a step", tag="Runs", requires=READ_RUNS, query=RunParts, answers={200: Step}, problems=[404]
    )
    def get(self, request: Request, run_id: int, index: int, query: RunParts) -> Step:
        """One step with its attempts. Step 0 is the input."""
        for step in load_steps(run_id, RunLinks(request), query, index=index):
            return step
        raise Http404


class AttemptDetail(ApiView):
    """``/runs/<run_id>/steps/<index>/attempts/<number>``"""

    @operation(
        "getAttempt",
        "Read an attempt",
        tag="Runs",
        requires=READ_RUNS,
        query=AttemptParts,
        answers={200: Attempt},
        problems=[404],
    )
    def get(self, request: Request, run_id: int, index: int, number: int, query: AttemptParts) -> Attempt:
        """Its output as it was used and as it came, the request that the model saw, its issues and its usage."""
        attempt = load_attempt(run_id, index, number, RunLinks(request), query)
        if attempt is None:
            raise Http404
        return attempt


class AttemptList(ApiView):
    """``/runs/<run_id>/attempts``"""

    @operation(
        "listAttempts",
        "List the attempts of a run",
        tag="Runs",
        requires=READ_RUNS,
        query=AttemptFilters,
        answers={200: AttemptPage},
        problems=[404],
    )
    def get(self, request: Request, run_id: int, query: AttemptFilters) -> Response:
        """In the order of steps and numbers, each with its output, issues and usage, without the input (step 0)."""
        check_run(run_id)
        rows = select_attempts().filter(step__run=run_id)
        if query.step is not None:
            rows = rows.filter(step__index=query.step)
        if query.outcome:
            rows = rows.filter(outcome__in=query.outcome)
        found, turns = fetch_page(
            rows, query, columns=("step__index", "number"), key_of=lambda row: (row.step.index, row.number)
        )
        links = RunLinks(request)
        items = [build_attempt(row, run_id, links, query) for row in found]
        return build_page(AttemptPage, request, items, **turns)


# ---------------------------------------------------------------------------------------------------------------------
# Issues

_ISSUE_COLUMNS = ("code", "severity", "description", "audit", "path", "context", "suggestions")


class IssueList(ApiView):
    """``/runs/<run_id>/issues``"""

    @operation(
        "listIssues",
        "List the issues of a run",
        tag="Runs",
        requires=READ_RUNS,
        query=IssueFilters,
        answers={200: IssuePage},
        problems=[404],
    )
    def get(self, request: Request, run_id: int, query: IssueFilters) -> Response:
        """Those of all attempts in the order of steps, attempts and audits, each with its attempt.

        A field of an audit’s own that is called `attempt` stands in the document of the attempt only.
        """
        check_run(run_id)
        wanted = {"code": query.code, "audit": query.audit, "attempt__step__index": query.step}
        rows = (
            Issue.objects.at_least(query.min_severity)
            .filter(attempt__step__run=run_id, **{name: value for name, value in wanted.items() if value is not None})
            .annotate(step=F("attempt__step__index"), number=F("attempt__number"))
            .values_list("step", "number", "position", "added_fields", *_ISSUE_COLUMNS, named=True)
        )
        found, turns = fetch_page(
            rows,
            query,
            columns=("step", "number", "position"),
            key_of=lambda row: (row.step, row.number, row.position),
        )
        links = RunLinks(request)
        return build_page(IssuePage, request, [_build_issue(row, run_id, links) for row in found], **turns)


def _build_issue(row: Any, run_id: int, links: RunLinks) -> FoundIssue:
    attempt = {"step": row.step, "number": row.number, "url": links.link_attempt(run_id, row.step, row.number)}
    own = {name: getattr(row, name) for name in _ISSUE_COLUMNS}
    return FoundIssue.model_validate({**row.added_fields, **own, "attempt": attempt})


# ---------------------------------------------------------------------------------------------------------------------
# Usage

_USAGE_FIELDS = tuple(TokenUsage.model_fields)


class RunUsageDetail(ApiView):
    """``/runs/<run_id>/usage``"""

    @operation(
        "getRunUsage", "Read what a run used", tag="Runs", requires=READ_RUNS, answers={200: RunUsage}, problems=[404]
    )
    def get(self, request: Request, run_id: int) -> RunUsage:
        """Tokens and cost of each attempt, each step and all together.

        They are also split into first attempts, retries of steps that passed in the end, and retries of steps that did
        not, or not yet.
        """
        check_run(run_id)
        columns = ("step__index", "number", "outcome", "model", "usage", *(f"usage__{name}" for name in _USAGE_FIELDS))
        rows = AttemptRow.objects.filter(step__run=run_id).order_by("step__index", "number")
        return _build_usage(list(rows.values_list(*columns, named=True)), run_id, RunLinks(request))


def _build_usage(rows: Sequence[Any], run_id: int, links: RunLinks) -> RunUsage:
    parts = classify_attempts([(row.step__index, row.outcome or "running") for row in rows])
    attempts = [
        AttemptUsage.model_validate(
            {
                "step": row.step__index,
                "number": row.number,
                "outcome": row.outcome or None,
                "part": part,
                "model": row.model or None,
                "usage": None
                if row.usage is None
                else TokenUsage(**{name: getattr(row, f"usage__{name}") for name in _USAGE_FIELDS}),
                "url": links.link_attempt(run_id, row.step__index, row.number),
            }
        )
        for row, part in zip(rows, parts, strict=True)
    ]
    sums = {part: _sum(one for one in attempts if one.part == part) for part in (FIRST, USEFUL, WASTED)}
    steps = [
        StepUsage.model_validate({"index": step, "usage": _sum(own)})
        for step, own in groupby(attempts, key=lambda one: one.step)
    ]
    return RunUsage.model_validate(
        {"total": _sum(attempts), "parts": UsageParts.model_validate(sums), "steps": steps, "attempts": attempts}
    )


def _sum(attempts: Iterable[AttemptUsage]) -> TokenUsage:
    return sum_usage(TokenUsage(**dict(one.usage)) for one in attempts if one.usage is not None)


# ---------------------------------------------------------------------------------------------------------------------
# What they share


def check_run(run_id: int) -> None:
    """Raise ``Http404`` if there is no such run. One query."""
    if not Run.objects.filter(pk=run_id).exists():
        raise Http404


class Place(Protocol):
    """Which page is asked for: ``before`` and ``after`` are keys of rows."""

    limit: int
    before: Any
    after: Any


def fetch_page(
    rows: QuerySet[Any, _Row],
    query: Place,
    *,
    columns: Sequence[str],
    key_of: Callable[[_Row], tuple[int, ...]],
    is_descending: bool = False,
) -> tuple[list[_Row], dict[str, Mapping[str, str] | None]]:
    """The rows of a page in the order of ``columns``, and the parameters of the next and the previous page. One query.

    ``before`` and ``after`` compare keys: of a descending list, ``before`` leads forward.
    Raises ``InvalidQuery`` if both are given.
    """
    if query.before is not None and query.after is not None:
        raise InvalidQuery([Problem("after", "“before” and “after” can’t be combined.")])
    forward, back = ("before", "after") if is_descending else ("after", "before")
    is_backward = getattr(query, back) is not None
    for place, lookup in ((query.before, "lt"), (query.after, "gt")):
        if place is not None:
            rows = rows.filter(_build_condition(columns, place, lookup))
    sign = "-" if is_descending != is_backward else ""
    read = list(rows.order_by(*(f"{sign}{column}" for column in columns))[: query.limit + 1])
    has_more = len(read) > query.limit
    found = read[: query.limit]
    if is_backward:
        found.reverse()
    # From a page without rows the other way leads to where the list begins.
    onward = {forward: ".".join(map(str, key_of(found[-1])))} if found else {}
    backward = {back: ".".join(map(str, key_of(found[0])))} if found else {}
    is_bounded = query.before is not None or query.after is not None
    has_previous = has_more if is_backward else is_bounded
    return found, {
        "next": onward if is_backward or has_more else None,
        "previous": backward if has_previous else None,
    }


def _build_condition(columns: Sequence[str], place: int | tuple[int, ...], lookup: str) -> Q:
    """Rows whose ``columns``, compared one after the other, are less (``lt``) or greater (``gt``) than ``place``."""
    condition, equal = Q(pk__in=[]), Q()
    for column, value in zip(columns, place if isinstance(place, tuple) else (place,), strict=True):
        condition |= equal & Q(**{f"{column}__{lookup}": value})
        equal &= Q(**{column: value})
    return condition


urls: list[URLPattern] = [
    path("runs/<int:run_id>/steps", StepList.as_view(), name="step-list"),
    path("runs/<int:run_id>/steps/<int:index>", StepDetail.as_view(), name="step"),
    path("runs/<int:run_id>/steps/<int:index>/attempts/<int:number>", AttemptDetail.as_view(), name="attempt"),
    path("runs/<int:run_id>/attempts", AttemptList.as_view(), name="attempt-list"),
    path("runs/<int:run_id>/issues", IssueList.as_view(), name="issue-list"),
    path("runs/<int:run_id>/usage", RunUsageDetail.as_view(), name="run-usage"),
]
