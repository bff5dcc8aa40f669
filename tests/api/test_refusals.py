"""What is told of requests that are a little wrong: which part of them it is, in the API’s own shape."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, ProgrammingError
from django.test import Client

from flows.engine.json_values import MAX_PROBLEMS
from runs.models import Run
from tests.api.asking import Script, read_problem
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


def read_parameters(answer: Any) -> dict[str, str]:
    return {error["parameter"]: error["detail"] for error in read_problem(answer)["errors"]}


def read_pointers(answer: Any) -> dict[str, str]:
    return {error["pointer"]: error["detail"] for error in read_problem(answer)["errors"]}


def fail_with(error: Exception, viewer: Script, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is answered where reading flows raises that."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr("runs.api.flows.FlowList.get", fail)
    return read_problem(viewer.get("flows"))


class TestParameters:
    @pytest.mark.parametrize(
        ("address", "name"),
        [
            ("runs?limit=1&limit=2", "limit"),
            ("runs?flow=a&flow=b", "flow"),
            ("flows?archived=all&archived=all", "archived"),
            ("statistics/usage?model=a&model=b", "model"),
            ("trail?actor=a&actor=b", "actor"),
        ],
    )
    def test_one_that_can_have_one_value_is_given_once(self, administrator: Script, address: str, name: str) -> None:
        """Whichever counted, somebody would take the answer for that to the other."""
        answer = administrator.get(address)
        assert answer.status_code == 400
        assert read_parameters(answer) == {name: f"“{name}” stands in the query 2 times; give it once."}

    @pytest.mark.parametrize("query", ["status=failed&status=queued", "status=failed,queued"])
    def test_one_that_can_have_several_may_be_repeated_or_have_commas(self, viewer: Script, query: str) -> None:
        queued = make_run()
        make_run(
            queued.version, status="running", lease_until="2030-01-01T00:00:00Z", started_at="2026-01-01T00:00:00Z"
        )
        answer: Any = viewer.get(f"runs?{query}")
        assert [run["id"] for run in answer.json()["items"]] == [queued.pk]


class TestTooMuch:
    def test_a_query_of_too_many_parameters_is_too_large(self, viewer: Script) -> None:
        answer = viewer.get("runs?" + "a&" * 10_001)
        problem = read_problem(answer)
        assert (problem["status"], problem["type"]) == (413, "urn:toolflow:problem:too-large")
        assert "more than 10,000 parameters" in problem["detail"]

    def test_what_looks_like_an_attack_is_a_bad_request(self, viewer: Script, monkeypatch: pytest.MonkeyPatch) -> None:
        assert fail_with(SuspiciousOperation("../"), viewer, monkeypatch)["status"] == 400


class TestFaults:
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (OperationalError("gone"), 503),
            (InterfaceError("closed"), 503),
            (DataError("no such text"), 500),
            (ProgrammingError("no such column"), 500),
            (IntegrityError("twice"), 500),
        ],
    )
    def test_only_a_database_that_is_away_is_worth_another_try(
        self, viewer: Script, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
    ) -> None:
        problem = fail_with(error, viewer, monkeypatch)
        assert (problem["status"], "Try again soon" in problem["detail"]) == (status, status == 503)


class TestAddresses:
    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "TRACE"])
    @pytest.mark.parametrize(
        "path",
        ["/api", "/api/", "/api/v1", "/api/v2/runs", "/api/v1/runs/", "/api/v1/docs/", "/api//v1/runs", "/api/v1/%FF"],
    )
    def test_where_nothing_is_there_is_a_problem_and_no_page(self, viewer: Script, method: str, path: str) -> None:
        """Nor is anybody led to another address, where what was sent is lost."""
        answer = viewer.ask(method, path)
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")

    def test_an_address_with_a_slash_too_many_is_answered_as_one_of_the_api(self) -> None:
        # The client of tests takes what stands behind two slashes for a host.
        answer = Client().get("/", PATH_INFO="//api/v1/runs")
        assert read_problem(answer)["status"] == 404
        assert Client().get("/apis")["Content-Type"] == "text/html; charset=utf-8"

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
    def test_what_can_only_be_read_says_so(self, viewer: Script, method: str) -> None:
        answer = viewer.ask(method, "schema")
        assert (read_problem(answer)["status"], answer["Allow"]) == (405, "GET, HEAD")


class TestHeaders:
    def test_an_empty_accept_asks_for_nothing_in_particular(self, viewer: Script) -> None:
        for accept in ("", " ", ","):
            assert viewer.get("runs", Accept=accept).status_code == 200
            assert viewer.get("schema", Accept=accept)["Content-Type"] == "application/json"
        assert viewer.get("runs", Accept="image/png").status_code == 406

    def test_a_host_that_is_not_ours_is_told_of_in_the_api_s_own_shape(self, settings: Any) -> None:
        settings.ALLOWED_HOSTS = ["flows.example.com"]
        client = Client(raise_request_exception=False)
        problem = read_problem(client.get("/api/v1/runs", headers={"Host": "evil.example"}))
        assert (problem["status"], problem["type"]) == (400, "urn:toolflow:problem:bad-request")
        assert "“Host”" in problem["detail"] and "evil" not in problem["detail"]
        # People get a page.
        page = client.get("/runs/", headers={"Host": "evil.example"})
        assert (page.status_code, page["Content-Type"]) == (400, "text/html; charset=utf-8")


class TestWhatCanNotBeStored:
    def test_each_place_is_reported_by_its_pointer(self, operator: Script) -> None:
        make_version(make_flow())
        body = rb"""{"flow": "example", "metadata": {"x": ["fine", "\u0000"]}, "input": {
            "topic": "tea", "parts": [{"a/b": "half \ud83d"}, "fine", {"\u0000": 1}], "deep": {"er": "\udc00"}
        }}"""
        places = {"/input/parts/0/a~1b", "/input/parts/2", "/input/deep/er", "/metadata"}
        assert read_pointers(operator.post("runs", body)).keys() == places
        assert not Run.objects.exists()

    def test_of_many_runs_each_is_named(self, operator: Script) -> None:
        make_version(make_flow())
        runs = [{"input": {"topic": "tea"}}, {"input": {"topic": "\0"}}, {"input": {"topic": "a", "b": "\0"}}]
        answer = operator.post("runs/bulk", {"flow": "example", "runs": runs})
        assert read_pointers(answer).keys() == {"/runs/1/input/topic", "/runs/2/input/b"}

    def test_a_run_that_is_run_again_with_another_input_is_no_exception(self, operator: Script) -> None:
        run = make_run()
        answer = operator.post(f"runs/{run.pk}/run-again", {"input": {"topic": ["\0"]}})
        assert read_pointers(answer).keys() == {"/input/topic/0"}

    def test_an_input_full_of_them_is_reported_in_part(self, operator: Script) -> None:
        make_version(make_flow())
        answer = operator.post("runs", {"flow": "example", "input": {"topic": ["\0"] * 5_000}})
        assert len(read_pointers(answer)) == MAX_PROBLEMS
