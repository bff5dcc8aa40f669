"""What can't be done is answered in one shape, whatever went wrong and wherever: problem documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, ProgrammingError
from django.http import HttpResponse
from django.test import Client, RequestFactory

from flows.models import Flow
from runs.api import base
from runs.api.problems import STATUSES
from tests.api.asking import Script, create_token, make_user, read, read_problem, read_type
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import make_run
from toolflow_site import request_handler
from toolflow_site.errors import show_refusal

pytestmark = pytest.mark.django_db

ORDER = {"flow": "example", "input": {"topic": "tea"}}
Provoke = Callable[[Script, pytest.MonkeyPatch, Any], HttpResponse]


def break_reading(error: Exception) -> Provoke:
    """A list of flows that can't be read for that reason."""

    def provoke(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise error

        monkeypatch.setattr("runs.api.flows.Flows.list_flows", fail)
        return script.get("flows")

    return provoke


def ask_too_often(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
    settings.TOOLFLOW_API_READS_PER_MINUTE = 0
    return script.get("runs")


def send_too_much(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
    settings.TOOLFLOW_API_MAX_BODY = 10
    return script.post("runs", ORDER)


def cancel_what_ended(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
    make_run(pk=4711, status="failed", ended_at=NOON)
    return script.post("runs/4711/cancel")


def send_nothing(script: Script, monkeypatch: pytest.MonkeyPatch, settings: Any) -> HttpResponse:
    """What the edge of the server answers, before Django is asked, to a body of which nothing comes."""
    monkeypatch.setattr(request_handler, "BODY_TIMEOUT", 0)
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/api/v1/runs", "scheme": "http"}
    scope |= {"query_string": b"", "headers": [(b"content-length", b"9")]}
    asyncio.run(request_handler.RequestHandler(max_body=10)(scope, receive, send))
    start, body, *_ = sent
    given = {name.decode(): value.decode() for name, value in start["headers"]}
    return HttpResponse(body["body"], status=start["status"], headers=given)


# By status: the type, and what is answered so.
PROBLEMS: dict[int, tuple[str, Provoke]] = {
    400: ("invalid-query", lambda script, *_: script.get("workers?colour=red")),
    401: ("not-authenticated", lambda *_: Script().get("runs")),
    403: ("forbidden", lambda *_: Script(create_token(make_user("nobody"))).get("runs")),
    404: ("not-found", lambda script, *_: script.get("runs/4711")),
    405: ("method-not-allowed", lambda script, *_: script.ask("DELETE", "runs")),
    406: ("not-acceptable", lambda script, *_: script.get("runs", Accept="image/png")),
    408: ("body-too-slow", send_nothing),
    409: ("run-ended", cancel_what_ended),
    411: ("length-required", lambda script, *_: script.post("runs", Transfer_Encoding="chunked")),
    412: (
        "flow-changed",
        lambda script, *_: script.put("flows/example", make_flow().to_document(), If_Match="*"),
    ),
    413: ("too-large", send_too_much),
    415: ("unsupported-media-type", lambda script, *_: script.post("runs", ORDER, Content_Type="text/plain")),
    422: ("invalid-body", lambda script, *_: script.post("runs", ORDER)),
    429: ("throttled", ask_too_often),
    500: ("internal-error", break_reading(RuntimeError("secret"))),
    501: (
        "no-streams",
        lambda script, *_: script.get(f"runs/{make_run().pk}/events", Accept="text/event-stream"),
    ),
    503: ("unavailable", break_reading(OperationalError("connection to secret.internal failed"))),
}


@pytest.mark.parametrize("status", STATUSES)
def test_each_is_a_problem_document(groups: None, monkeypatch: pytest.MonkeyPatch, settings: Any, status: int) -> None:
    kind, provoke = PROBLEMS[status]
    script = Script(create_token(make_user("chief", "Editor", "Administrator")))
    answer = provoke(script, monkeypatch, settings)
    problem = read_problem(answer)
    assert (problem["status"], problem["type"]) == (status, f"urn:toolflow:problem:{kind}")
    assert problem["request_id"] == answer["X-Request-ID"]
    assert ("errors" in problem) == (status in (400, 422))
    assert b"secret" not in answer.content


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InterfaceError("closed"), 503),
        *((error("no such column"), 500) for error in (DataError, ProgrammingError, IntegrityError)),
        (SuspiciousOperation("../"), 400),
    ],
)
def test_only_a_database_that_is_away_is_worth_another_try(
    viewer: Script, monkeypatch: pytest.MonkeyPatch, settings: Any, error: Exception, status: int
) -> None:
    assert read_problem(break_reading(error)(viewer, monkeypatch, settings))["status"] == status


def test_too_many_parameters_are_too_large(viewer: Script) -> None:
    assert read_type(viewer.get("runs?" + "a&" * 10_001)) == (413, "too-large")


class TestAddresses:
    @pytest.mark.parametrize("path", ["/api", "/api/v2/runs", "/api/v1/runs/", "/api//v1/runs", "/api/v1/%FF"])
    def test_where_nothing_is_there_is_a_problem_and_no_redirection(self, viewer: Script, path: str) -> None:
        for method in ("GET", "HEAD", "POST", "OPTIONS", "TRACE"):
            answer = viewer.ask(method, path)
            assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json"), method

    def test_beside_the_api_people_get_pages(self) -> None:
        # The client of tests takes what is behind two slashes for a host.
        assert read_problem(Client().get("/", PATH_INFO="//api/v1/runs"))["status"] == 404
        assert Client().get("/apis")["Content-Type"] == "text/html; charset=utf-8"


class TestAround:
    """What fails before an endpoint is asked, or after it has answered."""

    @pytest.mark.parametrize(("error", "status"), [(RuntimeError("bug"), 500), (OperationalError("gone"), 503)])
    def test_middleware(self, viewer: Script, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int) -> None:
        def fail(*args: Any) -> None:
            raise error

        monkeypatch.setattr("django.contrib.sessions.middleware.SessionMiddleware.process_request", fail)
        answer = viewer.get("flows")
        assert (read_problem(answer)["status"], answer["Cache-Control"]) == (status, "private, no-store")
        page = Client(raise_request_exception=False).get("/runs/")
        assert (page.status_code, page["Content-Type"]) == (500, "text/html; charset=utf-8")

    def test_the_answer_itself(self, viewer: Script, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: Any) -> None:
            raise RuntimeError("bug")

        monkeypatch.setattr(base, "not_modified", fail)
        assert read_problem(viewer.get("me"))["status"] == 500

    def test_a_host_that_is_not_ours(self, settings: Any) -> None:
        settings.ALLOWED_HOSTS = ["flows.example.com"]
        answer = Client().get("/api/v1/runs", headers={"Host": "evil.example"})
        assert read_problem(answer)["status"] == 400

    def test_a_refusal(self) -> None:
        answer = show_refusal(RequestFactory().get("/api/v1/runs"), PermissionError("Not from there."))
        assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")


@pytest.mark.parametrize("name", ["validate", "preview", "try-audits"])
class TestAddressesOfTools:
    """Addresses that are tools by one method, and flows of that name by others."""

    def test_they_are_looked_up_for_callers_who_are_let_in_only(
        self, viewer: Script, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        asked: list[Any] = []

        def fail(**values: Any) -> Any:
            asked.append(values)
            raise OperationalError("gone")

        monkeypatch.setattr(Flow, "objects", SimpleNamespace(filter=fail))
        for script in (Script(), Script("tf_wrong")):
            for method in ("GET", "PUT", "DELETE", "OPTIONS"):
                assert script.ask(method, f"flows/{name}").status_code == 401
        assert asked == []
        assert (read_problem(viewer.get(f"flows/{name}"))["status"], len(asked)) == (503, 1)

    def test_the_methods_are_those_of_what_is_there(self, editor: Script, name: str) -> None:
        assert editor.get(f"flows/{name}")["Allow"] == "POST"
        Flow.objects.create(name=name, title=name)
        assert read(editor, f"flows/{name}")["name"] == name
        assert editor.ask("PATCH", f"flows/{name}", {})["Allow"] == "GET, PUT, DELETE, HEAD"
