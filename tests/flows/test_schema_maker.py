"""The schema maker as its dialog asks the server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from flows.admin.posted_json import MOST_BYTES
from flows.engine.plugins import load_plugins
from tests.engine.builders import closed

URL = "/admin/flows/flow/schema/"

load_plugins(["flows.examples.plugins"])


def ask(client: Client, make: str, field: str = "output_schema", **question: Any) -> dict[str, Any]:
    response = client.post(URL, {"make": make, "field": field, **question}, content_type="application/json")
    assert response.status_code == 200, response.content
    return dict(response.json())


def messages(answer: dict[str, Any]) -> list[str]:
    return [problem["message"] for problem in answer["problems"]]


class TestFromAnExample:
    def test_an_example_becomes_a_schema(self, editor: Client) -> None:
        answer = ask(editor, "example", text='{"tags": []}', with_descriptions=True)
        tags = {"type": "array", "description": "", "items": {"type": "string"}}
        assert json.loads(answer["schema"]) == closed(tags=tags)
        assert answer["notes"][0].startswith("`tags` is an empty list")

    def test_the_schema_of_an_input_keeps_the_example(self, editor: Client) -> None:
        answer = ask(editor, "example", "input_schema", text='{"topic": "tea"}')
        assert json.loads(answer["schema"])["examples"] == [{"topic": "tea"}]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('{\n  "a": tea}', "Line 2, column 8: "),
            ("[1]", "A JSON object is expected, got a list."),
            ('{"\\ud800": 1}', "The schema holds characters or values that JSON can't store."),
            ('{"a": ' * 50 + "1" + "}" * 50, "The schema is nested deeper than 100 levels."),
        ],
    )
    def test_what_is_no_example_gets_a_sentence(self, editor: Client, text: str, says: str) -> None:
        (message,) = messages(ask(editor, "example", text=text))
        assert message.startswith(says)


class TestFromAType:
    def test_the_schema_of_a_registered_type_is_that_of_its_flow(self, editor: Client) -> None:
        schema = json.loads(ask(editor, "type", text="colour_suite")["schema"])
        assert schema["properties"]["primary"] == {"pattern": "^#[0-9A-F]{6}$", "title": "Primary", "type": "string"}
        assert schema["additionalProperties"] is False

    def test_a_name_that_nobody_registers_gets_a_sentence(self, editor: Client) -> None:
        assert messages(ask(editor, "type", text="ghost")) == ["No output type is registered as “ghost”."]


class TestAsATable:
    def test_the_fields_of_a_schema_are_rows(self, editor: Client) -> None:
        text = json.dumps(closed(at=closed(city={"type": "string", "description": "Where"})))
        assert [(row["name"], row["kind"], row["description"]) for row in ask(editor, "table", text=text)["rows"]] == [
            ("at", "object", ""),
            ("at.city", "text", "Where"),
        ]

    def test_what_is_no_json_is_a_problem(self, editor: Client) -> None:
        assert messages(ask(editor, "table", text='{"a'))[0].startswith("Line 1, column 2: ")


class TestDialog:
    def test_it_lists_the_registered_types_with_their_docstrings(self, editor: Client) -> None:
        response = editor.get(URL)
        assert response.status_code == 200
        page = response.content.decode()
        assert page.lstrip().startswith("<dialog")
        assert "colour_suite" in page
        assert "All colours of a theme." in page
        assert "flows.examples.plugins.ColourSuite" in page


class TestBadRequests:
    @pytest.mark.parametrize(
        ("body", "says"),
        [
            (b"", "The text is empty; a JSON object such as {} is expected."),
            (b"\xff", "The request can’t be read: it is not text in UTF-8."),
            (b"[]", "A JSON object is expected, got a list."),
            (b"{}", "The request can't be read. /make: “make” is missing."),
            (b'{"make": "tea", "field": "output_schema"}', "“make”: Input should be"),
            (b'{"make": "example", "field": "name"}', "“field”: Input should be"),
            (b'{"make": "example", "field": "output_schema", "text": 1}', "“text”: Input should be a valid string"),
            (
                b'{"make": "example", "field": "output_schema", "text": "' + b"x" * MOST_BYTES + b'"}',
                "more than 256 KB",
            ),
        ],
    )
    def test_a_question_that_the_dialog_never_asks_gets_one_sentence(
        self, editor: Client, body: bytes, says: str
    ) -> None:
        response = editor.post(URL, body, content_type="application/json")
        assert response.status_code == 400
        assert says in response.json()["error"]
        assert "\n" not in response.json()["error"]

    def test_forms_are_no_questions(self, db: None) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.create_superuser("ada"))
        client.get("/admin/flows/flow/add/")
        token = client.cookies["csrftoken"].value
        for kind in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
            response = client.post(URL, b"make=example", content_type=kind, headers={"X-CSRFToken": token})
            assert response.status_code == 400
            assert response.json()["error"]
        assert client.put(URL, headers={"X-CSRFToken": token}).status_code == 405


class TestAccess:
    def test_strangers_are_sent_to_sign_in(self, client: Client, db: None) -> None:
        assert client.get(URL).status_code == 302

    def test_who_may_only_see_flows_makes_no_schemas(self, client: Client, db: None) -> None:
        viewer = User.objects.create_user("vera", is_staff=True)
        viewer.user_permissions.add(Permission.objects.get(codename="view_flow"))
        client.force_login(viewer)
        assert client.get(URL).status_code == 403

    def test_a_post_needs_the_token_of_the_page(self, db: None) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.create_superuser("ada"))
        assert client.post(URL, {}, content_type="application/json").status_code == 403

    def test_too_many_questions_have_to_wait(self, editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flows.throttle.time.time", lambda: 1_000_000.0)
        answers = [editor.post(URL, b"{}", content_type="application/json") for _ in range(121)]
        assert [answer.status_code for answer in answers[:120]] == [400] * 120
        assert answers[120].status_code == 429
        assert answers[120].json()["error"]


def test_the_editor_knows_where_schemas_are_made(editor: Client) -> None:
    assert reverse("admin:flows_flow_schema") == URL
    assert f'data-schema-url="{URL}"' in editor.get("/admin/flows/flow/add/").content.decode()
