"""Parts of one run: its steps, attempts, issues and usage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Annotated, Any, Literal

from django.db.models import F
from django.http import Http404
from pydantic import BeforeValidator, Field, WithJsonSchema
from rest_framework.request import Request

from flows.engine.history import Outcome, Severity, TokenUsage, sum_usage
from runs.api.access import READ_RUNS, build_links
from runs.api.base import ApiView, operation
from runs.api.paging import Rows, build_page, fetch_rows
from runs.attempt_rules import FIRST, USEFUL, WASTED, classify_attempts
from runs.documents.base import NUMBER, Answer, Count, Name, Omitted, Page, Paging, TextOrNull, Url
from runs.documents.loading import COLUMNS_OF_ISSUE, RunLinks, build_attempt, load_attempt, load_steps, select_attempts
from runs.documents.run import Attempt, AttemptParts, Issue, RunParts, Step, Usage
from runs.models import Attempt as AttemptRow
from runs.models import Issue as IssueRow
from runs.models import Run

Part = Literal["first", "useful", "wasted"]


class AttemptPlace(Answer):
    """Which attempt of a run something belongs to."""

    step: Count = Field(description="The step, from 1; 0 is the input.")
    number: int = Field(ge=1, description="Which try of the step, from 1.")
    url: Url = Field(description="Where the attempt is read.")


class FoundIssue(Issue):
    """An issue with its attempt."""

    list_name = "Issue"

    attempt: AttemptPlace = Field(description="The attempt in whose output it was found.")


class AttemptUsage(AttemptPlace):
    """What one attempt used."""

    outcome: Outcome | None = Field(description="How it ended; null while it runs.")
    part: Part = Field(description="Which of `parts` it belongs to.")
    model: TextOrNull = Field(description="The model that answered.")
    usage: Usage | None = Field(description="Null while it runs.")


class StepUsage(Answer):
    """What the attempts of one step used."""

    index: int = Field(ge=1, description="The step.")
    usage: Usage = Field(description="Of all its attempts.")


class UsageParts(Answer):
    """What retries used, and whether they were worth it."""

    first: Usage = Field(description="First attempts of steps.")
    useful: Usage = Field(description="Retries of steps that passed in the end.")
    wasted: Usage = Field(description="Retries of steps that did not pass, or not yet.")


class RunUsage(Answer):
    """What a run used."""

    total: Usage = Field(description="Of all attempts.")
    parts: UsageParts = Field(description="The same, split by what the attempts were.")
    steps: list[StepUsage] = Field(description="Steps that have begun.")
    attempts: list[AttemptUsage] = Field(description="By step and number.")


_Step = Annotated[int, Field(ge=1, le=999_999_999), NUMBER]


_MAX_PLACE = 2**31 - 1


def _parse_place(text: Any) -> Any:
    if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,10}){1,2}", text, re.ASCII):
        raise ValueError("This is not a place such as 2.1; follow the addresses of other pages.")
    return [min(int(part), _MAX_PLACE) for part in text.split(".")]


_NUMBER = "[0-9]{1,10}"


AttemptKey = Annotated[
    tuple[int, int],
    BeforeValidator(_parse_place),
    WithJsonSchema({"type": "string", "pattern": rf"^{_NUMBER}\.{_NUMBER}$"}),
]
"""Step and number of an attempt, such as ``2.1``."""


IssueKey = Annotated[
    tuple[int, int, int],
    BeforeValidator(_parse_place),
    WithJsonSchema({"type": "string", "pattern": rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}$"}),
]
"""Step, attempt and position of an issue, such as ``2.1.0``."""


class AttemptFilters(AttemptParts, Paging):
    """Which attempts of a run are listed."""

    step: _Step | Omitted = Field(None, description="Only those of this step, counted from 1.")
    outcome: list[Outcome] = Field(
        default_factory=list, description="Only attempts that ended with one of these outcomes."
    )
    before: AttemptKey | Omitted = Field(
        None, description="Only attempts before this step and number, such as `2.1`. Follow `previous` instead."
    )
    after: AttemptKey | Omitted = Field(
        None, description="Only attempts after this step and number, such as `2.1`. Follow `next` instead."
    )


class IssueFilters(Paging):
    """Which issues of a run are listed."""

    min_severity: Severity = Field(Severity.LOW, description="Leave out issues of lower severity.")
    code: Name | Omitted = Field(None, description="Only issues of this code.")
    audit: Name | Omitted = Field(None, description="Only issues of the audit of this name.")
    step: _Step | Omitted = Field(None, description="Only those of this step, counted from 1.")
    before: IssueKey | Omitted = Field(
        None, description="Only issues before this step, attempt and position, such as `2.1.0`. Follow `previous`."
    )
    after: IssueKey | Omitted = Field(
        None, description="Only issues after this step, attempt and position, such as `2.1.0`. Follow `next`."
    )


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
    def list_attempts(self, request: Request, run_id: int, query: AttemptFilters) -> Page[Attempt]:
        """In the order of steps and numbers, each with its output, issues and usage, without the input (step 0)."""
        _check_run(run_id)
        attempts = select_attempts().filter(step__run=run_id)
        rows = query.filter(attempts, step="step__index", outcome="outcome__in")
        page = fetch_rows(rows, query, columns=["step__index", "number"])
        links = build_links(request)
        items = [build_attempt(row, run_id, links, query) for row in page.rows]
        return build_page(Page[Attempt], request, page, items)

    @_read("GET runs/<int:run_id>/issues", "List the issues of a run")
    def list_issues(self, request: Request, run_id: int, query: IssueFilters) -> Page[FoundIssue]:
        """Those of all attempts in the order of steps, attempts and audits, each with its attempt.

        A field of an audit’s own that is called `attempt` is in the document of the attempt only.
        """
        _check_run(run_id)
        issues = IssueRow.objects.at_least(query.min_severity).filter(attempt__step__run=run_id)
        rows = query.filter(issues, code="code", audit="audit", step="attempt__step__index")
        rows = rows.annotate(step=F("attempt__step__index"), number=F("attempt__number"))
        columns = ("step", "number", "position")
        page = fetch_rows(rows.values(*columns, "added_fields", *COLUMNS_OF_ISSUE), query, columns=columns)
        links = build_links(request)
        items = [_build_issue(row, run_id, links) for row in page.rows]
        return build_page(Page[FoundIssue], request, page, items)

    @_read("GET runs/<int:run_id>/usage", "Read what a run used")
    def get_run_usage(self, request: Request, run_id: int) -> RunUsage:
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


def _build_usage(rows: Sequence[Any], run_id: int, links: RunLinks) -> RunUsage:
    parts = classify_attempts([(row.step__index, row.outcome or "running") for row in rows])
    attempts = [
        AttemptUsage.model_validate(
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
    return RunUsage.model_validate({"total": _sum(attempts), "parts": sums, "steps": steps, "attempts": attempts})


def _sum(attempts: Iterable[AttemptUsage]) -> TokenUsage:
    return sum_usage(TokenUsage(**dict(one.usage)) for one in attempts if one.usage is not None)
