"""The steps of a run, and its attempts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from django.db.models import Q
from django.http import Http404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.paging import PAGING, Page, answer_page, cut_page, find_paging, make_places
from runs.api.problems import InvalidQuery
from runs.api.run_links import RunLinks
from runs.api.run_part import RunPart, check_run
from runs.api.run_query import READING, find_choices, find_number, find_reading, read_reading
from runs.api.runs_parameters import ATTEMPT_FILTERS, DETAIL_PARAMETERS, PLACE_PARAMETERS, READING_PARAMETERS
from runs.api.schema_parts import problem_responses
from runs.api.schemas.runs import OUTCOMES, AttemptPage, StepPage
from runs.api.schemas.runs import Attempt as AttemptSchema
from runs.api.schemas.runs import Step as StepSchema
from runs.documents import Shown, StepDocuments, build_attempt, build_input_attempt, list_attempts
from runs.models import Attempt, Run

DETAIL = ("usage", "min_severity")
PLACES = make_places("step", "attempt")


class StepList(RunPart):
    """The steps of a run."""

    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": READING}

    @extend_schema(
        operation_id="listSteps",
        tags=["Runs"],
        summary="List the steps of a run",
        description="All steps with their attempts, also those that have not begun. Step 0 is the input. "
        "They are always one page.",
        parameters=READING_PARAMETERS,
        responses={200: OpenApiResponse(StepPage, "The steps."), **problem_responses(404)},
    )
    def get(self, request: Request, run_id: int) -> Response:
        """The steps, in order."""
        reading = read_reading(request.query_params)
        steps = StepDocuments(has_attempts=reading.has_attempts, shown=reading.shown).read(run_id)
        if steps is None:
            raise Http404
        links = RunLinks(request)
        items = [links.complete_step(run_id, step) for step in steps]
        # A flow has so few steps that they are one page, of the same shape as of other lists.
        return answer_page(request, Page(items, next=None, previous=None), items)


class StepDetail(RunPart):
    """One step of a run."""

    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": READING}

    @extend_schema(
        operation_id="getStep",
        tags=["Runs"],
        summary="Read a step",
        description="One step with its attempts. Step 0 is the input.",
        parameters=READING_PARAMETERS,
        responses={200: OpenApiResponse(StepSchema, "The step."), **problem_responses(404)},
    )
    def get(self, request: Request, run_id: int, index: int) -> Response:
        """The step."""
        reading = read_reading(request.query_params)
        documents = StepDocuments(has_attempts=reading.has_attempts, shown=reading.shown)
        step = documents.read_one(run_id, index)
        if step is None:
            raise Http404
        return Response(RunLinks(request).complete_step(run_id, step))


class AttemptList(RunPart):
    """The attempts of a run."""

    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": ("step", "outcome", *DETAIL, *PAGING)}
    repeatable = ("outcome",)

    @extend_schema(
        operation_id="listAttempts",
        tags=["Runs"],
        summary="List the attempts of a run",
        description="The attempts in the order of steps and numbers, each with its output, its issues and its token "
        "usage. The input, step 0, is not among them.",
        parameters=[*ATTEMPT_FILTERS, *DETAIL_PARAMETERS, *PLACE_PARAMETERS],
        responses={200: OpenApiResponse(AttemptPage, "A page of attempts."), **problem_responses(404)},
    )
    def get(self, request: Request, run_id: int) -> Response:
        """A page of attempts."""
        query = request.query_params
        paging, problems = find_paging(query, PLACES)
        shown = find_reading(query, problems).shown
        step = find_number(query, "step", problems)
        outcomes = find_choices(query, "outcome", OUTCOMES, problems)
        if problems:
            raise InvalidQuery(problems)
        check_run(run_id)
        rows = list_attempts().filter(step__run=run_id)
        if step is not None:
            rows = rows.filter(step__index=step)
        if outcomes:
            rows = rows.filter(outcome__in=outcomes)
        if paging.before is not None:
            index, number = paging.before
            rows = rows.filter(Q(step__index__lt=index) | Q(step__index=index, number__lt=number))
        if paging.after is not None:
            index, number = paging.after
            rows = rows.filter(Q(step__index__gt=index) | Q(step__index=index, number__gt=number))
        is_backward = paging.is_backward(is_descending=False)
        ordered = rows.order_by(*(("-step__index", "-number") if is_backward else ("step__index", "number")))
        page = cut_page(ordered[: paging.limit + 1], paging, key_of=_read_place)
        links = RunLinks(request)
        items = [links.complete_attempt(run_id, build_attempt(row, shown)) for row in page.rows]
        return answer_page(request, page, items)


def _read_place(row: Attempt) -> tuple[int, ...]:
    return (row.step.index, row.number)


class AttemptDetail(RunPart):
    """One attempt."""

    parameters: ClassVar[Mapping[str, Collection[str]]] = {"GET": DETAIL}

    @extend_schema(
        operation_id="getAttempt",
        tags=["Runs"],
        summary="Read an attempt",
        description="One attempt, whole: its output as it was used and as it came, the request that the model saw, "
        "its issues and its token usage.",
        parameters=DETAIL_PARAMETERS,
        responses={200: OpenApiResponse(AttemptSchema, "The attempt."), **problem_responses(404)},
    )
    def get(self, request: Request, run_id: int, index: int, number: int) -> Response:
        """The attempt."""
        shown = read_reading(request.query_params).shown
        document = _find_attempt(run_id, index, number, shown)
        return Response(RunLinks(request).complete_attempt(run_id, document))


def _find_attempt(run_id: int, index: int, number: int, shown: Shown) -> dict[str, Any]:
    if index == 0:
        # A list around it, for an input may be None.
        inputs = list(Run.objects.filter(pk=run_id).values_list("input", flat=True))
        if not inputs or number != 1:
            raise Http404
        return build_input_attempt(inputs[0], shown)
    row = list_attempts().filter(step__run=run_id, step__index=index, number=number).first()
    if row is None:
        raise Http404
    return build_attempt(row, shown)


urls: list[URLPattern] = [
    path("runs/<int:run_id>/steps", StepList.as_view(), name="step-list"),
    path("runs/<int:run_id>/steps/<int:index>", StepDetail.as_view(), name="step"),
    path("runs/<int:run_id>/steps/<int:index>/attempts/<int:number>", AttemptDetail.as_view(), name="attempt"),
    path("runs/<int:run_id>/attempts", AttemptList.as_view(), name="attempt-list"),
]
