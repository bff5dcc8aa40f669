"""The events of a run as a stream."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from runs.api.access import SEE_RUNS
from runs.api.admission import ASKED_EACH, Admission
from runs.api.event_stream import Position, RunEvents, TooManyStreamsError
from runs.api.problems import ApiProblem
from runs.api.run_links import RunLinks
from runs.api.run_part import RunPart
from runs.api.run_watch import find_state
from runs.api.schema_parts import problem_responses

MEDIA_TYPE = "text/event-stream"
MOMENT = 10
"""Seconds after which somebody may ask again who found too many streams open."""

_DESCRIPTION = f"""\
Keeps the connection open and tells of the run as it goes on, as server-sent events:

- `run`: the run, as `GET /runs/{{id}}?attempts=none` gives it, after each change of it;
- `attempt`: an attempt that has ended, with its issues and its usage, in the order in which they ended;
- `end`: the run once more, when it has ended. It is the last event; the connection is then closed.

The stream begins with the attempts that ended before it was opened. Every event has an `id`: sent as `Last-Event-ID`
it brings what came after it, nothing twice and nothing left out; after the `id` of `end` the answer is 204, which tells
a browser’s `EventSource` to stop. A comment every 15 seconds shows that the connection lives. After 15 minutes the
server closes a stream; as after any break, ask again with the last `id`. A stream tells nothing more, and is closed,
when its token was revoked or has expired, or the account was closed or may see runs no more: {ASKED_EACH:.0f} seconds
later at most.

A server process has at most 200 streams open; beyond that the answer is 503 with `Retry-After`. A server that is no
ASGI server can’t stream and answers 501: ask for the run again from time to time instead.
"""


class EventStreamRenderer(JSONRenderer):
    """Lets whoever asks for an event stream in; what is rendered are the problems that came in its place."""

    media_type = MEDIA_TYPE
    format = "events"


class RunEventsView(RunPart):
    """How a run goes on, as it happens."""

    renderer_classes: Any = (EventStreamRenderer,)

    @extend_schema(
        operation_id="streamRunEvents",
        tags=["Runs"],
        summary="Follow a run as a stream of events",
        description=_DESCRIPTION,
        parameters=[
            OpenApiParameter(
                "Last-Event-ID",
                {"type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,10}-[0-9]{1,9}-[0-9]{1,9}(-end)?$"},
                OpenApiParameter.HEADER,
                description="The `id` of the last event that arrived: the stream goes on after it. One of "
                "another run is a mistake (400).",
            )
        ],
        responses={
            (200, MEDIA_TYPE): OpenApiResponse(OpenApiTypes.STR, "The stream of events."),
            204: OpenApiResponse(description="There is nothing after this `id`: the run has ended, and that was told."),
            **problem_responses(404, 501),
        },
    )
    def get(self, request: Request, run_id: int) -> HttpResponseBase:
        """The stream, or 204 if everything was told already."""
        state = find_state(run_id)
        if state is None:
            raise Http404
        position = _read_position(run_id, request.headers.get("Last-Event-ID", ""))
        if position.has_ended and state.has_ended:
            return HttpResponse(status=HTTPStatus.NO_CONTENT)
        if not isinstance(request._request, ASGIRequest):
            raise ApiProblem(
                HTTPStatus.NOT_IMPLEMENTED,
                "no-streams",
                "Only an ASGI server such as uvicorn streams events; ask for the run itself from time to time instead.",
            )
        if request.method == "HEAD":
            return HttpResponse(content_type=MEDIA_TYPE)
        try:
            admission = Admission(request._request, SEE_RUNS.permission)
            events: Any = RunEvents(state, position, RunLinks(request), admission)
        except TooManyStreamsError:
            raise ApiProblem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too-many-streams",
                f"Too many streams are open. Try again in {MOMENT} seconds, or ask for the run itself.",
                headers={"Retry-After": str(MOMENT)},
            ) from None
        # A proxy that collects answers before it sends them on would hold events back.
        return StreamingHttpResponse(events, content_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


def _read_position(run_id: int, text: str) -> Position:
    if not text:
        return Position(run_id)
    try:
        position = Position.parse(text)
    except ValueError:
        what = "which is no id of this stream"
    else:
        if position.run_id == run_id:
            return position
        what = f"which is of run {position.run_id}, not of run {run_id}"
    sentence = f"Last-Event-ID is “{text[:60]}”, {what}; leave it out to begin anew."
    raise ApiProblem(HTTPStatus.BAD_REQUEST, "bad-request", sentence)


urls: list[URLPattern] = [path("runs/<int:run_id>/events", RunEventsView.as_view(), name="run-events")]
