"""What the OpenAPI document says of messages to receivers, and of headers of answers, is what is sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runs.api.documentation import build_schema
from runs.api.schema_webhooks import ENDED_RUN, MESSAGE, NAME
from runs.models.webhook import RUN_EVENTS
from runs.webhooks.messages import build_body, build_headers
from tests.api.asking import Script, make_token, make_user
from tests.runs.webhooks.deliveries import make_delivery

pytestmark = pytest.mark.django_db


def find_shape(name: str) -> Any:
    return build_schema()["components"]["schemas"][name]


def find_wrong(name: str, value: Any) -> list[str]:
    """What is wrong with a value that should be of that shape."""
    validator = Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": build_schema()["components"]}
    )
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def test_a_message_is_what_the_document_says() -> None:
    message = json.loads(build_body(make_delivery("https://hooks.example.com/", labels=["nightly"])))
    assert find_wrong(MESSAGE, message) == []
    assert message.keys() == find_shape(MESSAGE)["properties"].keys()
    assert message["data"].keys() == find_shape(ENDED_RUN)["properties"].keys()
    assert find_shape(MESSAGE)["properties"]["type"]["enum"] == [event.value for event in RUN_EVENTS]
    assert find_wrong(MESSAGE, {**message, "type": "run.begun"}) != []


def test_the_headers_of_a_message_are_those_of_the_document() -> None:
    told = build_schema()["webhooks"][NAME]["post"]["parameters"]
    assert {one["name"] for one in told} == build_headers(message_id="m", at=datetime.now(UTC), signature="s").keys()


def test_every_answer_says_in_the_document_what_its_headers_tell_of_quotas(groups: None) -> None:
    schema = build_schema()
    answers = [
        answer
        for methods in schema["paths"].values()
        for operation in methods.values()
        for answer in operation["responses"].values()
        if "$ref" not in answer
    ]
    for answer in (*answers, *schema["components"]["responses"].values()):
        assert answer["headers"].keys() >= {"RateLimit", "RateLimit-Policy"}
    sent = Script(make_token(make_user("nobody"))).get("schema").headers
    quotas = {name for name in schema["components"]["headers"] if name.startswith("RateLimit")}
    assert quotas == {name for name in sent if name.startswith("RateLimit")}
