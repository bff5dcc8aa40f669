"""Backtests: what another definition of a flow would have made of its runs."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any

from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES, FlowFileError
from flows.models import Flow, FlowVersion
from flows.portability import parse_flow_file
from flows.publishing import complete_spec
from runs import models
from runs.api.access import READ_RUNS, RERUN_RUNS, find_user, require_permission
from runs.api.base import IDEMPOTENCY_KEY, REPLAYED, ApiView, build_urls, header, operation
from runs.api.flow_documents import parse_flow_document, read_definition
from runs.api.idempotency import idempotent
from runs.api.paging import build_page, fetch_page
from runs.api.problems import ApiProblem, Conflict, InvalidBody
from runs.api.run_filters import parse_filter_fields, show_filters
from runs.api.schemas.backtests import (
    Backtest,
    BacktestRun,
    BacktestRunPage,
    BacktestRunQuery,
    NewBacktest,
    build_totals,
)
from runs.backtests.requests import NoRunsError, TooManyBacktestsError, request_backtest, stop_backtest
from runs.backtests.totals import Totals, describe_totals
from runs.documents.base import Answer, Nothing
from runs.filters import RunFilters
from runs.history.issue_links import address_attempt

MAX_BODY_BYTES = 2 * MAX_FILE_BYTES
"""In JSON the text of a flow file takes more room."""

_operation = partial(operation, tag="Backtests")
_LOCATION = header("Location", OpenApiTypes.URI, "The address of the backtest.", 202)
_RETRY_AFTER = header(
    "Retry-After", int, "Seconds after which it may be read again; only while it is unfinished.", 200, 202
)
_OF_VERSION = {"flow": "colour-theme", "version": 3, "limit": 1000}
_OF_FILTERED = {"flow": "colour-theme", "version": 3, "filters": {"label": ["nightly"]}}


class Backtests(ApiView):
    """Backtests, and the runs in them."""

    @_operation(
        "POST backtests",
        "Judge ended runs by another definition",
        RERUN_RUNS,
        parameters=[IDEMPOTENCY_KEY, _LOCATION, _RETRY_AFTER, REPLAYED],
        examples=[
            OpenApiExample("A version over the last 1,000 runs", value=_OF_VERSION, request_only=True),
            OpenApiExample("A version over labelled runs", value=_OF_FILTERED, request_only=True),
        ],
        answers={202: OpenApiResponse(Backtest, "It has begun.")},
        problems=[409],
    )
    def create_backtest(self, request: Request, body: NewBacktest) -> HttpResponseBase:
        """What would have been decided over the same outputs: audits, severities, pass rules, sanitizers, schemas,
        retry limits and budgets. No model is called, and nothing is paid. The runs are fixed now; a worker judges them,
        and `Location` tells the progress.
        """
        if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
            sentence = f"The document of a flow has at most {MAX_FILE_BYTES:,} bytes."
            raise ApiProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", sentence)
        if body.document is not None:
            # Its rules and plug-ins run here, as those of a version that somebody may save do.
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

    @_operation(
        "GET backtests/<int:backtest_id>",
        "Read a backtest",
        READ_RUNS,
        parameters=[_RETRY_AFTER],
        answers={200: Backtest},
    )
    def get_backtest(self, request: Request, backtest_id: int) -> Response:
        """What was found so far, with the audits."""
        return _answer(request, _load_backtest(backtest_id))

    @_operation("GET backtests/<int:backtest_id>/runs", "List the runs that differ", READ_RUNS)
    def list_backtest_runs(self, request: Request, backtest_id: int, query: BacktestRunQuery) -> BacktestRunPage:
        """The newest run first. Runs that end the same, and those whose outputs are gone, are only counted."""
        rows = models.BacktestRun.objects.filter(backtest=_load_backtest(backtest_id))
        if query.kind is not None:
            rows = rows.filter(kind=query.kind.value)
        page = fetch_page(rows, query, columns=["run_id"], key_of=lambda row: row.run_id, is_descending=True)
        return build_page(BacktestRunPage, request, page, [_build_run(row, request) for row in page.rows])

    @_operation(
        "POST backtests/<int:backtest_id>/stop",
        "Stop a backtest",
        RERUN_RUNS,
        answers={200: OpenApiResponse(Backtest, "It is stopped.")},
    )
    @idempotent
    def stop_backtest(self, request: Request, backtest_id: int, body: Nothing) -> HttpResponseBase:
        """What it has found stays; 409 if it has ended."""
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
    spec = None if body.document is None else _parse_document(body.document)
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


def _parse_document(document: Any) -> FlowSpec:
    if not isinstance(document, str):
        return parse_flow_document(document.model_extra or {}, "/document")
    try:
        return parse_flow_file(document)
    except FlowFileError as error:
        found = [f"{one.place}: {one.message}" if one.place else one.message for one in error.problems]
    raise InvalidBody([Problem("/document", message) for message in found])


# ---------------------------------------------------------------------------------------------------------------------
# Answers


def _load_backtest(backtest_id: int) -> models.Backtest:
    rows = models.Backtest.objects.listed().select_related("flow", "version", "asked_by").defer("version__spec")
    backtest: models.Backtest | None = rows.filter(pk=backtest_id).first()
    if backtest is None:
        raise Http404
    return backtest


def _answer(request: Request, backtest: models.Backtest, status: HTTPStatus = HTTPStatus.OK) -> Response:
    model = _build(backtest, request)
    headers = {"Location": model.url} if status == HTTPStatus.ACCEPTED else {}
    return Response(model, status, headers=headers | ({"Retry-After": "1"} if backtest.is_unfinished else {}))


def _build(backtest: models.Backtest, request: Request) -> Backtest:
    totals = Totals.from_document(backtest.totals)
    url = request.build_absolute_uri(reverse("api:get_backtest", args=[backtest.pk]))
    return Backtest.model_validate(
        {
            **_list_alike(Backtest, backtest),
            "percent": backtest.percent,
            "flow": backtest.flow.name,
            "version": backtest.version.number if backtest.version else None,
            "status": backtest.state,
            "sentence": describe_totals(totals),
            "filters": show_filters(backtest.query),
            "totals": build_totals(totals),
            "started_by": backtest.asked_by.get_username() if backtest.asked_by else None,
            "url": url,
            "page_url": request.build_absolute_uri(reverse("runs:backtest", args=[backtest.pk])),
            "runs_url": f"{url}/runs",
            "audits": totals.result.audits,
        }
    )


def _list_alike(shape: type[Answer], row: Any) -> dict[str, Any]:
    """The columns of a row that the answer has by the same name."""
    return {name: value for name, value in vars(row).items() if name in shape.model_fields}


def _build_run(row: models.BacktestRun, request: Request) -> BacktestRun:
    page = reverse("runs:page", args=[row.run_id])
    if row.step and row.attempt:
        page += address_attempt(row.step, row.attempt)
    return BacktestRun.model_validate(
        {
            **_list_alike(BacktestRun, row),
            **{name: getattr(row, name) or None for name in ("reason", "ended", "ends")},
            "run": row.run_id,
            "run_url": request.build_absolute_uri(reverse("api:get_run", args=[row.run_id])),
            "page_url": request.build_absolute_uri(page),
        }
    )


urls = build_urls(Backtests)
