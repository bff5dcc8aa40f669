"""Parts of one run: its steps, attempts, issues and usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from django.db.models import F
from django.http import Http404
from rest_framework.request import Request

from flows.engine.history import TokenUsage, sum_usage
from runs.api.access import READ_RUNS, build_links
from runs.api.base import ApiView, build_urls, operation
from runs.api.paging import Rows, build_page, fetch_rows
from runs.api.schemas import runs as schemas
from runs.attempt_rules import FIRST, USEFUL, WASTED, classify_attempts
from runs.documents.base import Page
from runs.documents.loading import (
    COLUMNS_OF_ISSUE,
    RunLinks,
    build_attempt,
    load_attempt,
    load_steps,
    select_attempts,
)
from runs.documents.run import Attempt, AttemptParts, RunParts, Step
from runs.models import Attempt as AttemptRow
from runs.models import Issue, Run

_USAGE_FIELDS = tuple(TokenUsage.model_fields)
_read = partial(operation, requires=READ_RUNS, tag="Runs")


class PartsOfRuns(ApiView):
    """Steps, attempts, issues and usage of a run."""

    @_read("GET runs/<int:run_id>/steps", "List the steps of a run")
    def list_steps(self, request: Request, run_id: int, query: RunParts) -> Page[Step]:
        """All steps with their attempts, also those that have not begun. Step 0 is the input. They are one page."""
        steps = load_steps(run_id, build_links(request), query)
        if not steps:
            raise Http404
        return build_page(Page[Step], request, Rows(steps))

    @_read("GET runs/<int:run_id>/steps/<int:index>", "Read a step")
    def get_step(self, request: Request, run_id: int, index: int, query: RunParts) -> Step:
        """One step with its attempts. Step 0 is the input."""
        for step in load_steps(run_id, build_links(request), query, index=index):
            return step
        raise Http404

    @_read("GET runs/<int:run_id>/steps/<int:index>/attempts/<int:number>", "Read an attempt")
    def get_attempt(self, request: Request, run_id: int, index: int, number: int, query: AttemptParts) -> Attempt:
        """Its output as it was used and as it came, the request that the model saw, its issues and its usage."""
        attempt = load_attempt(run_id, index, number, build_links(request), query)
        if attempt is None:
            raise Http404
        return attempt

    @_read("GET runs/<int:run_id>/attempts", "List the attempts of a run")
    def list_attempts(self, request: Request, run_id: int, query: schemas.AttemptFilters) -> Page[Attempt]:
        """In the order of steps and numbers, each with its output, issues and usage, without the input (step 0)."""
        _check_run(run_id)
        rows = select_attempts().filter(step__run=run_id)
        if query.step is not None:
            rows = rows.filter(step__index=query.step)
        if query.outcome:
            rows = rows.filter(outcome__in=query.outcome)
        page = fetch_rows(rows, query, columns=["step__index", "number"])
        links = build_links(request)
        items = [build_attempt(row, run_id, links, query) for row in page.rows]
        return build_page(Page[Attempt], request, page, items)

    @_read("GET runs/<int:run_id>/issues", "List the issues of a run")
    def list_issues(self, request: Request, run_id: int, query: schemas.IssueFilters) -> Page[schemas.FoundIssue]:
        """Those of all attempts in the order of steps, attempts and audits, each with its attempt.

        A field of an audit’s own that is called `attempt` stands in the document of the attempt only.
        """
        _check_run(run_id)
        wanted = {"code": query.code, "audit": query.audit, "attempt__step__index": query.step}
        rows = (
            Issue.objects.at_least(query.min_severity)
            .filter(attempt__step__run=run_id, **{name: value for name, value in wanted.items() if value is not None})
            .annotate(step=F("attempt__step__index"), number=F("attempt__number"))
            .values("step", "number", "position", "added_fields", *COLUMNS_OF_ISSUE)
        )
        columns = ("step", "number", "position")
        page = fetch_rows(rows, query, columns=columns)
        links = build_links(request)
        items = [_build_issue(row, run_id, links) for row in page.rows]
        return build_page(Page[schemas.FoundIssue], request, page, items)

    @_read("GET runs/<int:run_id>/usage", "Read what a run used")
    def get_run_usage(self, request: Request, run_id: int) -> schemas.RunUsage:
        """Tokens and cost of each attempt, each step and all together.

        They are also split into first attempts, retries of steps that passed in the end, and retries of steps that did
        not, or not yet.
        """
        _check_run(run_id)
        columns = ("step__index", "number", "outcome", "model", "usage", *(f"usage__{name}" for name in _USAGE_FIELDS))
        rows = AttemptRow.objects.filter(step__run=run_id).order_by("step__index", "number")
        return _build_usage(list(rows.values_list(*columns, named=True)), run_id, build_links(request))


def _build_issue(row: dict[str, Any], run_id: int, links: RunLinks) -> dict[str, Any]:
    attempt = {**row, "url": links.link_attempt(run_id, row["step"], row["number"])}
    return {**row["added_fields"], **{name: row[name] for name in COLUMNS_OF_ISSUE}, "attempt": attempt}


def _check_run(run_id: int) -> None:
    if not Run.objects.filter(pk=run_id).exists():
        raise Http404


def _build_usage(rows: Sequence[Any], run_id: int, links: RunLinks) -> schemas.RunUsage:
    parts = classify_attempts([(row.step__index, row.outcome or "running") for row in rows])
    attempts = [
        schemas.AttemptUsage.model_validate(
            {
                "step": row.step__index,
                "number": row.number,
                "outcome": row.outcome or None,
                "part": part,
                "model": row.model,
                "usage": None
                if row.usage is None
                else TokenUsage(**{name: getattr(row, f"usage__{name}") for name in _USAGE_FIELDS}),
                "url": links.link_attempt(run_id, row.step__index, row.number),
            }
        )
        for row, part in zip(rows, parts, strict=True)
    ]
    sums = {part: _sum(one for one in attempts if one.part == part) for part in (FIRST, USEFUL, WASTED)}
    by_step = groupby(attempts, key=lambda one: one.step)
    steps = [{"index": step, "usage": _sum(own)} for step, own in by_step]
    return schemas.RunUsage.model_validate(
        {"total": _sum(attempts), "parts": sums, "steps": steps, "attempts": attempts}
    )


def _sum(attempts: Iterable[schemas.AttemptUsage]) -> TokenUsage:
    return sum_usage(TokenUsage(**dict(one.usage)) for one in attempts if one.usage is not None)


urls = build_urls(PartsOfRuns)
