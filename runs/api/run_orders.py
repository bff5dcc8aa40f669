"""Reading what runs a body asks for. Nothing is stored here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.http import Http404
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.engine.json_values import find_unstorable
from flows.models import Flow, FlowVersion
from runs.api.problems import Conflict, InvalidBody
from runs.api.reading import read_body
from runs.api.run_actions_schema import NewRunsSerializer, RunAgainSerializer
from runs.api.schemas.run_bodies import NewRun
from runs.models import Priority, Run
from runs.models.run import REMOVED_INPUT
from runs.prepared_select import PreparedSelect, RowParts, build_row, list_columns
from runs.run_options import MAX_METADATA_BYTES, PRIORITIES, find_label_problems, list_lasting_labels, measure_metadata
from runs.submission import NotRunnableError, OrdersError, RunOrder, find_own_limits, prepare_runs
from runs.webhooks.addresses import find_obstacle

_TERMS = ("priority", "token_budget", "cost_budget", "time_limit", "webhook_url")
"""What a body may say of runs besides their inputs, labels and metadata."""

_OF_FLOW = frozenset({"id", "name", "title", "live_version_id", "is_archived"})
_OF_VERSION = frozenset({"id", "flow_id", "number", "spec"})
"""What starting a run needs to know: to read all columns takes half as long again."""
_PARTS = RowParts(list_columns(Flow, among=_OF_FLOW), list_columns(FlowVersion, "live_version", among=_OF_VERSION))
_FLOWS = PreparedSelect(
    lambda names: Flow.objects.filter(name=names[0]).order_by().values_list(*_PARTS.columns), most=1, kind=str
)


def prepare_run(request: Request, new: NewRun) -> list[Run]:
    """The one run that a body asks for. Raises ``InvalidBody``, and ``Conflict`` if the flow can't be run."""
    body = {name: getattr(new, name) for name in new.model_fields_set}
    if new.priority is not None:
        body["priority"] = PRIORITIES[new.priority]
    flow, version = _find_flow(body)
    order = _make_order(body)
    try:
        return _prepare(request, flow, version, [order], {name: body.get(name) for name in _TERMS})
    except OrdersError as error:
        raise InvalidBody(_point_at_one(error, order)) from error


def prepare_many(request: Request) -> list[Run]:
    """The runs that a body asks for. Raises as ``prepare_run``, with everything that is wrong with any of them."""
    body = read_body(NewRunsSerializer, request)
    flow, version = _find_flow(body)
    shared = body.get("labels") or ()
    problems = [Problem(f"/labels{problem.path}", problem.message) for problem in find_label_problems(shared)]
    # What is wrong with a label of all is said once.
    orders = [_make_order(own, () if problems else shared) for own in body["runs"]]
    runs: list[Run] = []
    try:
        runs = _prepare(request, flow, version, orders, {name: body.get(name) for name in _TERMS})
    except OrdersError as error:
        problems += [Problem(f"/runs{problem.path}", problem.message) for problem in _point_exactly(error, orders)]
    if problems:
        raise InvalidBody(problems)
    return runs


def prepare_again(request: Request, run_id: int) -> list[Run]:
    """A run like that of this number, but for what a body says. Raises as ``prepare_run``, and ``Http404``."""
    body = read_body(RunAgainSerializer, request)
    source = Run.objects.select_related("flow__live_version", "version").filter(pk=run_id).first()
    if source is None:
        raise Http404
    if source.outputs_removed_at is not None and "input" not in body:
        raise Conflict("outputs-removed", f"Run {run_id} can’t be run again: {REMOVED_INPUT} Give an input.")
    version = _choose_version(source, body.get("version", "same"))
    terms = {
        "priority": Priority(source.priority),
        "webhook_url": source.webhook_url,
        **find_own_limits(source, source.version.flow_spec),
        **{name: body[name] for name in _TERMS if name in body},
    }
    labels = list_lasting_labels(source.labels)
    if "webhook_url" not in body and source.webhook_url and (problem := find_obstacle(source.webhook_url)):
        raise InvalidBody([Problem("/webhook_url", f"That of run {run_id} can’t be told any more: {problem}")])
    order = _make_order({"input": source.input, "labels": labels, "metadata": source.metadata, **body}, again_of=run_id)
    try:
        return _prepare(request, source.flow, version, [order], terms)
    except OrdersError as error:
        problems = _point_at_one(error, order)
        if "input" not in body:
            problems = [_blame_version(problem, source, version) for problem in problems]
        raise InvalidBody(problems) from error


def _point_at_one(error: OrdersError, order: RunOrder) -> list[Problem]:
    return [Problem(problem.path.removeprefix("/0"), problem.message) for problem in _point_exactly(error, [order])]


def _point_exactly(error: OrdersError, orders: Sequence[RunOrder]) -> Iterator[Problem]:
    """The problems; of what can't be stored, which is told of an input as a whole, the very places in it."""
    exact: dict[str, list[Problem]] = {}
    for problem in error.problems:
        path = problem.path
        if path not in exact:
            exact[path] = _find_places(path, orders)
            yield from exact[path]
        if not exact[path]:
            yield problem


def _find_places(path: str, orders: Sequence[RunOrder]) -> list[Problem]:
    found = re.fullmatch(r"/([0-9]+)/(input|metadata)", path)
    if found is None:
        return []
    index, name = int(found[1]), found[2]
    order = orders[index]
    if name == "metadata" and measure_metadata(order.metadata) > MAX_METADATA_BYTES:
        return []
    return find_unstorable(getattr(order, name), index, name)


def _find_flow(body: dict[str, Any]) -> tuple[Flow, FlowVersion | None]:
    """The flow that a body names, and its version if it names one. Raises ``InvalidBody``."""
    rows = _FLOWS.fetch([body["flow"]])
    if not rows:
        raise InvalidBody([Problem("/flow", f"There is no flow “{body['flow'][:100]}”.")])
    own, live = _PARTS.split(rows[0])
    flow = build_row(Flow, own, among=_OF_FLOW)
    flow.live_version = None if live[0] is None else build_row(FlowVersion, live, among=_OF_VERSION)
    number = body.get("version")
    return flow, None if number is None else _find_version(flow, number)


def _find_version(flow: Flow, number: int) -> FlowVersion:
    live = flow.live_version
    if live is not None and live.number == number:
        return live
    version = flow.versions.filter(number=number).first()
    if version is None:
        live_one = f"; version {live.number} is live" if live is not None else ""
        raise InvalidBody([Problem("/version", f"“{flow.name}” has no version of this number{live_one}.")])
    return version


def _choose_version(source: Run, chosen: str | int) -> FlowVersion | None:
    if chosen == "same":
        return source.version
    return None if chosen == "live" else _find_version(source.flow, int(chosen))


def _make_order(values: dict[str, Any], more_labels: Sequence[str] = (), *, again_of: int | None = None) -> RunOrder:
    own = values.get("labels") or ()
    # First and as they were sent, so that what is wrong with one is told where it stands.
    labels = [*own, *(label for label in more_labels if label not in own)]
    return RunOrder(values["input"], labels, values.get("metadata") or {}, again_of)


def _prepare(
    request: Request, flow: Flow, version: FlowVersion | None, orders: Sequence[RunOrder], terms: dict[str, Any]
) -> list[Run]:
    """Runs that are not stored yet. Raises ``OrdersError``, and ``Conflict`` if the flow can't be run."""
    given = {name: value for name, value in terms.items() if value is not None}
    user: Any = request.user
    try:
        return prepare_runs(flow=flow, version=version, orders=orders, started_by=user, **given)
    except NotRunnableError as error:
        raise Conflict("not-runnable", str(error)) from error


def _blame_version(problem: Problem, source: Run, version: FlowVersion | None) -> Problem:
    if not problem.path.startswith("/input"):
        return problem
    number = (version or source.flow.live_version or source.version).number
    return Problem("/version", f"The input of run {source.pk} doesn’t fit version {number}: {problem.message}")
