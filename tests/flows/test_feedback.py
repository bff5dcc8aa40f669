"""What the editor is told while somebody types: about schemas, expressions, and requests that make no sense."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from flows.admin.posted_json import MOST_BYTES
from flows.engine.expression_functions import FUNCTIONS
from flows.engine.expressions import FIELD_VARIABLES
from flows.engine.plugins import load_plugins
from flows.engine.strict_schema import check_strict
from flows.models import Flow
from flows.throttle import limit_rate
from tests.engine.builders import INVOICE, closed
from tests.flows.editor_page import fill_new_flow

pytestmark = pytest.mark.django_db

URL = "/admin/flows/flow/feedback/"
SCHEMAS = "/admin/flows/flow/schema/"

load_plugins(["flows.examples.plugins"])


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def check(client: Client, field: str, text: str, **more: Any) -> dict[str, Any]:
    question = json.dumps({"field": field, "text": text, **more})
    answer = client.post(URL, question, content_type="application/json")
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def list_places(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(one["path"], one["line"], one["column"]) for one in answer["problems"]]


LOOSE = """{
  "type": "object",
  "properties": {
    "total": {"type": "number", "default": 0}
  },
  "required": ["total"],
  "additionalProperties": false
}"""
OPTIONAL = '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}'


class TestSchemas:
    def test_a_good_one_is_said_to_be_one(self, editor: Client) -> None:
        strict = check(editor, "output_schema", json.dumps(INVOICE))
        assert (strict["summary"], strict["problems"]) == ("Valid JSON Schema, strict: 3 properties", [])
        loose = '{"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}'
        assert check(editor, "input_schema", loose)["summary"] == "Valid JSON Schema: 1 property"
        for field in ("output_schema", "rule"):
            assert check(editor, field, " \n ") == {"problems": [], "warnings": [], "summary": "", "more": 0}

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ('{\n  "type": 1 "x": 2}', ("", 2, 13)),
            (LOOSE, ("/properties/total/default", 4, 33)),
            (LOOSE.replace(', "default": 0', "").replace('"required": ["total"],\n  ', ""), ("", 1, 1)),
        ],
    )
    def test_a_mistake_has_its_path_and_the_line_it_is_about(
        self, editor: Client, text: str, place: tuple[str, int, int]
    ) -> None:
        assert list_places(check(editor, "output_schema", text)) == [place]

    def test_of_very_many_offences_the_first_are_told_and_the_rest_counted(self, editor: Client) -> None:
        schema = closed(**{f"p{number}": {"type": "string", "default": ""} for number in range(30)})
        answer = check(editor, "output_schema", json.dumps(schema))
        assert (len(answer["problems"]), answer["more"]) == (20, 10)

    @pytest.mark.parametrize("text", ['{"type": "object"', '{"a": 1, "a": 2}', '{"a": "\\ud800"}', LOOSE])
    def test_it_says_what_saving_says(self, editor: Client, text: str) -> None:
        told = [one["message"] for one in check(editor, "output_schema", text)["problems"]]
        page = fill_new_flow(editor)
        page.fill("steps-0-", output_schema=text)
        errors = page.save_in_vain()["steps-0-output_schema"]
        assert all(message in error for message, error in zip(told, errors, strict=True))

    def test_one_is_made_strict_and_the_changes_are_told(self, editor: Client) -> None:
        answer = check(editor, "output_schema", LOOSE, action="make_strict")
        assert answer["summary"] == "Valid JSON Schema, strict: 1 property"
        assert check_strict(json.loads(answer["mending"]["text"])) == []
        assert any(one.startswith('removed `"default"') for one in answer["mending"]["changes"])
        assert not Flow.objects.exists(), "nothing is stored"

    def test_what_becomes_of_optional_properties_is_asked_first(self, editor: Client) -> None:
        asked = check(editor, "output_schema", OPTIONAL, action="make_strict")
        assert (asked["mending"]["undecided"], asked["mending"]["text"]) == (["b"], "")
        for choice, kind in (("null", ["string", "null"]), ("given", "string")):
            answer = check(editor, "output_schema", OPTIONAL, action="make_strict", optional=choice)
            assert json.loads(answer["mending"]["text"])["properties"]["b"]["type"] == kind

    def test_what_is_strict_or_cannot_be_mended_stays_as_it_is_written(self, editor: Client) -> None:
        levels = {
            f"d{number}": closed(**{name: {"$ref": f"#/$defs/d{number + 1}", "title": "x"} for name in ("a", "b")})
            for number in range(9)
        }
        growing = {**closed(a={"$ref": "#/$defs/d0"}), "$defs": {**levels, "d9": {"type": "string"}}}
        for schema, is_strict in ((closed(a={"type": "number", "minimum": 1.50}), True), (growing, False)):
            answer = check(editor, "output_schema", json.dumps(schema), action="make_strict")
            assert answer["mending"] == {"text": json.dumps(schema), "changes": [], "undecided": []}
            assert (answer["problems"] == []) is is_strict
        assert check(editor, "output_schema", "{", action="make_strict")["mending"] is None


class TestExpressions:
    def test_a_sound_one_says_what_it_reads(self, editor: Client) -> None:
        assert check(editor, "rule", "output.total > 1.0 && input.x == 1")["summary"] == "Valid: reads input, output"

    @pytest.mark.parametrize(
        ("field", "text", "line", "column", "words"),
        [
            ("rule", "output.total = 3.0", 1, 14, "write “==”"),
            ("rule", "python:nothing", None, None, "No audit is registered as “nothing”"),
            ("compute", "\n  {'a': previus.a}", 2, 9, "Did you mean “previous”?"),
            ("message", "'Only ' + sting(item)", 1, 11, "Unknown function “sting”. Did you mean “string”?"),
            ("input_sanitizer", "output", 1, 1, "Unknown variable “output”. Available here: value"),
            *((field, "nobody", 1, 1, "nobody") for field in FIELD_VARIABLES if field != "message_template"),
        ],
    )
    def test_a_mistake_is_told_with_line_and_column(
        self, editor: Client, field: str, text: str, line: int | None, column: int | None, words: str
    ) -> None:
        (problem,) = check(editor, field, text)["problems"]
        assert (problem["line"], problem["column"], words in problem["message"]) == (line, column, True)

    @pytest.mark.parametrize(
        ("field", "text", "for_each", "problem", "warning"),
        [
            ("rule", "item.amount > 0.0 && index < 9", "output.lines", "", ""),
            ("rule", "item.amuont > 0.0", " output.lines", "", "“amount”?"),
            ("rule", "item.amount > 0.0", "", "Unknown variable “item”", ""),
            ("rule", "item.amount > 0.0", "output.", "", ""),
            ("rule", "python:contrast", "output.lines", "A rule beside for_each is CEL", ""),
            ("message", "string(index)", "output.lines", "", ""),
            ("for_each", "item", "output.lines", "Unknown variable “item”", ""),
        ],
    )
    def test_a_rule_knows_the_item_where_its_audit_goes_through_a_list(
        self, editor: Client, field: str, text: str, for_each: str, problem: str, warning: str
    ) -> None:
        answer = check(editor, field, text, for_each=for_each, schemas={"1": {"text": json.dumps(INVOICE)}})
        for kind, words in (("problems", problem), ("warnings", warning)):
            assert [words in one["message"] for one in answer[kind]] == ([True] if words else []), kind

    def test_a_property_that_the_schema_lacks_is_a_warning(self, editor: Client) -> None:
        schemas = {"0": {"text": ""}, "1": {"text": json.dumps(INVOICE)}, "2": {"text": json.dumps(closed(a=INVOICE))}}
        answer = check(editor, "rule", "output.a.total > 1.0\n && steps[1].output.totl > 1.0", step=2, schemas=schemas)
        (warning,) = answer["warnings"]
        assert (warning["line"], warning["column"], answer["problems"]) == (2, 21, [])
        assert warning["message"].endswith("has no property “totl”. Did you mean “total”?")
        answer = check(editor, "input_expression", "{'a': previous.totl}", step=2, schemas=schemas)
        assert len(answer["warnings"]) == 1
        for schema in ({"text": "{"}, {"text": ""}, {"text": "", "type": "unknown"}, {}):
            assert check(editor, "rule", "output.x == 1", step=1, schemas={"1": schema})["warnings"] == []

    def test_fields_are_described_with_their_variables_and_all_functions(self, editor: Client) -> None:
        known = editor.get(URL).json()
        assert {field: set(one["variables"]) for field, one in known["fields"].items()} == FIELD_VARIABLES
        assert [(one["usage"], one["gives"]) for one in known["functions"]] == list(FUNCTIONS.values())


class TestSchemaMaker:
    @staticmethod
    def ask(client: Client, make: str, field: str = "output_schema", **question: Any) -> dict[str, Any]:
        response = client.post(SCHEMAS, {"make": make, "field": field, **question}, content_type="application/json")
        assert response.status_code == 200, response.content
        return dict(response.json())

    def test_an_example_becomes_a_schema(self, editor: Client) -> None:
        answer = self.ask(editor, "example", text='{"tags": []}', with_descriptions=True)
        tags = {"type": "array", "description": "", "items": {"type": "string"}}
        assert json.loads(answer["schema"]) == closed(tags=tags)
        assert answer["notes"][0].startswith("`tags` is an empty list")
        answer = self.ask(editor, "example", "input_schema", text='{"topic": "tea"}')
        assert json.loads(answer["schema"])["examples"] == [{"topic": "tea"}]

    @pytest.mark.parametrize(
        ("make", "text", "says"),
        [
            ("example", '{\n  "a": tea}', "Line 2, column 8: "),
            ("example", "[1]", "A JSON object is expected, got a list."),
            ("example", '{"\\ud800": 1}', "The schema holds characters or values that JSON can't store."),
            ("type", "ghost", "No output type is registered as “ghost”."),
            ("table", '{"a', "Line 1, column 2: "),
        ],
    )
    def test_what_makes_none_gets_a_sentence(self, editor: Client, make: str, text: str, says: str) -> None:
        (problem,) = self.ask(editor, make, text=text)["problems"]
        assert problem["message"].startswith(says)

    def test_a_registered_type_has_one_and_is_listed_with_its_docstring(self, editor: Client) -> None:
        schema = json.loads(self.ask(editor, "type", text="colour_suite")["schema"])
        assert schema["properties"]["primary"]["pattern"] == "^#[0-9A-F]{6}$"
        page = editor.get(SCHEMAS).content.decode()
        assert "colour_suite" in page and "All colours of a theme." in page
        assert f'data-schema-url="{SCHEMAS}"' in editor.get("/admin/flows/flow/add/").content.decode()

    def test_its_fields_are_rows_of_a_table(self, editor: Client) -> None:
        text = json.dumps(closed(at=closed(city={"type": "string", "description": "Where"})))
        rows = self.ask(editor, "table", text=text)["rows"]
        found = [(row["name"], row["kind"], row["description"]) for row in rows]
        assert found == [("at", "object", ""), ("at.city", "text", "Where")]


RULE = '"field": "rule", "text": "1"'
MAKE = '"make": "example", "field": "output_schema"'


class TestBadRequests:
    @pytest.mark.parametrize(
        ("url", "body"),
        [
            *((url, body) for url in (URL, SCHEMAS) for body in (b"", b"\xff\xfe", b"[]", b"{}", b"[" * 100_000)),
            (URL, '{"field": "rule", "text": 7}'),
            (URL, '{"field": "name", "text": "1"}'),
            (URL, f'{{{RULE}, "action": "make_strict"}}'),
            (URL, '{"field": "output_schema", "text": "{}", "action": "make_strict", "optional": "x"}'),
            (URL, f'{{{RULE}, "step": true}}'),
            (URL, f'{{{RULE}, "step": 51}}'),
            (URL, f'{{{RULE}, "schemas": {{"{"9" * 5_000}": {{}}}}}}'),
            (URL, f'{{{RULE}, "schemas": {{"1": {{"text": 7}}}}}}'),
            (URL, '{"field": "rule", "text": "' + "x" * 300_000 + '"}'),
            (SCHEMAS, '{"make": "tea", "field": "output_schema"}'),
            (SCHEMAS, f'{{{MAKE}, "text": 1}}'),
            (SCHEMAS, f'{{{MAKE}, "text": "{"x" * MOST_BYTES}"}}'),
        ],
        ids=count(),
    )
    def test_what_the_editor_never_asks_gets_one_sentence(self, editor: Client, url: str, body: Any) -> None:
        answer = editor.post(url, body, content_type="application/json")
        assert answer.status_code == 400
        assert answer.json()["error"].endswith(".") and "\n" not in answer.json()["error"]

    def test_forms_are_no_questions(self, editor: Client) -> None:
        for kind in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
            assert editor.post(SCHEMAS, b"make=example", content_type=kind).status_code == 400
        assert editor.put(SCHEMAS).status_code == 405

    def test_texts_that_no_database_could_hold_are_answered(self, editor: Client) -> None:
        for field in ("rule", "output_schema"):
            for text in ("\\u0000", "\\ud800", "python:\\ud800"):
                body = f'{{"field": "{field}", "text": "{text}"}}'
                answer = editor.post(URL, body, content_type="application/json")
                assert len(answer.json()["problems"]) == 1

    def test_questions_are_counted_and_then_have_to_wait(self, editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flows.throttle.count_request", lambda *args, **limits: 30)
        for url in (URL, SCHEMAS):
            answer = editor.post(url, b"{}", content_type="application/json")
            assert (answer.status_code, int(answer["Retry-After"]) > 0) == (429, True)

    def test_the_limit_is_one_of_a_user_and_a_scope_and_forgets_what_the_cache_lost(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # 20 seconds are left of the minute.
        monkeypatch.setattr("flows.throttle.time.time", lambda: 1_000_000.0)

        def ask(scope: str = "check", pk: int = 1) -> HttpResponse:
            @limit_rate(scope, most=2, seconds=60)
            def view(request: HttpRequest) -> HttpResponse:
                return HttpResponse("done")

            request = RequestFactory().get("/")
            request.user = User(pk=pk)
            return view(request)

        assert [ask().status_code, ask().status_code] == [200, 200]
        assert (ask().status_code, ask()["Retry-After"]) == (429, "20")
        assert [ask(pk=2).status_code, ask("another").status_code] == [200, 200]
        monkeypatch.setattr(cache, "add", lambda *args, **kwargs: False)
        assert ask(pk=3).status_code == 200
