"""Runs: listing, starting, reading, changing, cancelling and running again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.db import connection
from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.models import Flow, FlowVersion
from runs.api.access import CHANGE_RUNS, READ_RUNS, RERUN_RUNS, START_RUNS, build_links, find_user
from runs.api.base import IDEMPOTENCY_KEY, REPLAYED, RETRY_AFTER, ApiView, example, header, operation
from runs.api.events import answer_at_end
from runs.api.idempotency import idempotent
from runs.api.paging import Rows, build_page, fetch_rows
from runs.api.problems import Conflict, InvalidBody
from runs.api.run_bodies import NewRun, NewRuns, Rerun, RunChange, RunTerms
from runs.api.run_filters import FilterFields, parse_filters
from runs.documents.base import Answer, Nothing, Page, RowNumber, RowPaging, Url
from runs.documents.loading import build_new_run, load_run, load_summaries
from runs.documents.run import Run, RunParts, RunSummary
from runs.matching_runs import fetch_matching_runs
from runs.models import Priority, RunStatus
from runs.models import Run as RunRow
from runs.models.run import REMOVED_INPUT
from runs.paging import cut_page
from runs.run_options import PRIORITIES, find_label_problems, list_lasting_labels
from runs.submission import (
    NotRunnableError,
    OrdersError,
    RunOrder,
    cancel_run,
    change_run,
    find_own_limits,
    prepare_runs,
    store_runs,
)
from runs.webhooks.addresses import find_target_problem


class StartedRun(Answer):
    """One of many runs that were started."""

    id: int = Field(ge=1, description="The number of the run.")
    url: Url = Field(description="Where the run is read.")


class StartedRuns(Answer):
    """Runs that were started together."""

    flow: str = Field(description="The name of the flow.")
    version: int = Field(ge=1, description="The number of the version that they run.")
    count: int = Field(ge=1, description="How many runs were started.")
    url: Url = Field(description="Where they are listed, with their statuses.")
    runs: list[StartedRun] = Field(description="The runs, in the order of the request.")


class StartedFilters(RowPaging):
    """Filters the runs that the request started."""

    first: RowNumber = Field(description="The number of the first of the runs.")
    last: RowNumber = Field(description="The number of the last one.")
    status: list[RunStatus] = Field(default_factory=list, description="Only runs that have one of these statuses.")


_operation = partial(operation, tag="Runs")
_LOCATION = header("Location", OpenApiTypes.URI, "The address of the run, or of the list of runs.", 200, 202)
_START_HEADERS = [
    IDEMPOTENCY_KEY,
    header(
        "Prefer",
        str,
        "`wait=30` waits up to 30 seconds for the run to end, and answers 200 with the finished run if it ends then.",
    ),
    _LOCATION,
    RETRY_AFTER,
    header("Preference-Applied", str, "How long the request may have waited.", 200, 202),
    REPLAYED,
]
_START_ANSWERS = {
    200: OpenApiResponse(Run, "The run ended within the time that `Prefer: wait` gave it; with its attempts."),
    202: OpenApiResponse(Run, "The run is queued; read it at `Location` until it has ended."),
}
_INPUT = {"brand": "Fjordkaffe", "about": "A small roastery in Bergen.", "mood": "calm"}
_HEAD = RunParts(attempts="none")
_example = partial(example, "Of an example flow")


class Runs(ApiView):
    """``/runs``, and each of them."""

    @_operation("GET runs", "List runs", READ_RUNS, more_queries=[FilterFields, RowPaging])
    def list_runs(self, request: Request) -> Page[RunSummary]:
        """The runs that meet all filters, the newest first, without their inputs, steps and attempts.

        A search that finds little in very many runs may stop early: then a page has fewer items than `limit`, or none,
        and `next` goes on from where it stopped. The list ends where `next` is null.
        """
        # One more than the page holds shows whether there is another.
        filters, query = parse_filters(request.query_params, RowPaging)
        found = fetch_matching_runs(filters, before=query.before, after=query.after, limit=query.limit + 1)
        page = cut_page(found, limit=query.limit, before=query.before, after=query.after)
        items = load_summaries(page.keys, build_links(request))
        return build_page(Page[RunSummary], request, Rows(items, page.older, page.newer))

    @_operation(
        "POST runs",
        "Start a run",
        START_RUNS,
        parameters=_START_HEADERS,
        examples=[_example({"flow": "colour-theme", "input": _INPUT, "labels": ["nightly"]})],
        answers=_START_ANSWERS,
        problems=[409],
    )
    def create_run(self, request: Request, body: NewRun) -> HttpResponseBase:
        """Queues a run and answers at once with 202, unless `Prefer: wait` asks to wait for its end."""
        return answer_at_end(request, self._start_new(request, body))

    @idempotent
    def _start_new(self, request: Request, body: NewRun) -> HttpResponseBase:
        flow, version = _load_flow(body.flow, body.version)
        order = RunOrder(body.input, body.labels or (), body.metadata or {})
        return _start_run(request, flow, version, order, _list_terms(body))

    @_operation("GET runs/bulk", "List the runs that one request started", READ_RUNS, problems=[404])
    def list_started_runs(self, request: Request, query: StartedFilters) -> Page[RunSummary]:
        """The runs that one request started, the newest first.

        Follow the `Location` of `createRuns`. With `status=queued,running` the list is empty once all have ended.
        """
        runs = query.filter(_select_started(query.first, query.last), status="status__in")
        page = fetch_rows(runs, query, is_descending=True)
        return build_page(
            Page[RunSummary], request, page, load_summaries([run.pk for run in page.rows], build_links(request))
        )

    @_operation(
        "POST runs/bulk",
        "Start many runs",
        START_RUNS,
        parameters=[_LOCATION, RETRY_AFTER],
        examples=[_example({"flow": "colour-theme", "runs": [{"input": _INPUT, "metadata": {"row": 1}}]})],
        answers={202: OpenApiResponse(StartedRuns, "The runs are queued; `Location` lists them.")},
    )
    @idempotent
    def create_runs(self, request: Request, body: NewRuns) -> HttpResponseBase:
        """Queues up to 1,000 runs of one version, all or none.

        If anything is wrong with any of them, `errors` says what is wrong with each, and nothing is started.
        """
        stored = store_runs(_prepare_many(request, body))
        links = build_links(request)
        numbers = [run.pk for run in stored]
        address = f"{links.link_run('bulk')}?{urlencode({'first': min(numbers), 'last': max(numbers)})}"
        answer = {
            "flow": stored[0].flow.name,
            "version": stored[0].version.number,
            "count": len(stored),
            "url": address,
            "runs": [{"id": number, "url": links.link_run(number)} for number in numbers],
        }
        headers = {"Location": address, "Retry-After": "1"}
        return Response(StartedRuns.model_validate(answer), 202, headers=headers)

    @_operation("GET runs/<int:run_id>", "Read a run", READ_RUNS, has_etag=True)
    def get_run(self, request: Request, run_id: int, query: RunParts) -> Run:
        """The run with its steps and their attempts, each with its own issues and token usage. Step 0 is the input."""
        return _load(request, run_id, query)

    @_operation("PATCH runs/<int:run_id>", "Change the labels and metadata of a run", CHANGE_RUNS)
    def change_run(self, request: Request, run_id: int, body: RunChange) -> Run:
        """Sets what the body names, at any time; the answer is the run without its attempts."""
        try:
            change_run(run_id=run_id, changes=body.model_dump(exclude_unset=True))
        except RunRow.DoesNotExist:
            raise Http404 from None
        return _load(request, run_id, _HEAD)

    @_operation(
        "POST runs/<int:run_id>/cancel",
        "Cancel a run",
        CHANGE_RUNS,
        parameters=[RETRY_AFTER],
        answers={202: OpenApiResponse(Run, "The run is cancelled, or is about to be.")},
    )
    @idempotent
    def cancel_run(self, request: Request, run_id: int, body: Nothing) -> HttpResponseBase:
        """A queued run is cancelled at once, a running one as soon as its worker sees it.

        `cancel_requested` is true until then. A run that was cancelled already is answered as it is; one that ended
        otherwise is a conflict (409).
        """
        run = get_object_or_404(RunRow, pk=run_id)
        if not cancel_run(run=run) and run.status != RunStatus.CANCELLED:
            raise Conflict("run-ended", f"Run {run_id} has already ended: it {_ENDINGS[run.status]}.")
        headers = {} if run.has_ended else {"Retry-After": "1"}
        return Response(_load(request, run_id, _HEAD), 202, headers=headers)

    @_operation(
        "POST runs/<int:run_id>/run-again",
        "Re-run a run",
        RERUN_RUNS,
        parameters=_START_HEADERS,
        answers=_START_ANSWERS,
        problems=[409],
    )
    def run_again(self, request: Request, run_id: int, body: Rerun) -> HttpResponseBase:
        """Starts a run with the input and the options of this one, except for what the body sets.

        The label of a bulk action that started this one, such as `bulk-7`, is not taken over. Answers as the start of
        a run does.
        """
        return answer_at_end(request, self._start_again(request, run_id, body))

    @idempotent
    def _start_again(self, request: Request, run_id: int, body: Rerun) -> HttpResponseBase:
        runs = RunRow.objects.select_related("flow__live_version", "version")
        return _rerun(request, get_object_or_404(runs, pk=run_id), body)


_ENDINGS = {"succeeded": "succeeded", "failed": "failed", "errored": "ended with an error"}


def _load(request: Request, run_id: int, parts: RunParts) -> Run:
    run = load_run(run_id, build_links(request), parts)
    if run is None:
        raise Http404
    return run


def _select_started(first: int, last: int) -> QuerySet[RunRow, RunRow]:
    """The runs from the number ``first`` to ``last`` that were started with these two.

    SQLite lets one request write at a time, so that all numbers in between are its own. With PostgreSQL others may get
    some of them; there one statement stores what a request starts, and gives all of it the same time.
    Raises ``Http404`` if one of the two is gone, or they were not started together.
    """
    shared = ["version", "started_by", *(["created_at"] if connection.vendor == "postgresql" else [])]
    ends = list(RunRow.objects.filter(pk__in=(first, last)).order_by("pk").values("pk", *shared))
    if first > last or [end.pop("pk") for end in ends] != sorted({first, last}) or ends[0] != ends[-1]:
        raise Http404
    return RunRow.objects.filter(pk__range=(first, last), **ends[0]).only("pk")


# ---------------------------------------------------------------------------------------------------------------------
# What bodies ask for


def _start_run(
    request: Request, flow: Flow, version: FlowVersion | None, order: RunOrder, terms: Mapping[str, Any]
) -> Response:
    """Store a run, and answer with it. Raises ``InvalidBody``, and ``Conflict`` if the flow can't be run."""
    try:
        (stored,) = store_runs(_prepare(request, flow, version, [order], terms))
    except OrdersError as error:
        problems = [Problem(problem.path.removeprefix("/0"), problem.message) for problem in error.problems]
        raise InvalidBody(problems) from error
    answer = build_new_run(stored, build_links(request), started_by=request.user.get_username())
    return Response(answer, 202, headers={"Location": answer.url, "Retry-After": "1"})


def _prepare_many(request: Request, new: NewRuns) -> list[RunRow]:
    """Many runs that aren't stored yet. Raises as ``_start_run``, with all that is wrong with any of them."""
    flow, version = _load_flow(new.flow, new.version)
    shared = new.labels or []
    problems = [Problem(f"/labels{problem.path}", problem.message) for problem in find_label_problems(shared)]
    # What is wrong with a label of all is reported once.
    shared = [] if problems else shared
    # The own labels come first and as they were sent, so that a problem has the place of its label.
    orders = []
    for one in new.runs:
        own = one.labels or []
        labels = [*own, *(label for label in shared if label not in own)]
        orders.append(RunOrder(one.input, labels, one.metadata or {}))
    runs: list[RunRow] = []
    try:
        runs = _prepare(request, flow, version, orders, _list_terms(new))
    except OrdersError as error:
        problems += [Problem(f"/runs{problem.path}", problem.message) for problem in error.problems]
    if problems:
        raise InvalidBody(problems)
    return runs


def _rerun(request: Request, source: RunRow, body: Rerun) -> Response:
    """Start a run like ``source`` but for what the body says. Raises as ``_start_run``."""
    given = body.model_fields_set
    if source.outputs_removed_at is not None and "input" not in given:
        raise Conflict("outputs-removed", f"Run {source.pk} can’t be re-run: {REMOVED_INPUT} Send an input.")
    if "webhook_url" not in given and source.webhook_url and (problem := find_target_problem(source.webhook_url)):
        raise InvalidBody([Problem("/webhook_url", f"That of run {source.pk} is no longer allowed: {problem}")])
    terms = {
        "priority": Priority(source.priority),
        "webhook_url": source.webhook_url,
        **find_own_limits(source, source.version.readable_spec),
        **_list_terms(body),
    }
    order = RunOrder(
        body.input if "input" in given else source.input,
        (body.labels or ()) if "labels" in given else list_lasting_labels(source.labels),
        (body.metadata or {}) if "metadata" in given else source.metadata,
        source,
    )
    version: FlowVersion | None = source.version
    if body.version != "same":
        version = None if body.version == "live" else _load_version(source.flow, body.version)
    try:
        return _start_run(request, source.flow, version, order, terms)
    except InvalidBody as error:
        if "input" in given:
            raise
        number = (version or source.flow.live_version or source.version).number
        raise InvalidBody([_point_at_version(problem, source.pk, number) for problem in error.errors]) from error


def _point_at_version(problem: Problem, run_id: int, number: int) -> Problem:
    if not problem.path.startswith("/input"):
        return problem
    return Problem("/version", f"The input of run {run_id} doesn’t fit version {number}: {problem.message}")


def _list_terms(terms: RunTerms) -> dict[str, Any]:
    """What a body says of runs besides their inputs, labels and metadata, by name; None where it says null."""
    found = terms.model_dump(include=set(RunTerms.model_fields), exclude_unset=True)
    if found.get("priority") is not None:
        found["priority"] = PRIORITIES[found["priority"]]
    return found


def _load_flow(name: str, number: int | None) -> tuple[Flow, FlowVersion | None]:
    """The flow of that name, and its version of that number if one is given. Raises ``InvalidBody``."""
    # To read all columns takes half as long again.
    of_version = (f"live_version__{column}" for column in ("flow", "number", "spec"))
    flows = Flow.objects.select_related("live_version").only("name", "title", "is_archived", *of_version)
    flow = flows.filter(name=name).first()
    if flow is None:
        raise InvalidBody([Problem("/flow", f"No flow is called “{name}”.")])
    return flow, None if number is None else _load_version(flow, number)


def _load_version(flow: Flow, number: int) -> FlowVersion:
    live = flow.live_version
    if live is not None and live.number == number:
        return live
    version = flow.versions.filter(number=number).first()
    if version is None:
        live_one = f"; version {live.number} is live" if live is not None else ""
        raise InvalidBody([Problem("/version", f"“{flow.name}” has no version of this number{live_one}.")])
    return version


def _prepare(
    request: Request, flow: Flow, version: FlowVersion | None, orders: Sequence[RunOrder], terms: Mapping[str, Any]
) -> list[RunRow]:
    given: Any = {name: value for name, value in terms.items() if value is not None}
    try:
        return prepare_runs(flow=flow, version=version, orders=orders, started_by=find_user(request), **given)
    except NotRunnableError as error:
        raise Conflict("not-runnable", str(error)) from error
