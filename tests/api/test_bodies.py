"""How bodies may be sent, which are refused unread, and which answers may be asked for."""

from __future__ import annotations

import gzip
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from django.apps import apps

from flows.engine.json_values import MAX_PROBLEMS
from runs.access_groups import create_groups
from runs.api.documentation import build_schema
from tests.api.asking import Script, create_token, list_wrong, make_user, read_problem, read_type
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version
from tests.serving import TIMEOUT, serve

PROBLEM = "application/problem+json"
BODY = json.dumps({"flow": "example", "input": {"topic": "tea"}}).encode()


@pytest.mark.django_db(transaction=True)
def test_a_body_in_chunks_without_a_length_is_read_as_any_other(transactional_db: None) -> None:
    create_groups(apps=apps, using="default")
    run = make_run(make_version(make_flow()))
    token = create_token(make_user("operator", "Operator"))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def send(port: int, path: str, *parts: bytes) -> tuple[int, Any]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
            connection.request("POST", f"/api/v1/{path}", iter(parts), headers, encode_chunked=True)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    with serve() as port:
        status, document = send(port, "runs", BODY[:10], BODY[10:])
        assert (status, document["input"]) == (202, {"topic": "tea"})
        status, document = send(port, f"runs/{run.pk}/cancel", b'{"why": 1}')
        assert (status, [error["pointer"] for error in document["errors"]]) == (422, ["/why"])


@pytest.mark.django_db
class TestRefused:
    def test_a_body_that_is_compressed_is_refused_as_such(self, operator: Script) -> None:
        answer = operator.post("runs", gzip.compress(BODY), Content_Encoding="gzip")
        assert (read_problem(answer)["status"], answer["Accept-Encoding"]) == (415, "identity")
        make_version(make_flow())
        assert operator.post("runs", BODY, Content_Encoding="identity").status_code == 202

    def test_of_very_many_mistakes_only_the_first_are_listed(self, operator: Script) -> None:
        make_version(make_flow())
        fields = {f"field_{number}": 1 for number in range(5_000)}
        assert len(list_wrong(operator.post("runs", fields), 422)) == 100
        body = {"flow": "example", "runs": [dict.fromkeys(list(fields)[:60])] * 300}
        assert len(list_wrong(operator.post("runs/bulk", body), 422)) == 100
        body = {"flow": "example", "input": {"topic": ["\0"] * 5_000}}
        assert len(list_wrong(operator.post("runs", body), 422)) == MAX_PROBLEMS


def list_operations() -> Iterator[tuple[str, str, list[str]]]:
    """Method, path and documented types of what is answered, in the order of the document."""
    document = build_schema()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = [
                document["components"]["responses"][answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
                for answer in operation["responses"].values()
            ]
            types = dict.fromkeys(media_type for answer in answers for media_type in answer.get("content", {}))
            yield method.upper(), path, list(types)


@pytest.mark.django_db
def test_every_operation_takes_what_clients_make_of_its_documented_types(groups: None) -> None:
    """Some send all of them, others the first with “json” in it."""
    script = Script(create_token(make_user("chief", "Editor", "Administrator")))
    refused = []
    for method, path, types in list_operations():
        for accepted in (", ".join(types), next((one for one in types if "json" in one.lower()), "*/*")):
            answer = script.ask(method, re.sub(r"\{\w+\}", "1", path.lstrip("/")), Accept=accepted)
            refused += [f"{method} {path} with {accepted}"] * (answer.status_code == 406)
    assert refused == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "accept", "given"),
    [
        ("runs", "", "application/json"),
        ("runs", " , ", "application/json"),
        ("runs", "Application/Problem+JSON; charset=utf-8", "application/json"),
        ("runs/export", f"{PROBLEM}, text/csv", "text/csv; charset=utf-8"),
        ("flows/example/versions/1", f"application/yaml, {PROBLEM}", "application/yaml"),
        ("schema", "", "application/json"),
        ("runs/4711", PROBLEM, PROBLEM),
        ("runs/1/events", "application/json", None),
        ("runs/export", "text/html;q=0.5, application/xml", None),
    ],
)
def test_the_type_that_is_asked_for_is_given_or_refused(
    viewer: Script, path: str, accept: str, given: str | None
) -> None:
    make_version(make_flow())
    answer = viewer.get(path, Accept=accept)
    if given is None:
        assert read_type(answer) == (406, "not-acceptable")
    else:
        assert answer["Content-Type"].startswith(given)
