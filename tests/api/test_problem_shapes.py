"""The one shape of errors, pinned for every status that the API can answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from django.db import OperationalError
from django.http import HttpResponse

from runs.api.problems import KINDS
from runs.api.schemas.problems import STATUSES
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import make_run
from toolflow_site import request_handler

pytestmark = pytest.mark.django_db

ORDER = {"flow": "example", "input": {"topic": "tea"}}
Provoke = Callable[[Script, pytest.MonkeyPatch, Any], HttpResponse]


def break_reading(error: Exception) -> Provoke:
    def provoke(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise error

        monkeypatch.setattr("runs.api.flows.FlowList.get", fail)
        return script.get("flows")

    return provoke


def ask_too_often(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
    settings.TOOLFLOW_API_READS_PER_MINUTE = 0
    monkeypatch.setattr("runs.api.access.read_time", lambda: 18.0)
    return script.get("runs")


def send_too_much(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
    settings.TOOLFLOW_API_MAX_BODY = 10
    return script.post("runs", ORDER)


def cancel_what_ended(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
    make_run(pk=4711, status="failed", ended_at=NOON)
    return script.post("runs/4711/cancel")


def ask_edge(
    monkeypatch: pytest.MonkeyPatch,
    *,
    length: int,
    most_bytes: int,
    seconds: int = request_handler.BODY_TIMEOUT,
) -> HttpResponse:
    """What the edge of the server answers, before Django is asked, to a body of which nothing comes."""
    monkeypatch.setattr(request_handler, "BODY_TIMEOUT", seconds)
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", str(length).encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/api/v1/runs", "scheme": "http"}
    scope |= {"query_string": b"", "headers": headers}
    asyncio.run(request_handler.RequestHandler(max_body=most_bytes)(scope, receive, send))
    start, body, *_ = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    return HttpResponse(body["body"], status=start["status"], headers=told)


# By status: type, title, detail, errors, and what is answered so.
SHAPES: dict[int, tuple[str, str, str, list[dict[str, str]] | None, Provoke]] = {
    400: (
        "invalid-query", "Bad Request", "There is no parameter “colour” here; known: none.",
        [{"parameter": "colour", "detail": "There is no parameter “colour” here; known: none."}],
        lambda script, *_: script.get("workers?colour=red"),
    ),
    401: (
        "not-authenticated", "Unauthorized",
        "Send a token as “Authorization: Bearer tf_…”. The page “API tokens” makes them.", None,
        lambda *_: Script().get("runs"),
    ),
    403: (
        "forbidden", "Forbidden", "Your account lacks the permission “runs.view_run”.", None,
        lambda *_: Script(make_token(make_user("nobody"))).get("runs"),
    ),
    404: ("not-found", "Not Found", "There is nothing here.", None, lambda script, *_: script.get("runs/4711")),
    405: (
        "method-not-allowed", "Method Not Allowed",
        "This address doesn’t take this method; the header “Allow” names those that it takes.", None,
        lambda script, *_: script.ask("DELETE", "runs"),
    ),
    406: (
        "not-acceptable", "Not Acceptable",
        "Nothing that the header “Accept” names is given here; ask for application/json or */*.", None,
        lambda script, *_: script.get("runs", Accept="image/png"),
    ),
    408: (
        "body-too-slow", "Request Timeout", "The body did not arrive within 0 seconds.", None,
        lambda _, monkeypatch, __: ask_edge(monkeypatch, length=9, most_bytes=10, seconds=0),
    ),
    409: ("run-ended", "Conflict", "Run 4711 has ended already: it failed.", None, cancel_what_ended),
    411: (
        "length-required", "Length Required",
        "This server reads no body in chunks; send it with Content-Length.", None,
        lambda script, *_: script.post("runs", Transfer_Encoding="chunked"),
    ),
    412: (
        "flow-changed", "Precondition Failed",
        "This has changed since you read it, or is not there. Read it again.", None,
        lambda script, *_: script.put("flows/example", make_flow().to_document(), If_Match="*"),
    ),
    413: (
        "too-large", "Content Too Large", "The body is larger than 10 bytes, the limit here.", None, send_too_much,
    ),
    415: (
        "unsupported-media-type", "Unsupported Media Type",
        "The header “Content-Type” names nothing that is read here; "  # noqa: ISC004  # it fits no line
        "send application/json, or YAML where the reference says so.", None,
        lambda script, *_: script.post("runs", ORDER, Content_Type="text/plain"),
    ),
    422: (
        "invalid-body", "Unprocessable Content", "The body has a mistake.",
        [{"pointer": "/flow", "detail": "There is no flow “example”."}],
        lambda script, *_: script.post("runs", ORDER),
    ),
    429: (
        "throttled", "Too Many Requests", "Too many requests. Try again in 42 seconds.", None, ask_too_often,
    ),
    500: (
        "internal-error", "Internal Server Error", "ToolFlow failed. The server’s log says why.", None,
        break_reading(RuntimeError("secret")),
    ),
    501: (
        "no-streams", "Not Implemented",
        "Only an ASGI server such as uvicorn streams events; ask for the run itself from time to time instead.", None,
        lambda script, *_: script.get(f"runs/{make_run().pk}/events", Accept="text/event-stream"),
    ),
    503: (
        "unavailable", "Service Unavailable", "The database is not available. Try again soon.", None,
        break_reading(OperationalError("connection to db.internal failed")),
    ),
}  # fmt: skip


def test_every_status_is_pinned() -> None:
    assert SHAPES.keys() == {int(status) for status in KINDS} | STATUSES.keys()


@pytest.mark.parametrize("status", sorted(SHAPES))
def test_the_shape_of_a_problem(groups: None, monkeypatch: pytest.MonkeyPatch, settings: Any, status: int) -> None:
    kind, title, detail, errors, provoke = SHAPES[status]
    script = Script(make_token(make_user("chief", "Editor", "Administrator")))
    answer = provoke(script, monkeypatch, settings)
    problem = read_problem(answer)
    assert problem.pop("request_id") == answer["X-Request-ID"]
    expected: dict[str, Any] = {
        "type": f"urn:toolflow:problem:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
    }
    assert problem == expected | ({"errors": errors} if errors else {})


def test_the_edge_of_the_server_refuses_in_the_same_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask_edge(monkeypatch, length=11, most_bytes=10)
    kind, title, _, _, _ = SHAPES[413]
    problem = read_problem(answer)
    assert problem == {
        "type": f"urn:toolflow:problem:{kind}",
        "title": title,
        "status": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "detail": "The body is larger than 10 bytes, the limit here.",
        "request_id": answer["X-Request-ID"],
    }
