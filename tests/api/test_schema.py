"""The OpenAPI document: complete, valid, and given to every signed-in user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import URLPattern, set_script_prefix
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.validation import validate_schema

from runs.api.documentation import build_schema, write_yaml
from runs.api.problems import MEDIA_TYPE
from runs.api.urls import urlpatterns
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.api.documents import list_wrong

pytestmark = pytest.mark.django_db

write_yaml_once = cache(lambda: write_yaml(build_schema()))
"""Writing the document takes a second, reading it from YAML two."""
SENTENCE = re.compile(r"^[A-Z`“].*[^.]$", re.DOTALL)


@pytest.fixture
def nobody(groups: None) -> Script:
    """The script of a user who may do nothing."""
    return Script(make_token(make_user("nobody")))


def list_operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in build_schema()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def find_answer(answer: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in answer:
        return answer
    found: dict[str, Any] = build_schema()["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return found


# ---------------------------------------------------------------------------------------------------------------
# The document


def test_it_is_valid_openapi_3_1_and_nothing_in_it_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    document = build_schema.__wrapped__()
    assert not GENERATOR_STATS, capsys.readouterr().err
    assert document["openapi"].startswith("3.1.")
    validate_schema(document)


def test_every_endpoint_is_described_with_all_its_methods(nobody: Script) -> None:
    described = {path: set(methods) for path, methods in build_schema()["paths"].items()}
    views = {
        "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(one.pattern)): one.callback.view_class
        for one in urlpatterns
        if isinstance(one, URLPattern) and one.name not in {"docs", "nothing"}
    }
    methods = ("get", "post", "put", "patch", "delete")
    assert described == {path: {name for name in methods if hasattr(view, name)} for path, view in views.items()}
    for path, named in described.items():
        answer = nobody.ask("OPTIONS", re.sub(r"{\w+}", "1", path).lstrip("/"))
        assert set(answer["Allow"].lower().split(", ")) - {"head"} == named, path


def test_operations_have_a_name_a_part_and_words_for_everything() -> None:
    parts = {tag["name"] for tag in build_schema()["tags"]}
    names = []
    for path, method, operation in list_operations():
        where = f"{method} {path}"
        names.append(operation["operationId"])
        assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", operation["operationId"]), where
        assert set(operation["tags"]) <= parts and len(operation["tags"]) == 1, where
        assert SENTENCE.match(operation["summary"]), where
        assert operation["security"] == [{"token": []}, {"session": []}], where
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (where, parameter["name"])
        for answer in operation["responses"].values():
            assert find_answer(answer)["description"] != "", where
    assert len(set(names)) == len(names)


def test_every_field_says_what_it_means() -> None:
    silent = [
        f"{name}.{field}"
        for name, shape in build_schema()["components"]["schemas"].items()
        for field, schema in shape.get("properties", {}).items()
        if not schema.get("description")
    ]
    assert silent == []


def test_all_problems_are_problem_documents_and_those_of_every_endpoint_stand_at_each() -> None:
    for path, method, operation in list_operations():
        problems = {int(code): find_answer(it) for code, it in operation["responses"].items() if int(code) >= 400}
        assert problems.keys() >= {400, 401, 403, 406, 429}, (path, method)
        assert ("requestBody" in operation) <= (problems.keys() >= {413, 415, 422}), (path, method)
        for problem in problems.values():
            assert problem["content"] == {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


def test_bodies_say_that_unknown_fields_are_errors() -> None:
    for path, method, operation in list_operations():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if name := content.get("schema", {}).get("$ref", "").rpartition("/")[2]:
            shape = build_schema()["components"]["schemas"][name]
            assert shape.get("additionalProperties") is False, (path, method, name)


# ---------------------------------------------------------------------------------------------------------------
# Asking for it


@pytest.mark.parametrize(
    ("accepted", "given"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json"),
        ("application/json", "application/json"),
        ("application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json"),
        ("application/yaml", "application/yaml"),
        ("application/vnd.oai.openapi", "application/vnd.oai.openapi"),
    ],
)
def test_it_comes_as_json_or_yaml_to_every_signed_in_user(nobody: Script, accepted: str, given: str) -> None:
    answer = nobody.get("schema", Accept=accepted)
    assert (answer.status_code, answer["Content-Type"]) == (200, given)
    if "json" in given:
        assert json.loads(answer.content) == build_schema()
    else:
        assert answer.content.decode() == write_yaml_once()


def test_as_yaml_it_says_the_same() -> None:
    assert yaml.load(write_yaml_once(), Loader=yaml.CSafeLoader) == build_schema()


def test_anonymous_callers_get_none_of_it() -> None:
    assert read_problem(Script().get("schema"))["status"] == 401
    answer = Client().get("/api/v1/docs")
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/login/?next=/api/v1/docs")


def test_problems_are_json_also_where_yaml_was_asked_for(nobody: Script) -> None:
    assert list_wrong(nobody.get("schema?colour=red", Accept="application/yaml"), 400) == ["colour"]


def test_below_a_path_it_names_that_path(nobody: Script) -> None:
    set_script_prefix("/tools/")
    try:
        answer = nobody.get("/api/v1/schema")
    finally:
        set_script_prefix("/")
    assert json.loads(answer.content)["servers"] == [{"url": "/tools/api/v1"}]
