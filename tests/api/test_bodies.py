"""How bodies may be sent, and what is said of those that can't be read."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from django.apps import apps
from django.test import Client

from flows.models import FlowVersion
from runs.access_groups import create_groups
from runs.models import Run
from runs.run_options import MAX_METADATA_BYTES
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.api.event_reading import PATIENCE, serve
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version

BODY = json.dumps({"flow": "example", "input": {"topic": "tea"}}).encode()


def read_errors(answer: Any) -> dict[str, str]:
    """What is wrong, by pointer."""
    return {error["pointer"]: error["detail"] for error in read_problem(answer)["errors"]}


@pytest.mark.django_db(transaction=True)
class TestInChunks:
    """Clients that don’t know how long a body will be send it in chunks, without ``Content-Length``."""

    @pytest.fixture
    def port(self, transactional_db: None) -> Iterator[int]:
        create_groups(apps=apps, using="default")
        with serve() as port:
            yield port

    def send(self, port: int, path: str, parts: list[bytes]) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {make_token(make_user('operator', 'Operator'))}"}
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
            connection.request(
                "POST",
                f"/api/v1/{path}",
                iter(parts),
                {**headers, "Content-Type": "application/json"},
                encode_chunked=True,
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def test_it_is_read_as_any_other(self, port: int) -> None:
        make_version(make_flow())
        status, document = self.send(port, "runs", [BODY[:10], BODY[10:]])
        assert (status, document["flow"]) == (202, "example"), document
        assert Run.objects.get().input == {"topic": "tea"}

    def test_what_is_wrong_with_it_is_not_passed_over(self, port: int) -> None:
        run = Run.objects.get(pk=make_run_of(make_version(make_flow())))
        status, document = self.send(port, f"runs/{run.pk}/cancel", [b'{"why": 1}'])
        assert (status, [error["pointer"] for error in document["errors"]]) == (422, ["/why"])
        run.refresh_from_db()
        assert run.status == "queued"


def make_run_of(version: FlowVersion) -> int:
    """A queued run."""
    run_id: int = make_run(version).pk
    return run_id


@pytest.mark.django_db
class TestOthers:
    def test_a_server_that_hands_on_no_chunks_asks_for_the_length(self, operator: Script) -> None:
        token = make_token(make_user("operator", "Operator"), name="another")
        sent = {"Authorization": f"Bearer {token}", "Transfer-Encoding": "chunked"}
        answer: Any = Client().generic("POST", "/api/v1/runs", b"", content_type="application/json", headers=sent)
        problem = read_problem(answer)
        assert (problem["status"], problem["type"]) == (411, "urn:toolflow:problem:length-required")
        assert problem["detail"] == "This server reads no body in chunks; send it with Content-Length."

    def test_a_body_that_is_compressed_is_refused_as_such(self, operator: Script) -> None:
        answer = operator.post("runs", gzip.compress(BODY), Content_Encoding="gzip")
        problem = read_problem(answer)
        assert (problem["status"], answer["Accept-Encoding"]) == (415, "identity")
        assert problem["detail"] == "The body is encoded as “gzip”; send it as it is, without Content-Encoding."

    def test_one_that_says_that_it_is_not_is_read(self, operator: Script) -> None:
        make_version(make_flow())
        assert operator.post("runs", BODY, Content_Encoding="identity").status_code == 202

    def test_all_mistakes_are_told_at_once_unknown_names_too(self, operator: Script) -> None:
        make_version(make_flow())
        errors = read_errors(operator.post("runs", {"colour": "red", "flow": 7, "version": 0}))
        assert errors.keys() == {"/colour", "/flow", "/input", "/version"}

    def test_so_are_those_of_each_of_many_runs(self, operator: Script) -> None:
        make_version(make_flow())
        runs = [{"inputs": {}}, {"input": {"topic": "tea"}}, 7, {"input": 1, "label": "x"}]
        assert read_errors(operator.post("runs/bulk", {"flow": "example", "runs": runs, "colour": 1})).keys() == {
            "/colour", "/runs/0/inputs", "/runs/0/input", "/runs/2", "/runs/3/input", "/runs/3/label",
        }  # fmt: skip
        assert not Run.objects.exists()

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("runs", {f"field_{number}": 1 for number in range(5_000)}),
            ("runs/bulk", {"flow": "example", "runs": [{f"field_{number}": 1 for number in range(60)}] * 300}),
        ],
    )
    def test_of_very_many_mistakes_only_the_first_are_gathered(
        self, path: str, body: dict[str, Any], operator: Script
    ) -> None:
        problem = read_problem(operator.post(path, body))
        assert problem["detail"] == "The body has 100 mistakes or more."
        assert len(problem["errors"]) == 100

    def test_metadata_that_is_too_large_is_not_searched_for_other_mistakes(self, operator: Script) -> None:
        make_version(make_flow())
        body = {"flow": "example", "input": {}, "metadata": {"a": "\0", "b": "x" * MAX_METADATA_BYTES}}
        errors = read_errors(operator.post("runs", body))
        assert errors.keys() == {"/metadata"}
        assert errors["/metadata"].startswith("Metadata may have 16,384 bytes as JSON; this has")

    def test_an_address_that_takes_nothing_says_so(self, operator: Script) -> None:
        run_id = make_run_of(make_version(make_flow()))
        assert read_errors(operator.post(f"runs/{run_id}/cancel", {"why": 1})) == {
            "/why": "There is no field of this name."
        }

    @pytest.mark.parametrize(
        ("body", "found"), [(b"null", "null"), (b"[]", "a list"), (b"7", "an integer"), (b'"tea"', "text")]
    )
    @pytest.mark.parametrize("path", ["runs", "runs/bulk", "runs/1/run-again", "flows/preview"])
    def test_what_is_no_object_is_named(self, editor: Script, path: str, body: bytes, found: str) -> None:
        assert read_errors(editor.post(path, body)) == {"": f"The body must be a JSON object, got {found}."}

    def test_characters_that_can_not_be_stored_are_named(self, operator: Script) -> None:
        for flow in ("a\\u0000b", "\\ud800"):
            errors = read_errors(operator.post("runs", b'{"flow": "%b", "input": {}}' % flow.encode()))
            assert errors.keys() == {"/flow"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "headers", "status", "detail"),
    [
        ("DELETE", {}, 405, "This address doesn’t take this method; the header “Allow” names those that it takes."),
        (
            "GET",
            {"Accept": "application/xml"},
            406,
            "Nothing that the header “Accept” names is given here; ask for application/json or */*.",
        ),
        (
            "POST",
            {"Content_Type": "text/plain"},
            415,
            (
                "The header “Content-Type” names nothing that is read here; send application/json, or YAML where the "
                "reference says so."
            ),
        ),
    ],
)
def test_what_the_framework_refuses_is_said_in_our_words(
    operator: Script, method: str, headers: dict[str, str], status: int, detail: str
) -> None:
    problem = read_problem(operator.ask(method, "runs", BODY if method == "POST" else None, **headers))
    assert (problem["status"], problem["detail"]) == (status, detail)
