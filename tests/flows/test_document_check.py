"""What the editor is answered while a user types, the draft that is kept of it, and the helpers for writing a flow."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse

from flows.admin.document_check import read_schema_texts
from flows.admin.language import describe_model
from flows.admin.posted_json import MAX_BYTES
from flows.engine.plugins import load_plugins
from flows.engine.strict_schema import check_strict
from flows.models import Flow, FlowDraft, FlowVersion
from flows.publishing import publish_flow
from flows.throttle import limit_rate
from tests.engine.builders import closed, make_flow, make_step
from tests.flows.editor_page import CHECK_URL, EditorPage, open_flow, read_rows

pytestmark = pytest.mark.django_db

LANGUAGE = "/admin/flows/flow/language/"
SCHEMAS = "/admin/flows/flow/schema/"

load_plugins(["flows.examples.plugins"])


@pytest.mark.sql
class TestDrafts:
    def test_the_check_keeps_what_was_typed_for_its_user_and_nothing_else(
        self, editor: Client, colleague: Client
    ) -> None:
        page = open_flow(editor)
        before = read_rows(with_drafts=False)
        page.steps[0] |= {"name": "Half", "rul": [1, {"deep": None}], "output_schema": '{"type":'}
        assert page.check()["is_changed"]
        page.steps[0]["name"] = "Half written"
        page.check()
        assert read_rows(with_drafts=False) == before, "no version, no entry of a log"
        again = EditorPage(editor, page.url)
        assert (again.document, again.data["base_version"]) == (page.document, 1)
        assert again.data["draft_saved_at"] and "This is your draft" in again.words
        assert read_schema_texts(again.data["stored"])[0] == FlowVersion.objects.get().spec
        theirs = EditorPage(colleague, page.url)
        assert (theirs.document, theirs.data["draft_saved_at"]) == (again.data["stored"], None)
        assert [one["user"] for one in theirs.check()["others"]] == ["ada"]
        assert "ada has a draft of this flow" in theirs.words and "Half" not in theirs.words

    def test_a_page_that_was_not_touched_makes_none_when_others_save(self, editor: Client, colleague: Client) -> None:
        page = open_flow(editor)
        theirs = EditorPage(colleague, page.url)
        theirs.steps[0]["max_retries"] = 0
        theirs.save()
        reported = page.check()
        assert (reported["latest"], reported["is_changed"], FlowDraft.objects.count()) == (2, False, 0)

    def test_saving_discards_the_own_one_and_leaves_those_of_others(self, editor: Client, colleague: Client) -> None:
        mine = open_flow(editor)
        theirs = EditorPage(colleague, mine.url)
        for page, retries in ((mine, 1), (theirs, 2)):
            page.steps[0]["max_retries"] = retries
            page.check()
        mine.save()
        assert FlowDraft.objects.get().user.get_username() == "bob"
        again = EditorPage(colleague, mine.url)
        assert (again.data["base_version"], again.data["latest"], again.steps[0]["max_retries"]) == (1, 2, 2)
        assert again.post().status_code == 409
        again.save("_overwrite", "2")
        assert not FlowDraft.objects.exists()


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
            ("strict", "{", "Line 1, column 2: "),
        ],
    )
    def test_what_makes_none_gets_a_sentence(self, editor: Client, make: str, text: str, says: str) -> None:
        (problem,) = self.ask(editor, make, text=text)["problems"]
        assert problem["message"].startswith(says)

    def test_a_registered_type_has_one_and_is_offered(self, editor: Client) -> None:
        schema = json.loads(self.ask(editor, "type", text="colour_suite")["schema"])
        assert schema["properties"]["primary"]["pattern"] == "^#[0-9A-F]{6}$"
        assert "colour_suite" in EditorPage(editor).data["types"]

    def test_its_fields_are_rows_of_a_table(self, editor: Client) -> None:
        text = json.dumps(closed(at=closed(city={"type": "string", "description": "Where"})))
        rows = self.ask(editor, "table", text=text)["rows"]
        found = [(row["name"], row["kind"], row["description"]) for row in rows]
        assert found == [("at", "object", ""), ("at.city", "text", "Where")]

    def test_one_is_made_strict_and_what_becomes_of_optional_properties_is_asked_first(self, editor: Client) -> None:
        total = {"type": "number", "default": 0}
        answer = self.ask(editor, "strict", text=json.dumps(closed(total=total)))
        assert check_strict(json.loads(answer["schema"])) == []
        assert any(note.startswith("removed") and "default" in note for note in answer["notes"]), answer["notes"]
        optional = json.dumps({**closed(a={"type": "string"}, b={"type": "string"}), "required": ["a"]})
        assert self.ask(editor, "strict", text=optional) == {"undecided": ["b"]}
        for choice, kind in (("null", ["string", "null"]), ("given", "string")):
            answer = self.ask(editor, "strict", text=optional, optional=choice)
            assert json.loads(answer["schema"])["properties"]["b"]["type"] == kind


MAKE = '"make": "example", "field": "output_schema"'


class TestBadRequests:
    @pytest.mark.parametrize(
        "body",
        [
            *(b"", b"\xff\xfe", b"[]", b"{}", b"[" * 100_000, f'{{{MAKE}, "more": 1}}', f'{{{MAKE}, "text": 1}}'),
            *(f'{{{MAKE}, "text": "{"x" * MAX_BYTES}"}}', '{"make": "strict", "field": "rule"}'),
            *(f'{{{MAKE}, "optional": "x"}}', f'{{{MAKE}, "with_descriptions": 1}}'),
        ],
        ids=count(),
    )
    def test_what_the_editor_never_asks_gets_one_sentence(self, editor: Client, body: Any) -> None:
        answer = editor.post(SCHEMAS, body, content_type="application/json")
        assert answer.status_code == 400
        assert answer.json()["error"].endswith(".") and "\n" not in answer.json()["error"]

    def test_forms_are_no_questions(self, editor: Client) -> None:
        for kind in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
            assert editor.post(SCHEMAS, b"make=example", content_type=kind).status_code == 400
        assert (editor.put(SCHEMAS).status_code, editor.post(LANGUAGE).status_code) == (405, 405)

    def test_questions_are_counted_and_then_have_to_wait(self, editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flows.throttle.count_request", lambda *args, **limits: 30)
        for url in (CHECK_URL, SCHEMAS):
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


SORTED = {"type": "object", "properties": {"b": {"type": "string"}, "1": {"type": "string"}}}
SORTED = {**SORTED, "required": ["b", "1"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("model", "price", "flex", "refused", "temperature"),
    [
        ("gpt-5-mini", "$0.25 in, $2.00 out", "$0.125 in, $1.00 out", "none", "GPT-5 takes no temperature."),
        ("gpt-5.1", "$1.25 in, $10.00 out", "$0.625 in, $5.00 out", "minimal", "only with the effort “none”"),
        ("gpt-4o", "$2.50 in, $10.00 out", "", "low", ""),
    ],
)
def test_prices_and_refusals_of_a_model(model: str, price: str, flex: str, refused: str, temperature: str) -> None:
    known = describe_model(model)
    assert (known["tiers"][""], known["tiers"]["flex"]) == (price, flex)
    assert "take" in known["efforts"][refused]
    assert temperature in known["temperature"]


def test_an_unknown_model_refuses_nothing_and_an_unknown_provider_is_reported() -> None:
    known = describe_model("someones-own-model")
    assert (known["tiers"][""], known["efforts"], known["temperature"]) == ("", {}, "")
    assert "“nowhere”" in describe_model("nowhere:model")["note"]


@pytest.mark.django_db
class TestText:
    """The document as the text of a flow file, and back."""

    @staticmethod
    def ask(client: Client, flow: Flow, **question: object) -> dict[str, object]:
        posted = {"flow": flow.pk, "base_version": 1, **question}
        answer = client.post(reverse("admin:flows_flow_check"), posted, content_type="application/json")
        assert answer.status_code == 200
        return dict(answer.json())

    @pytest.fixture
    def flow(self) -> Flow:
        return publish_flow(spec=make_flow(make_step(output_schema=SORTED), title="Sorted")).flow

    def test_it_is_the_same_flow_in_both(self, admin_client: Client, flow: Flow) -> None:
        document = admin_client.get(reverse("admin:flows_flow_change", args=[flow.pk])).context["editor"]["document"]
        # Browsers sort keys that are numbers: a schema is text, which keeps its order.
        assert document["steps"][0]["output_schema"].index('"b"') < document["steps"][0]["output_schema"].index('"1"')
        answer = self.ask(admin_client, flow, document=document, as_text=True)
        assert (answer["problems"], answer["is_changed"]) == ([], False)
        back = self.ask(admin_client, flow, text=answer["text"])
        assert (back["document"], back["is_changed"]) == (document, False)
        assert not FlowDraft.objects.exists()

    def test_a_schema_that_can_not_be_read_yet_is_in_no_form_lost(self, admin_client: Client, flow: Flow) -> None:
        document: Any = admin_client.get(reverse("admin:flows_flow_change", args=[flow.pk])).context["editor"]
        document = {**document["document"], "input_schema": '{"type": "object",}'}
        answer = self.ask(admin_client, flow, document=document, as_text=True)
        assert answer["is_changed"] and FlowDraft.objects.get().document == document
        back = self.ask(admin_client, flow, text=answer["text"])
        assert back["document"] == document
        for asked in (answer, back):
            assert [one["path"] for one in asked["problems"]] == ["/input_schema"]  # type: ignore[attr-defined]

    def test_problems_of_a_text_have_their_lines(self, admin_client: Client, flow: Flow) -> None:
        answer = self.ask(
            admin_client, flow, text="name: sorted\nsteps:\n- name: One\n  max_retries: -1\n  compute: '{}'\n"
        )
        assert [problem["line"] for problem in answer["problems"]] == [4]  # type: ignore[attr-defined]
        assert answer["document"] is not None
        nothing = self.ask(admin_client, flow, text="steps: [")
        assert nothing["document"] is None
        assert nothing["problems"]
