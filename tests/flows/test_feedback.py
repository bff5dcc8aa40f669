"""What the editor says while somebody types: about schemas, expressions, and requests that make no sense."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client

from flows.engine.expression_functions import FUNCTIONS
from flows.engine.expressions import FIELD_VARIABLES
from flows.engine.strict_schema import check_strict
from flows.models import Flow
from tests.engine.builders import INVOICE, closed
from tests.flows.editor_page import fill_new_flow

pytestmark = pytest.mark.django_db

URL = "/admin/flows/flow/feedback/"


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def post(client: Client, **question: Any) -> Any:
    return client.post(URL, json.dumps(question), content_type="application/json")


def check(client: Client, field: str, text: str, **more: Any) -> dict[str, Any]:
    answer = post(client, field=field, text=text, **more)
    assert answer.status_code == 200, answer.content
    return answer.json()


def describe(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(one["path"], one["line"], one["column"], one["message"]) for one in answer["problems"]]


# ---------------------------------------------------------------------------------------------------------------
# Schemas

LOOSE = """{
  "type": "object",
  "properties": {
    "total": {"type": "number", "default": 0}
  },
  "required": ["total"],
  "additionalProperties": false
}"""


def test_a_strict_schema_is_told_to_be_one(editor: Client) -> None:
    answer = check(editor, "output_schema", json.dumps(INVOICE))
    assert (answer["summary"], answer["problems"]) == ("Valid JSON Schema, strict: 3 properties", [])
    assert check(editor, "output_schema", json.dumps(closed(a={"type": "null"})))["summary"].endswith(": 1 property")


def test_json_that_cannot_be_read_is_told_with_line_and_column(editor: Client) -> None:
    sentence = "Line 2, column 12: a comma is missing."
    assert describe(check(editor, "output_schema", '{\n  "type": 1 "x": 2}')) == [
        ("", 2, 13, sentence.replace("12", "13"))
    ]


def test_each_offence_against_the_subset_has_its_path_and_the_line_it_is_about(editor: Client) -> None:
    (problem,) = describe(check(editor, "output_schema", LOOSE))
    assert problem[:3] == ("/properties/total/default", 4, 33)
    assert problem[3].startswith("Strict mode doesn't know “default”")


def test_what_is_missing_is_told_at_the_line_of_what_lacks_it(editor: Client) -> None:
    text = LOOSE.replace(', "default": 0', "").replace('"required": ["total"],\n  ', "")
    (problem,) = describe(check(editor, "output_schema", text))
    assert problem[:3] == ("", 1, 1)


def test_of_very_many_offences_the_first_are_told_and_the_rest_counted(editor: Client) -> None:
    schema = closed(**{f"p{number}": {"type": "string", "default": ""} for number in range(30)})
    answer = check(editor, "output_schema", json.dumps(schema))
    assert (len(answer["problems"]), answer["more"]) == (20, 10)


def test_an_input_schema_need_not_be_strict(editor: Client) -> None:
    text = '{"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}'
    assert check(editor, "input_schema", text)["summary"] == "Valid JSON Schema: 1 property"
    (problem,) = describe(check(editor, "input_schema", '{"type": "array"}'))
    assert problem[:3] == ("/type", 1, 2)


@pytest.mark.parametrize("text", ['{"type": "object"', "[]", '{"a": 1, "a": 2}', '{"a": "\\ud800"}', "{'a': 1}", LOOSE])
def test_it_says_what_saving_says(editor: Client, text: str) -> None:
    told = [one["message"] for one in check(editor, "output_schema", text)["problems"]]
    page = fill_new_flow(editor)
    page.fill("steps-0-", output_schema=text)
    errors = page.save_in_vain()["steps-0-output_schema"]
    assert len(told) == len(errors)
    assert all(message in error for message, error in zip(told, errors, strict=True))


def test_nothing_is_said_of_an_empty_field(editor: Client) -> None:
    empty = {"problems": [], "warnings": [], "summary": "", "more": 0}
    assert check(editor, "output_schema", " \n ") == empty
    assert check(editor, "rule", "") == empty


# ---------------------------------------------------------------------------------------------------------------
# Making a schema strict


def mend(client: Client, text: str, **more: Any) -> dict[str, Any]:
    return check(client, "output_schema", text, action="make_strict", **more)


def test_a_schema_is_made_strict_and_the_changes_are_told(editor: Client) -> None:
    answer = mend(editor, LOOSE)
    assert answer["summary"] == "Valid JSON Schema, strict: 1 property"
    assert check_strict(json.loads(answer["mending"]["text"])) == []
    assert any(one.startswith('removed `"default"') for one in answer["mending"]["changes"])


def test_what_becomes_of_optional_properties_is_asked_first(editor: Client) -> None:
    text = '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}'
    asked = mend(editor, text)
    assert (asked["mending"]["undecided"], asked["mending"]["text"]) == (["b"], "")
    types = {
        choice: json.loads(mend(editor, text, optional=choice)["mending"]["text"])["properties"]["b"]["type"]
        for choice in ("null", "given")
    }
    assert types == {"null": ["string", "null"], "given": "string"}


def test_a_schema_that_is_strict_stays_as_it_is_written(editor: Client) -> None:
    text = json.dumps(closed(a={"type": "number", "minimum": 1.50}))
    assert mend(editor, text)["mending"] == {"text": text, "changes": [], "undecided": []}


def test_what_cannot_be_mended_is_told(editor: Client) -> None:
    answer = mend(editor, json.dumps(closed(a={"type": "array"})))
    assert [one["path"] for one in answer["problems"]] == ["/properties/a"]
    assert mend(editor, "{")["mending"] is None


def test_a_schema_that_would_grow_without_bounds_stays_as_it_is(editor: Client) -> None:
    levels = {
        f"d{number}": closed(**{name: {"$ref": f"#/$defs/d{number + 1}", "title": "x"} for name in ("a", "b")})
        for number in range(9)
    }
    text = json.dumps({**closed(a={"$ref": "#/$defs/d0"}), "$defs": {**levels, "d9": {"type": "string"}}})
    answer = mend(editor, text)
    assert answer["mending"] == {"text": text, "changes": [], "undecided": []}
    assert answer["problems"]


# ---------------------------------------------------------------------------------------------------------------
# Expressions


def test_a_sound_expression_says_what_it_reads(editor: Client) -> None:
    assert check(editor, "rule", "output.total > 1.0 && input.x == 1")["summary"] == "Valid: reads input, output"


@pytest.mark.parametrize(
    ("field", "text", "line", "column", "words"),
    [
        ("rule", "output.total = 3.0", 1, 14, "write “==”"),
        ("compute", "\n  {'a': previus.a}", 2, 9, "Did you mean “previous”?"),
        ("message", "'Only ' + sting(item)", 1, 11, "Unknown function “sting”. Did you mean “string”?"),
        ("input_sanitizer", "output", 1, 1, "Unknown variable “output”. Available here: value"),
        ("pass_expression", "issues.size(", 1, 13, "the end"),
    ],
)
def test_a_mistake_is_told_with_line_and_column(
    editor: Client, field: str, text: str, line: int, column: int, words: str
) -> None:
    (problem,) = describe(check(editor, field, text))
    assert problem[1:3] == (line, column)
    assert problem[3].startswith(f"Line {line}, column {column}: ")
    assert words in problem[3]


@pytest.mark.parametrize("field", FIELD_VARIABLES)
def test_every_field_that_takes_an_expression_is_checked(editor: Client, field: str) -> None:
    assert len(check(editor, field, "nobody")["problems"]) == 1


def test_python_names_are_checked(editor: Client) -> None:
    assert "No audit is registered as “nothing”" in check(editor, "rule", "python:nothing")["problems"][0]["message"]


def test_a_property_that_the_schema_lacks_is_a_warning(editor: Client) -> None:
    schemas = {"0": {"text": ""}, "1": {"text": json.dumps(INVOICE)}, "2": {"text": json.dumps(closed(a=INVOICE))}}
    answer = check(editor, "rule", "output.a.total > 1.0\n && steps[1].output.totl > 1.0", step=2, schemas=schemas)
    (warning,) = answer["warnings"]
    assert (warning["line"], warning["column"]) == (2, 21)
    assert warning["message"].endswith("has no property “totl”. Did you mean “total”?")
    assert answer["summary"].startswith("Valid")
    assert answer["problems"] == []


def test_the_output_before_is_held_against_the_schema_of_the_step_before(editor: Client) -> None:
    schemas = {"0": {"text": json.dumps(closed(document={"type": "string"}))}}
    answer = check(editor, "input_expression", "{'text': previous.documnt}", step=1, schemas=schemas)
    assert "Did you mean “document”?" in answer["warnings"][0]["message"]


def test_without_a_schema_that_can_be_read_nothing_is_doubted(editor: Client) -> None:
    for schema in ({"text": "{"}, {"text": ""}, {"text": "", "type": "unknown"}, {}):
        assert check(editor, "rule", "output.x == 1", step=1, schemas={"1": schema})["warnings"] == []


@pytest.mark.parametrize("piece", ["(", "[", "{", "!", "-", "a(", "output.map(x, ", "1?", '"""', "has(", "[1,", "x."])
def test_text_that_is_all_brackets_is_answered_like_any_other(editor: Client, piece: str) -> None:
    text = (piece * 4_000)[:4_000]
    assert len(check(editor, "rule", text)["problems"]) <= 1
    assert "at most 4,000 are allowed" in check(editor, "rule", text + "x")["problems"][0]["message"]


# ---------------------------------------------------------------------------------------------------------------
# Variables and functions


def test_fields_are_described_with_their_variables_and_all_functions(editor: Client) -> None:
    known = editor.get(URL).json()
    assert known["fields"].keys() == FIELD_VARIABLES.keys()
    for field, described in known["fields"].items():
        assert set(described["variables"]) == FIELD_VARIABLES[field]
        assert described["gives"]
    assert [(one["usage"], one["gives"]) for one in known["functions"]] == list(FUNCTIONS.values())


# ---------------------------------------------------------------------------------------------------------------
# Requests that make no sense


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no JSON",
        "[]",
        "7",
        '{"field": "rule", "text": 7}',
        '{"field": ["rule"], "text": "1"}',
        '{"field": "name", "text": "1"}',
        '{"text": "1"}',
        '{"field": "rule", "text": "1", "action": "drop"}',
        '{"field": "rule", "text": "1", "action": "make_strict"}',
        '{"field": "output_schema", "text": "", "action": "make_strict"}',
        '{"field": "output_schema", "text": "{}", "action": "make_strict", "optional": "x"}',
        '{"field": "rule", "text": "1", "step": "1"}',
        '{"field": "rule", "text": "1", "step": true}',
        '{"field": "rule", "text": "1", "step": -1}',
        '{"field": "rule", "text": "1", "step": 51}',
        '{"field": "rule", "text": "1", "schemas": []}',
        '{"field": "rule", "text": "1", "schemas": {"x": {}}}',
        '{"field": "rule", "text": "1", "schemas": {"' + "9" * 5_000 + '": {}}}',
        '{"field": "rule", "text": "1", "schemas": {"1": 7}}',
        '{"field": "rule", "text": "1", "schemas": {"1": {"text": 7}}}',
        '{"field": "rule", "text": "' + "x" * 300_000 + '"}',
        b"\xff\xfe",
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_answered_with_one_sentence(editor: Client, body: str | bytes) -> None:
    answer = editor.post(URL, body, content_type="application/json")
    assert answer.status_code == 400
    (problem,) = answer.json()["problems"]
    assert problem["message"] == answer.json()["error"]
    assert problem["message"].endswith(".")


def test_texts_that_no_database_could_hold_are_answered(editor: Client) -> None:
    for field in ("rule", "output_schema"):
        for text in ("\\u0000", "\\ud800", "python:\\ud800"):
            body = f'{{"field": "{field}", "text": "{text}"}}'
            answer = editor.post(URL, body, content_type="application/json")
            assert len(answer.json()["problems"]) == 1


def test_checks_are_counted_and_then_pause(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.throttle.count_request", lambda *args, **limits: 30)
    answer = post(editor, field="rule", text="1")
    assert answer.status_code == 429
    assert int(answer["Retry-After"]) > 0
    assert answer.json()["error"]


@pytest.mark.parametrize(("permissions", "status"), [([], 403), (["view_flow"], 403), (["change_flow"], 200)])
def test_whoever_may_change_flows_gets_an_answer(client: Client, permissions: list[str], status: int) -> None:
    user = User.objects.create_user("grace", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    assert post(client, field="rule", text="true").status_code == status
    assert client.get(URL).status_code == status


def test_strangers_are_asked_to_sign_in(client: Client) -> None:
    assert "login" in post(client, field="rule", text="true")["Location"]


def test_a_request_from_another_site_is_refused() -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada"))
    assert post(client, field="rule", text="true").status_code == 403


def test_nothing_is_stored(editor: Client) -> None:
    check(editor, "output_schema", LOOSE)
    mend(editor, LOOSE)
    assert not Flow.objects.exists()
