"""What a request asks for with ``Accept``: clients that generators make can do everything, and others are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flows.models import Flow, FlowVersion
from runs.api.documentation import build_schema
from runs.models import SavedView
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.api.long_work import make_view
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db

PROBLEM = "application/problem+json"
STRICTLY_JSON = re.compile(r"(application/json|[^;/ \t]+/[^;/ \t]+[+]json)[ \t]*(;.*)?", re.IGNORECASE)


@pytest.fixture
def anybody(groups: None) -> Script:
    """The script of somebody who may do everything."""
    return Script(make_token(make_user("chief", "Editor", "Administrator")))


def take_first_with_json(types: list[str]) -> str:
    """What some clients send: the first documented type in which “json” stands."""
    return next((one for one in types if "json" in one.lower()), ", ".join(types))


def take_first_json(types: list[str]) -> str:
    """What others send, which know JSON Lines from JSON."""
    return next((one for one in types if STRICTLY_JSON.fullmatch(one)), ", ".join(types))


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


@pytest.mark.parametrize("choose", [take_first_with_json, take_first_json, ", ".join])
def test_every_operation_takes_what_clients_make_of_its_documented_types(
    anybody: Script, choose: Callable[[list[str]], str]
) -> None:
    refused = []
    for method, path, types in list_operations():
        answer = anybody.ask(method, re.sub(r"\{\w+\}", "1", path.lstrip("/")), Accept=choose(types))
        if answer.status_code == 406:
            refused.append(f"{method} {path} with {choose(types)}")
    assert refused == []


@pytest.mark.parametrize("accept", [PROBLEM, "Application/Problem+JSON; charset=utf-8"])
def test_what_only_names_problems_deletes_all_the_same(anybody: Script, accept: str) -> None:
    first, _ = make_version(make_flow()), make_version(make_flow(title="Second"))
    view = make_view(make_user("chief", "Editor", "Administrator"))
    for path in (f"flows/example/versions/{first.number}", "flows/example", f"saved-views/{view.pk}"):
        assert anybody.ask("DELETE", path, Accept=accept).status_code == 204, path
    assert not (FlowVersion.objects.exists() or Flow.objects.exists() or SavedView.objects.exists())


def test_what_names_problems_beside_another_type_gets_that_type(anybody: Script) -> None:
    run = make_run()
    given: Any = anybody.get("runs/export", Accept=f"{PROBLEM}, text/csv")
    assert given["Content-Type"] == "text/csv; charset=utf-8"
    version = f"flows/{run.flow.name}/versions/1"
    assert anybody.get(version, Accept=f"application/yaml, {PROBLEM}")["Content-Type"].startswith("application/yaml")
    assert anybody.get(f"runs/{run.pk}", Accept=PROBLEM)["Content-Type"] == "application/json"
    assert read_problem(anybody.get("runs/4711", Accept=PROBLEM))["status"] == 404


@pytest.mark.parametrize(
    ("path", "accept", "given"),
    [
        ("runs", "image/png", "application/json or */*"),
        ("runs/1/events", "application/json", "text/event-stream or */*"),
        ("runs/export", "text/html;q=0.5, application/xml", "application/x-ndjson, text/csv, application/json or */*"),
        ("flows/example/versions/1", "application/xml", "application/json, application/yaml or */*"),
    ],
)
def test_what_is_not_given_is_refused_with_what_is(anybody: Script, path: str, accept: str, given: str) -> None:
    problem = read_problem(anybody.get(path, Accept=accept))
    assert (problem["status"], problem["type"]) == (406, "urn:toolflow:problem:not-acceptable")
    assert problem["detail"] == f"Nothing that the header “Accept” names is given here; ask for {given}."
