"""Backtests: what another definition of a flow would have made of its runs."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.backtest_result import BacktestKind, BacktestReason
from flows.engine.errors import Problem
from flows.engine.history import Severity
from flows.engine.planner import EndStatus
from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES
from flows.models import Flow, FlowVersion
from flows.publishing import complete_spec
from runs import models
from runs.api.access import READ_RUNS, RERUN_RUNS, find_user, require_permission
from runs.api.base import IDEMPOTENCY_KEY, REPLAYED, RETRY_WHILE_UNFINISHED, ApiView, example, header, operation
from runs.api.flow_documents import FlowDocument, parse_definition, read_definition
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_rows
from runs.api.problems import ApiProblem, Conflict, InvalidBody
from runs.api.run_filters import Filters, ShownFilters, parse_filter_fields
from runs.backtests.requests import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    NoRunsError,
    TooManyBacktestsError,
    request_backtest,
    stop_backtest,
)
from runs.backtests.totals import Totals, describe_totals
from runs.documents.base import (
    OR_NULL,
    USER_NAME,
    WHOLE,
    Amount,
    Answer,
    Body,
    Count,
    Name,
    Nothing,
    Omitted,
    Page,
    RowPaging,
    Text,
    TextOrNull,
    Url,
    link,
)
from runs.filters import RunFilters
from runs.history.issues import address_attempt
from runs.models import WorkState

RowKind = Literal[BacktestKind.REFUSED, BacktestKind.BEYOND, BacktestKind.NOT_REPRODUCIBLE, BacktestKind.SOONER]


class NewBacktest(Body):
    """What is judged by: `document`, or a `version` of `flow`; and the runs."""

    document: FlowDocument | Annotated[Text, Field(max_length=1_000_000)] | None = Field(
        None,
        description="The definition of a flow, as an object or as the text of a flow file. Nothing is stored of it.",
    )
    flow: Name | None = Field(
        None, description="The name of the flow whose runs are judged; that of `document` if left out."
    )
    version: Annotated[int, Field(ge=1, le=999_999_999), WHOLE] | None = Field(
        None, description="The number of a version of `flow`."
    )
    filters: Filters | None = Field(
        None, description="Only runs that match these filters, which are those of `listRuns`."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), WHOLE] = Field(
        DEFAULT_LIMIT, description="How many runs at most: those that ended, the newest first."
    )


class BacktestTotals(Answer):
    """What was found of the runs that are judged so far; `same`, `sooner`, `refused` and `unknown` are all of them."""

    runs: Count = Field(description="Runs that are judged.")
    same: Count = Field(description="Runs that end the same.")
    other_issues: Count = Field(description="Of these, runs with other issues.")
    sooner: Count = Field(description="Runs in which a step ends at an earlier attempt.")
    open: Count = Field(description="Of these, runs that would then go on with another input: their end is unknown.")
    refused: Count = Field(description="Runs that would fail, or need at least one more call.")
    beyond: Count = Field(description="Runs that would go on with another input: history can’t answer.")
    not_reproducible: Count = Field(
        description="Runs that don’t come out as stored under their own version, and are left out."
    )
    removed: Count = Field(description="Runs whose outputs are gone.")
    unknown: Count = Field(description="The last three added up: runs that can’t be judged to the end.")
    retries: Count = Field(description="Retries that there were in the runs that could be judged.")
    retries_saved: Count = Field(description="How many of them there would not be, also in refused runs.")
    tokens_saved: Count = Field(description="Tokens of all attempts that the runs that end sooner would not make.")
    cost_saved: Amount = Field(description="USD of these, as far as prices are known.")
    unpriced: Count = Field(description="How many of these used tokens at an unknown price.")
    calls_more: Count = Field(description="Calls that the refused runs would make at least.")
    cost_more: Amount = Field(description="About what these would cost at least, in USD.")
    unpriced_more: Count = Field(description="How many of these have an unknown price.")


class BacktestAudit(Answer):
    """What becomes of one audit over the outputs that were judged."""

    step: Count = Field(description="The step, from 1.")
    audit: str = Field(description="Its name, or a code of ToolFlow’s own.")
    fired_before: Count = Field(description="Outputs in which it raised an issue.")
    fired_after: Count = Field(description="The same, as judged now.")
    gone: Count = Field(description="Issues that it raised only then.")
    new: Count = Field(description="Issues that it raises only now.")


class Backtest(Answer):
    """What another definition would have made of runs that ended. No model is called."""

    id: int = Field(ge=1, description="The number of the backtest.")
    flow: str = Field(description="The name of the flow.")
    version: int | None = Field(description="The version that is judged by; null for a draft.")
    base_version: int | None = Field(description="The number of the live version that it was compared with.")
    digest: str = Field(description="SHA-256 of the definition that is judged by.")
    status: WorkState = Field(
        validation_alias="state", description="`waiting` and `working` go on; a user stopped a `stopped` one."
    )
    problem: TextOrNull = Field(description="Why it failed, in a sentence.")
    sentence: str = Field(description="What was found so far, in a sentence.")
    run_count: Count = Field(description="The number of its runs, fixed when it is requested.")
    limit: Count = Field(description="The limit that was given.")
    filters: ShownFilters = Field(validation_alias="query", description="The filters that its runs match.")
    percent: int = Field(ge=0, le=100, description="The share of its runs that is judged.")
    totals: BacktestTotals = Field(description="What was found so far.")
    started_by: Annotated[str | None, USER_NAME] = Field(
        validation_alias="asked_by", description="The user who requested it."
    )
    created_at: datetime = Field(description="UTC.")
    started_at: datetime | None = Field(description="UTC; null until the first batch is judged.")
    ended_at: datetime | None = Field(description="UTC; null while it is in progress.")
    url: Annotated[Url, link("api:get_backtest")] = Field(validation_alias="id", description="Its address.")
    page_url: Annotated[Url, link("runs:backtest")] = Field(validation_alias="id", description="Its page.")
    runs_url: Annotated[Url, link("api:list_backtest_runs")] = Field(
        validation_alias="id", description="The list of the runs that differ."
    )
    audits: list[BacktestAudit] = Field(description="What becomes of each audit, by step and name.")


class BacktestIssue(Answer):
    """An issue that an output would no longer have, or has only now."""

    step: Count = Field(description="The step of the run, from 1.")
    attempt: Count = Field(description="Its attempt.")
    severity: Severity = Field(description="How severe it is.")
    audit: str = Field(description="The audit that raised it; empty for ToolFlow itself.")
    code: str = Field(description="What kind of finding it is.")
    path: str | None = Field(description="A JSON pointer into the output.")
    description: str = Field(description="What is wrong, the first characters of it.")


class BacktestRun(Answer):
    """A run that differs, or of which history can’t tell how it would end."""

    run: int = Field(validation_alias="run_id", description="The number of the run.")
    kind: RowKind = Field(description="How it differs.")
    reason: Annotated[BacktestReason | None, OR_NULL] = Field(description="Why history can’t say more.")
    sentence: TextOrNull = Field(description="The same in words.")
    step: int | None = Field(description="The first step that differs; null if none does.")
    attempt: int | None = Field(description="The first attempt of it that differs.")
    ended: Annotated[EndStatus | None, OR_NULL] = Field(description="How the run ended.")
    ends: Annotated[EndStatus | None, OR_NULL] = Field(description="How it would end; null where history can’t say.")
    is_hypothetical: bool = Field(description="Whether an output that was judged answers another text.")
    attempts_saved: Count = Field(description="Attempts that it would not have made.")
    tokens_saved: Count = Field(description="Tokens of these.")
    cost_saved: Amount | None = Field(description="USD of these; null if unknown.")
    unpriced: Count = Field(description="How many of these used tokens at an unknown price.")
    further_calls: Count = Field(description="Calls that it would make at least.")
    gone: list[BacktestIssue] = Field(description="Issues that only its own version raised; at most 20.")
    new: list[BacktestIssue] = Field(description="Issues that only the new definition raises; at most 20.")
    run_url: Annotated[Url, link("api:get_run")] = Field(validation_alias="run_id", description="The run.")
    page_url: Url = Field(description="The page of the attempt that decides, or of the run.")


class BacktestRunQuery(RowPaging):
    """Which runs of a backtest."""

    kind: RowKind | Omitted = Field(None, description="Only runs that differ in this way.")


def build_totals(totals: Any) -> dict[str, Any]:
    """The fields of ``BacktestTotals`` of what was found."""
    kinds = {kind: totals.get(kind) for kind in BacktestKind}
    saved, further = kinds[BacktestKind.SOONER], kinds[BacktestKind.REFUSED]
    return {
        **{kind.value: one.runs for kind, one in kinds.items()},
        "runs": totals.result.runs,
        "other_issues": totals.other_issues,
        "unknown": totals.unjudged,
        "retries": totals.retries,
        "open": saved.open,
        "retries_saved": totals.retries_saved,
        "tokens_saved": saved.saved.total,
        "cost_saved": saved.saved.cost or 0,
        "unpriced": saved.saved.unpriced,
        "calls_more": further.further_calls,
        "cost_more": further.further.cost or 0,
        "unpriced_more": further.further.unpriced,
    }


MAX_BODY_BYTES = 2 * MAX_FILE_BYTES
"""In JSON the text of a flow file takes more room."""

_operation = partial(operation, tag="Backtests")
_LOCATION = header("Location", OpenApiTypes.URI, "The address of the backtest.", 202)
_OF_VERSION = {"flow": "colour-theme", "version": 3, "limit": 1000}
_OF_FILTERED = {"flow": "colour-theme", "version": 3, "filters": {"label": ["nightly"]}}


class Backtests(ApiView):
    """Backtests, and the runs in them."""

    @_operation(
        "POST backtests",
        "Judge ended runs by another definition",
        RERUN_RUNS,
        parameters=[IDEMPOTENCY_KEY, _LOCATION, RETRY_WHILE_UNFINISHED, REPLAYED],
        examples=[
            example("A version over the last 1,000 runs", _OF_VERSION),
            example("A version over labelled runs", _OF_FILTERED),
        ],
        answers={202: OpenApiResponse(Backtest, "It has begun.")},
        problems=[409],
    )
    def create_backtest(self, request: Request, body: NewBacktest) -> HttpResponseBase:
        """What would have been decided over the same outputs: audits, severities, pass rules, sanitizers, schemas,
        retry limits and budgets. No model is called, and nothing is paid. The runs are fixed now; a worker judges them,
        and `Location` leads to the backtest.
        """
        if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
            sentence = f"The document of a flow has at most {MAX_FILE_BYTES:,} bytes."
            raise ApiProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", sentence)
        if body.document is not None:
            # Its rules and plug-ins run here, as those of a version that the caller may save do.
            require_permission(request, "flows.change_flow")
        flow, candidate = _find_candidate(body)
        filters = RunFilters() if body.filters is None else parse_filter_fields(body.filters)
        if filters.values.get("flow", flow) != flow:
            raise InvalidBody([Problem("/filters/flow", f"The runs are those of “{flow.name}”. Remove this filter.")])
        return self._begin(request, body, flow, candidate, filters)

    @idempotent
    def _begin(
        self, request: Request, body: NewBacktest, flow: Flow, candidate: FlowSpec | FlowVersion, filters: RunFilters
    ) -> HttpResponseBase:
        try:
            backtest = request_backtest(
                flow=flow, candidate=candidate, filters=filters, limit=body.limit, asked_by=find_user(request)
            )
        except NoRunsError as error:
            raise Conflict("no-runs", str(error)) from None
        except TooManyBacktestsError as error:
            raise Conflict("too-many-backtests", str(error)) from None
        return _answer(request, _load_backtest(backtest.pk), HTTPStatus.ACCEPTED)

    @_operation("GET backtests/<int:backtest_id>", "Read a backtest", READ_RUNS, parameters=[RETRY_WHILE_UNFINISHED])
    def get_backtest(self, request: Request, backtest_id: int) -> Annotated[Response, Backtest]:
        """The backtest with its results so far, by audit."""
        return _answer(request, _load_backtest(backtest_id))

    @_operation("GET backtests/<int:backtest_id>/runs", "List the runs that differ", READ_RUNS)
    def list_backtest_runs(self, request: Request, backtest_id: int, query: BacktestRunQuery) -> Page[BacktestRun]:
        """The newest run first. Runs with the same result and runs without stored outputs are only counted."""
        rows = models.BacktestRun.objects.filter(backtest=_load_backtest(backtest_id))
        page = fetch_rows(query.filter(rows, kind="kind"), query, columns=["run_id"], is_descending=True)
        items = [{**vars(row), "page_url": _link_page(row, request)} for row in page.rows]
        return build_page(Page[BacktestRun], request, page, items)

    @_operation("POST backtests/<int:backtest_id>/stop", "Stop a backtest", RERUN_RUNS)
    @idempotent
    def stop_backtest(self, request: Request, backtest_id: int, body: Nothing) -> Annotated[HttpResponseBase, Backtest]:
        """The backtest keeps its results so far. 409 if it has ended already."""
        backtest = _load_backtest(backtest_id)
        if not stop_backtest(backtest):
            raise Conflict("backtest-ended", f"Backtest {backtest_id} has already ended: it is {backtest.state}.")
        return _answer(request, backtest)


# ---------------------------------------------------------------------------------------------------------------------
# Bodies


def _find_candidate(body: NewBacktest) -> tuple[Flow, FlowSpec | FlowVersion]:
    """The flow, and what its runs are judged by. Raises ``InvalidBody``, ``Conflict`` for an unreadable version."""
    if (body.document is None) == (body.version is None):
        raise InvalidBody([Problem("", "Give either “document”, or “flow” and “version”.")])
    spec = None if body.document is None else parse_definition(body.document, "/document")
    name = body.flow or (spec.name if spec else "")
    flow = Flow.objects.select_related("live_version").filter(name=name).first()
    if flow is None:
        pointer = "/flow" if body.flow or spec is None else "/document/name"
        raise InvalidBody(
            [Problem(pointer, f"There is no flow “{name}”." if name else "Name the flow of the version.")]
        )
    if spec is not None:
        return flow, complete_spec(spec)
    version = flow.versions.filter(number=body.version or 0).first()
    if version is None:
        raise InvalidBody([Problem("/version", f"“{name}” has no version {body.version}.")])
    read_definition(version)
    return flow, version


# ---------------------------------------------------------------------------------------------------------------------
# Answers


def _load_backtest(backtest_id: int) -> models.Backtest:
    rows = models.Backtest.objects.listed().select_related("flow", "version", "asked_by").defer("version__spec")
    return get_object_or_404(rows, pk=backtest_id)


def _answer(request: Request, backtest: models.Backtest, status: HTTPStatus = HTTPStatus.OK) -> Response:
    totals = Totals.from_document(backtest.totals)
    found = {
        **vars(backtest),
        "percent": backtest.percent,
        "flow": backtest.flow.name,
        "version": backtest.version and backtest.version.number,
        "asked_by": backtest.asked_by,
        "sentence": describe_totals(totals),
        "totals": build_totals(totals),
        "audits": totals.result.audits,
    }
    model = Backtest.build(found, request)
    headers = {"Location": model.url} if status == HTTPStatus.ACCEPTED else {}
    return Response(model, status, headers=headers | ({"Retry-After": "1"} if backtest.is_unfinished else {}))


def _link_page(row: models.BacktestRun, request: Request) -> str:
    attempt = address_attempt(row.step, row.attempt) if row.step and row.attempt else ""
    return request.build_absolute_uri(reverse("runs:page", args=[row.run_id]) + attempt)
