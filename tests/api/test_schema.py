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
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator

from runs.api.documentation import build_schema
from runs.models.webhook import RUN_EVENTS
from runs.webhooks.messages import build_body, build_headers
from tests.api.asking import Script, create_token, list_wrong, make_user
from tests.runs.webhooks.deliveries import make_delivery

pytestmark = pytest.mark.django_db

PAGE = "/api/v1/docs"


def list_operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in build_schema()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


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
            parameters = operation.get("parameters", ())
            assert all([operation["summary"], *(one.get("description") for one in parameters)]), where
        assert len(set(names)) == len(names)
        silent = [
            f"{name}.{field}"
            for name, shape in build_schema()["components"]["schemas"].items()
            for field, schema in shape.get("properties", {}).items()
            if not schema.get("description")
        ]
        assert silent == []

    def test_a_message_to_a_receiver_is_as_described(self) -> None:
        message = json.loads(build_body(make_delivery("https://hooks.example.com/", labels=["nightly"])))
        schema = {"$ref": "#/components/schemas/RunMessage", "components": build_schema()["components"]}
        Draft202012Validator(schema).validate(message)
        assert message.keys() == find_shape("RunMessage")["properties"].keys()
        assert message["data"].keys() == find_shape("EndedRun")["properties"].keys()
        assert find_shape("RunMessage")["properties"]["type"]["enum"] == [event.value for event in RUN_EVENTS]
        described = {one["name"] for one in build_schema()["webhooks"]["runEnded"]["post"]["parameters"]}
        assert described == build_headers(message_id="m", at=datetime.now(UTC), signature="s").keys()


@pytest.mark.parametrize(
    ("accepted", "given"),
    [
        ("*/*", "application/json"),
        ("application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json"),
        ("application/yaml", "application/yaml"),
        ("application/vnd.oai.openapi", "application/vnd.oai.openapi"),
    ],
)
def test_it_comes_as_json_or_yaml_for_every_user_and_problems_as_json(groups: None, accepted: str, given: str) -> None:
    caller = Script(create_token(make_user("caller")))
    answer = caller.get("schema", Accept=accepted)
    assert (answer.status_code, answer["Content-Type"]) == (200, given)
    load = json.loads if "json" in given else partial(yaml.load, Loader=yaml.CSafeLoader)
    assert load(answer.content) == build_schema()
    assert list_wrong(caller.get("schema?colour=red", Accept=accepted), 400) == ["colour"]


def test_all_that_the_reference_page_needs_comes_from_this_installation(groups: None, client: Client) -> None:
    client.force_login(make_user("caller"))
    page = client.get(PAGE).content.decode()
    assert re.findall(r"<script>|<script [^>]*>", page) == re.findall(r'<script src="/[^"/][^"]*">', page)
    *static, script = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert (len(static), script) == (4, f"{PAGE}?script=")
    assert all(finders.find(address.removeprefix("/static/")) for address in static)
    assert 'url: "/api/v1/schema"' in client.get(script).content.decode()
