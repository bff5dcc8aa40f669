"""The OpenAPI document: complete, valid, given to every signed-in user, and shown on the reference page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import yaml
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import set_script_prefix
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator

from runs.api.documentation import build_schema
from runs.api.problems import MEDIA_TYPE
from runs.models.webhook import RUN_EVENTS
from runs.webhooks.messages import build_body, build_headers
from tests.api.asking import Script, create_token, make_user, read_problem
from tests.runs.webhooks.deliveries import make_delivery

pytestmark = pytest.mark.django_db

SENTENCE = re.compile(r"^[A-Z`“].*[^.]$", re.DOTALL)
PAGE = "/api/v1/docs"


@pytest.fixture
def somebody(groups: None) -> Script:
    """The script of a user who may do nothing."""
    return Script(create_token(make_user("nobody")))


def list_operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in build_schema()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def find_answer(answer: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in answer:
        return answer
    found: dict[str, Any] = build_schema()["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return found


def find_shape(name: str) -> dict[str, Any]:
    found: dict[str, Any] = build_schema()["components"]["schemas"][name]
    return found


class TestDocument:
    def test_it_is_valid_openapi_3_1_and_nothing_is_guessed(self, capsys: pytest.CaptureFixture[str]) -> None:
        build_schema.__wrapped__()
        assert not GENERATOR_STATS, capsys.readouterr().err
        assert build_schema()["openapi"].startswith("3.1.")
        validate_schema(build_schema())

    def test_there_are_names_and_words_for_everything(self) -> None:
        parts = {tag["name"] for tag in build_schema()["tags"]}
        names = []
        for path, method, operation in list_operations():
            where = f"{method} {path}"
            names.append(operation["operationId"])
            assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", operation["operationId"]), where
            assert set(operation["tags"]) <= parts and len(operation["tags"]) == 1, where
            assert SENTENCE.match(operation["summary"]), where
            assert all(one.get("description") for one in operation.get("parameters", ())), where
            assert all(find_answer(answer)["description"] for answer in operation["responses"].values()), where
        assert len(set(names)) == len(names)
        silent = [
            f"{name}.{field}"
            for name, shape in build_schema()["components"]["schemas"].items()
            for field, schema in shape.get("properties", {}).items()
            if not schema.get("description")
        ]
        assert silent == []

    def test_problems_of_every_endpoint_stand_at_each(self) -> None:
        for path, method, operation in list_operations():
            problems = {int(code): find_answer(it) for code, it in operation["responses"].items() if int(code) >= 400}
            assert problems.keys() >= {400, 401, 403, 406, 429}, (path, method)
            assert ("requestBody" in operation) <= (problems.keys() >= {413, 415, 422}), (path, method)
            for problem in problems.values():
                assert problem["content"] == {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}

    def test_bodies_say_that_unknown_fields_are_errors(self) -> None:
        for path, method, operation in list_operations():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if name := content.get("schema", {}).get("$ref", "").rpartition("/")[2]:
                assert find_shape(name).get("additionalProperties") is False, (path, method, name)

    def test_tokens_and_sessions_let_in(self) -> None:
        schemes = build_schema()["components"]["securitySchemes"]
        assert {name: (it["type"], it.get("scheme", it.get("in"))) for name, it in schemes.items()} == {
            "token": ("http", "bearer"),
            "session": ("apiKey", "cookie"),
        }
        assert all(operation["security"] == [{"token": []}, {"session": []}] for *_, operation in list_operations())

    def test_a_message_to_a_receiver_is_as_described(self) -> None:
        message = json.loads(build_body(make_delivery("https://hooks.example.com/", labels=["nightly"])))
        schema = {"$ref": "#/components/schemas/RunMessage", "components": build_schema()["components"]}
        Draft202012Validator(schema).validate(message)
        assert message.keys() == find_shape("RunMessage")["properties"].keys()
        assert message["data"].keys() == find_shape("EndedRun")["properties"].keys()
        assert find_shape("RunMessage")["properties"]["type"]["enum"] == [event.value for event in RUN_EVENTS]
        described = {one["name"] for one in build_schema()["webhooks"]["runEnded"]["post"]["parameters"]}
        assert described == build_headers(message_id="m", at=datetime.now(UTC), signature="s").keys()


class TestAskingForIt:
    @pytest.mark.parametrize(
        ("accepted", "given"),
        [
            ("*/*", "application/json"),
            ("application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json"),
            ("application/yaml", "application/yaml"),
            ("application/vnd.oai.openapi", "application/vnd.oai.openapi"),
        ],
    )
    def test_it_comes_as_json_or_yaml(self, somebody: Script, accepted: str, given: str) -> None:
        answer = somebody.get("schema", Accept=accepted)
        assert (answer.status_code, answer["Content-Type"]) == (200, given)
        if "vnd" not in given:
            load = json.loads if "json" in given else partial(yaml.load, Loader=yaml.CSafeLoader)
            assert load(answer.content) == build_schema()

    def test_problems_are_json_also_for_clients_of_yaml(self, somebody: Script) -> None:
        problem = read_problem(somebody.get("schema?colour=red", Accept="application/yaml"))
        assert problem["errors"][0]["parameter"] == "colour"

    def test_below_a_path_it_names_that_path(self, somebody: Script) -> None:
        set_script_prefix("/tools/")
        try:
            answer: Any = somebody.get("/api/v1/schema")
        finally:
            set_script_prefix("/")
        assert answer.json()["servers"] == [{"url": "/tools/api/v1"}]


class TestReferencePage:
    @pytest.fixture
    def reader(self, groups: None) -> Client:
        client = Client()
        client.force_login(make_user("nobody"))
        return client

    def test_all_that_it_needs_comes_from_this_installation(self, reader: Client) -> None:
        page = reader.get(PAGE).content.decode()
        assert re.findall(r"<script>|<script [^>]*>", page) == re.findall(r'<script src="/[^"/][^"]*">', page)
        *static, script = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert (len(static), script) == (4, f"{PAGE}?script=")
        assert all(finders.find(address.removeprefix("/static/")) for address in static)
        assert 'url: "/api/v1/schema"' in reader.get(script).content.decode()
