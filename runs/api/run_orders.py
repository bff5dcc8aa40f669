"""The runs that a body asks for. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import Http404
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.models import Flow, FlowVersion
from runs.api.problems import Conflict, InvalidBody
from runs.api.schemas.run_bodies import NewRun, NewRuns, Rerun, RunTerms
from runs.models import Priority, Run
from runs.models.run import REMOVED_INPUT
from runs.run_options import PRIORITIES, find_label_problems, list_lasting_labels
from runs.submission import NotRunnableError, OrdersError, RunOrder, find_own_limits, prepare_runs
from runs.webhooks.addresses import find_obstacle


def prepare_run(request: Request, new: NewRun) -> Run:
    """A run that isn't stored yet. Raises ``InvalidBody``, and ``Conflict`` if the flow can't be run."""
    flow, version = _find_flow(new.flow, new.version)
    order = RunOrder(new.input, new.labels or (), new.metadata or {})
    return _prepare_one(request, flow, version, order, _list_terms(new))


def prepare_many(request: Request, new: NewRuns) -> list[Run]:
    """Many runs. Raises as ``prepare_run``, with everything that is wrong with any of them."""
    flow, version = _find_flow(new.flow, new.version)
    shared = new.labels or []
    problems = [Problem(f"/labels{problem.path}", problem.message) for problem in find_label_problems(shared)]
    # What is wrong with a label of all is reported once.
    shared = [] if problems else shared
    # The own labels come first and as they were sent, so that a problem has the place of its label.
    orders = [
        RunOrder(
            one.input,
            [*(one.labels or ()), *(label for label in shared if label not in (one.labels or ()))],
            one.metadata or {},
        )
        for one in new.runs
    ]
    runs: list[Run] = []
    try:
        runs = _prepare(request, flow, version, orders, _list_terms(new))
    except OrdersError as error:
        problems += [Problem(f"/runs{problem.path}", problem.message) for problem in error.problems]
    if problems:
        raise InvalidBody(problems)
    return runs


def prepare_rerun(request: Request, run_id: int, rerun: Rerun) -> Run:
    """A run like that of this number, but for what the body says. Raises as ``prepare_run``, and ``Http404``."""
    source = Run.objects.select_related("flow__live_version", "version").filter(pk=run_id).first()
    if source is None:
        raise Http404
    given = rerun.model_fields_set
    if source.outputs_removed_at is not None and "input" not in given:
        raise Conflict("outputs-removed", f"Run {run_id} can’t be run again: {REMOVED_INPUT} Give an input.")
    terms = {
        "priority": Priority(source.priority),
        "webhook_url": source.webhook_url,
        **find_own_limits(source, source.version.flow_spec),
        **_list_terms(rerun),
    }
    if "webhook_url" not in given and source.webhook_url and (problem := find_obstacle(source.webhook_url)):
        raise InvalidBody([Problem("/webhook_url", f"That of run {run_id} can’t be notified any more: {problem}")])
    order = RunOrder(
        rerun.input if "input" in given else source.input,
        (rerun.labels or ()) if "labels" in given else list_lasting_labels(source.labels),
        (rerun.metadata or {}) if "metadata" in given else source.metadata,
        run_id,
    )
    version: FlowVersion | None = source.version
    if rerun.version != "same":
        version = None if rerun.version == "live" else _find_version(source.flow, rerun.version)
    try:
        return _prepare_one(request, source.flow, version, order, terms)
    except InvalidBody as error:
        if "input" in given:
            raise
        number = (version or source.flow.live_version or source.version).number
        raise InvalidBody([_point_at_version(problem, run_id, number) for problem in error.errors]) from error


def _point_at_version(problem: Problem, run_id: int, number: int) -> Problem:
    if not problem.path.startswith("/input"):
        return problem
    return Problem("/version", f"The input of run {run_id} doesn’t fit version {number}: {problem.message}")


def _list_terms(terms: RunTerms) -> dict[str, Any]:
    """What a body says of runs besides their inputs, labels and metadata, by name; None where it says null."""
    found = {name: getattr(terms, name) for name in RunTerms.model_fields if name in terms.model_fields_set}
    if found.get("priority") is not None:
        found["priority"] = PRIORITIES[found["priority"]]
    return found


def _find_flow(name: str, number: int | None) -> tuple[Flow, FlowVersion | None]:
    """The flow of that name, and its version of that number if one is given. Raises ``InvalidBody``."""
    # To read all columns takes half as long again.
    of_version = (f"live_version__{column}" for column in ("flow", "number", "spec"))
    flows = Flow.objects.select_related("live_version").only("name", "title", "is_archived", *of_version)
    flow = flows.filter(name=name).first()
    if flow is None:
        raise InvalidBody([Problem("/flow", f"There is no flow “{name}”.")])
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


def _prepare_one(
    request: Request, flow: Flow, version: FlowVersion | None, order: RunOrder, terms: Mapping[str, Any]
) -> Run:
    try:
        (run,) = _prepare(request, flow, version, [order], terms)
    except OrdersError as error:
        problems = [Problem(problem.path.removeprefix("/0"), problem.message) for problem in error.problems]
        raise InvalidBody(problems) from error
    return run


def _prepare(
    request: Request, flow: Flow, version: FlowVersion | None, orders: Sequence[RunOrder], terms: Mapping[str, Any]
) -> list[Run]:
    given: Any = {name: value for name, value in terms.items() if value is not None}
    user: Any = request.user
    try:
        return prepare_runs(flow=flow, version=version, orders=orders, started_by=user, **given)
    except NotRunnableError as error:
        raise Conflict("not-runnable", str(error)) from error
