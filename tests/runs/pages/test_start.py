"""Starting and cancelling runs from the browser."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from flows.engine.spec import FlowSpec
from flows.models import Flow
from runs.models import Run, RunStatus
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import get_page, read_words, run_address, sign_in

pytestmark = pytest.mark.django_db

ADDRESS = "/runs/new/colour-theme/"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["brand", "seeds", "style"],
    "properties": {
        "brand": {"type": "string", "minLength": 1, "description": "Whose theme it is"},
        "seeds": {"type": "integer", "minimum": 1, "maximum": 5, "default": 3},
        "style": {
            "type": "object",
            "required": ["moods"],
            "properties": {"moods": {"type": "array", "items": {"type": "string"}, "maxItems": 2}},
        },
    },
    "examples": [{"brand": "Nordwind", "seeds": 4, "style": {"moods": ["calm"]}}],
}

FIELDS = {"view": "form", "input/brand": "Tea & Co", "input/seeds": "3", "input/style/moods": "calm\r\nwarm"}
INPUT = {"brand": "Tea & Co", "seeds": 3, "style": {"moods": ["calm", "warm"]}}


def make_form_flow(schema: dict[str, Any] | None = SCHEMA) -> FlowSpec:
    return make_page_flow(input_schema=schema)


@pytest.fixture
def flow() -> Flow:
    return make_version(make_form_flow()).flow


def read_field(page: str, name: str) -> str:
    """What stands in a field of the form."""
    found = re.search(rf'<textarea[^>]*name="{re.escape(name)}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    if found is None:
        found = re.search(rf'<input[^>]*name="{re.escape(name)}"[^>]*value="([^"]*)"', page)
    assert found is not None, f"There is no field {name}."
    return unescape(found[1])


def send(client: Client, fields: dict[str, str], status: int) -> str:
    answer: HttpResponse = client.post(ADDRESS, fields)  # type: ignore[assignment]  # the test client adds to it
    assert answer.status_code == status
    return answer.content.decode()


class TestChoosing:
    def test_flows_that_can_run_are_offered(self, operator: Client) -> None:
        flow = make_version(make_form_flow()).flow
        make_version(make_page_flow(name="archived", title="Archived flow"))
        Flow.objects.filter(name="archived").update(is_archived=True)
        Flow.objects.create(name="draft", title="Draft flow")
        page = get_page(operator, "/runs/new/")
        assert re.findall(r'class="card flow-card" href="([^"]+)"', page) == [f"/runs/new/{flow.name}/"]

    def test_without_flows_the_page_says_what_is_missing(self, operator: Client) -> None:
        assert "No flow can be run yet" in get_page(operator, "/runs/new/")

    def test_a_flow_that_can_not_run_says_why(self, operator: Client) -> None:
        Flow.objects.create(name="draft", title="Draft flow")
        answer = operator.get("/runs/new/draft/")
        assert answer.status_code == 409
        assert "It has no live version yet." in read_words(answer.content.decode())


@pytest.mark.usefixtures("flow")
class TestForm:
    def test_fields_are_made_from_the_schema_with_its_defaults(self, operator: Client) -> None:
        page = get_page(operator, ADDRESS)
        assert read_field(page, "input/seeds") == "3"
        assert read_field(page, "input/brand") == ""
        words = read_words(page)
        assert "Brand Whose theme it is." in words
        assert "Style Moods One per line, at most 2 lines." in words

    def test_sending_the_form_starts_a_run_of_the_live_version(self, operator: Client) -> None:
        answer = operator.post(ADDRESS, FIELDS)
        run = Run.objects.get()
        assert answer["Location"] == run_address(run)
        assert run.input == INPUT
        assert run.started_by is not None and run.started_by.get_username() == "ada"
        assert run.status == RunStatus.QUEUED

    def test_an_input_that_does_not_fit_is_refused_at_its_field_and_nothing_typed_is_lost(
        self, operator: Client
    ) -> None:
        page = send(operator, {**FIELDS, "input/seeds": "9", "input/brand": " as typed "}, 422)
        assert "/seeds" in page
        assert re.search(r'<input[^>]*name="input/seeds"[^>]*aria-invalid="true"', page)
        assert read_field(page, "input/brand") == " as typed "
        assert read_field(page, "input/style/moods").splitlines() == ["calm", "warm"]
        assert not Run.objects.exists()

    def test_a_word_where_a_number_should_be_gets_a_sentence_and_stays_to_be_mended(self, operator: Client) -> None:
        page = send(operator, {**FIELDS, "input/seeds": "three"}, 422)
        assert "“three” is not a whole number; write it like 12." in page
        assert read_field(page, "input/seeds") == "three"

    @pytest.mark.parametrize("text", ["", " \r\n "])
    def test_a_text_that_must_be_given_is_asked_for_and_as_json_it_may_be_empty(
        self, operator: Client, flow: Flow, text: str
    ) -> None:
        schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "brand": {"type": "string"}}}
        make_version(make_form_flow(schema))
        page = send(operator, {**FIELDS, "input/brand": text}, 422)
        assert "Write something here. An empty text can be given as JSON." in read_words(page)
        assert re.search(r'id="([^"]+)"[^>]*aria-invalid="true"', page)
        assert not Run.objects.exists()
        page = send(operator, {**FIELDS, "input/brand": text, "switch": ""}, 200)
        send(operator, {"view": "json", "json": read_field(page, "json")}, 302)
        assert Run.objects.get().input["brand"].strip() == ""

    def test_the_example_of_the_schema_can_be_filled_in(self, operator: Client) -> None:
        assert 'href="?example=1"' in get_page(operator, ADDRESS)
        page = get_page(operator, f"{ADDRESS}?example=1")
        assert read_field(page, "input/brand") == "Nordwind"
        assert read_field(page, "input/style/moods") == "calm"


class TestJsonView:
    def test_a_flow_without_an_input_schema_takes_any_json_object(self, operator: Client) -> None:
        make_version(make_form_flow(None))
        page = get_page(operator, ADDRESS)
        assert read_field(page, "json") == "{}"
        operator.post(ADDRESS, {"view": "json", "json": '{"anything": [1, null]}'})
        assert Run.objects.get().input == {"anything": [1, None]}

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ('{\n  "brand": "x"\n  "seeds": 1\n}', "Line 3, column 3"),
            ('{"brand": }', "Line 1, column 11"),
            ("[1]", "A JSON object is expected, got a list."),
            ("", "The text is empty"),
            ('{"brand": NaN}', "NaN is not a JSON number"),
            ('{"brand": "x", "brand": "y"}', "stands twice"),
            ("[" * 3_000, "nested deeper"),
        ],
    )
    def test_text_that_is_no_json_object_gets_line_and_column_and_stays_as_typed(
        self, operator: Client, flow: Flow, text: str, sentence: str
    ) -> None:
        page = send(operator, {"view": "json", "json": text}, 422)
        assert sentence in unescape(page)
        assert read_field(page, "json") == text
        assert not Run.objects.exists()

    def test_an_input_that_does_not_fit_is_refused_with_its_path(self, operator: Client, flow: Flow) -> None:
        page = send(operator, {"view": "json", "json": '{"brand": "x", "seeds": 9, "style": {"moods": [1]}}'}, 422)
        assert "/style/moods/0" in page and "/seeds" in page

    @pytest.mark.parametrize("text", ['{"a": "\\u0000"}', '{"a": "\\ud83d"}', '{"a": "<script>alert(1)</script>"}'])
    def test_hostile_input_is_kept_or_refused_and_never_a_crash(self, operator: Client, text: str) -> None:
        make_version(make_form_flow(None))
        answer = operator.post(ADDRESS, {"view": "json", "json": text})
        assert answer.status_code in (302, 422)
        page = answer.content.decode() if answer.status_code == 422 else get_page(operator, answer["Location"])
        assert "<script>alert" not in page


@pytest.mark.usefixtures("flow")
class TestSwitchingViews:
    def test_what_was_typed_into_fields_comes_along_to_json(self, operator: Client) -> None:
        page = send(operator, {**FIELDS, "input/seeds": "three", "switch": ""}, 200)
        text = read_field(page, "json")
        assert '"brand": "Tea & Co"' in text
        assert '"seeds": "three"' in text
        assert not Run.objects.exists()

    def test_what_was_typed_as_json_comes_along_to_fields(self, operator: Client) -> None:
        text = '{"brand": "x", "seeds": 2, "style": {"moods": []}}'
        page = send(operator, {"view": "json", "json": text, "switch": ""}, 200)
        assert read_field(page, "input/brand") == "x"
        assert read_field(page, "input/seeds") == "2"

    @pytest.mark.parametrize("text", ['{"brand": "x", "extra": 1}', '{"brand": ["x"]}', '{"brand": "\\ud83d"}'])
    def test_json_that_fields_would_change_stays_json_with_a_sentence(self, operator: Client, text: str) -> None:
        page = send(operator, {"view": "json", "json": text, "switch": ""}, 200)
        assert "The form can’t show this input exactly" in page
        assert read_field(page, "json") == text

    def test_json_with_a_mistake_stays_json(self, operator: Client) -> None:
        page = send(operator, {"view": "json", "json": '{"brand"', "switch": ""}, 422)
        assert "Line 1, column 9" in page
        assert read_field(page, "json") == '{"brand"'


class TestRunningAgain:
    def test_a_run_that_ended_offers_to_run_again_with_its_input(self, operator: Client) -> None:
        run = make_run(make_version(make_form_flow()), input=INPUT)
        assert run.request_cancel()
        assert f'href="{ADDRESS}?from={run.pk}"' in get_page(operator, run_address(run))
        page = get_page(operator, f"{ADDRESS}?from={run.pk}")
        assert read_field(page, "input/brand") == "Tea & Co"
        assert read_field(page, "input/style/moods").splitlines() == ["calm", "warm"]

    def test_an_input_that_the_form_can_not_show_is_filled_in_as_json(self, operator: Client) -> None:
        run = make_run(make_version(make_form_flow()), input={"brand": "x", "old": "field"})
        assert '"old": "field"' in read_field(get_page(operator, f"{ADDRESS}?from={run.pk}"), "json")

    @pytest.mark.parametrize("number", ["999", "x", "-1", "9" * 30])
    def test_a_run_that_is_none_of_this_flow_gets_a_sentence(self, operator: Client, flow: Flow, number: str) -> None:
        page = get_page(operator, f"{ADDRESS}?from={number}")
        assert f"There is no run #{number[:20]} of this flow" in page

    def test_a_run_of_another_flow_fills_in_nothing(self, operator: Client, flow: Flow) -> None:
        other = make_run(make_version(make_page_flow(name="other", title="Other")), input=INPUT)
        page = get_page(operator, f"{ADDRESS}?from={other.pk}")
        assert f"There is no run #{other.pk} of this flow" in page
        assert "Tea" not in page

    def test_the_input_of_a_run_is_not_shown_to_who_may_not_see_runs(self, client: Client) -> None:
        run = make_run(make_version(make_form_flow()), input=INPUT)
        page = get_page(sign_in(client, "add_run"), f"{ADDRESS}?from={run.pk}")
        assert "Tea" not in page


@pytest.mark.usefixtures("flow")
class TestVersions:
    OTHER: dict[str, Any] = {
        "type": "object",
        "required": ["brand", "seeds"],
        "properties": {"brand": {"type": "string"}, "seeds": {"type": "integer"}, "note": {"type": "string"}},
    }

    @pytest.fixture
    def earlier(self, flow: Flow) -> Run:
        """A run of version 1 that was cancelled; the live version is 2 by now."""
        run = make_run(flow.versions.get(), input=INPUT)
        assert run.request_cancel()
        make_version(make_form_flow(self.OTHER))
        return run

    def test_the_page_of_a_run_offers_the_live_version_and_that_of_the_run(
        self, operator: Client, earlier: Run
    ) -> None:
        page = get_page(operator, run_address(earlier))
        assert f'href="{ADDRESS}?from={earlier.pk}"' in page
        assert f'href="{ADDRESS}?from={earlier.pk}&amp;version=1"' in page
        assert "Run version 1 again" in read_words(page)

    def test_where_both_are_the_same_there_is_one_way(self, operator: Client, flow: Flow) -> None:
        run = make_run(flow.versions.get(), input=INPUT)
        assert run.request_cancel()
        assert "version=" not in get_page(operator, run_address(run))

    def test_the_form_says_which_version_runs_and_runs_that_one(self, operator: Client, earlier: Run) -> None:
        words = read_words(get_page(operator, f"{ADDRESS}?from={earlier.pk}&version=1"))
        assert "Version 1, which is not the live one." in words
        assert f"Runs with version 1 , as run #{earlier.pk}. The live one is version 2." in words
        operator.post(ADDRESS, {**FIELDS, "from": earlier.pk, "version": "1"})
        run = Run.objects.latest("pk")
        assert (run.version.number, run.input) == (1, INPUT)

    def test_without_a_version_the_live_one_runs_and_the_form_says_so(self, operator: Client, earlier: Run) -> None:
        words = read_words(get_page(operator, f"{ADDRESS}?from={earlier.pk}"))
        assert "Version 2, the live one." in words
        assert f"Runs with version 2 , the live one. Run #{earlier.pk} had version 1." in words
        operator.post(ADDRESS, {"view": "json", "json": '{"brand": "x", "seeds": 1}', "from": earlier.pk})
        assert Run.objects.latest("pk").version.number == 2

    def test_changing_the_version_keeps_what_was_typed(self, operator: Client, earlier: Run) -> None:
        fields = {"view": "form", "input/brand": "Typed", "input/seeds": "5", "from": str(earlier.pk), "labels": "mine"}
        page = send(operator, {**fields, "take": "1"}, 200)
        assert '<input type="hidden" name="version" value="1">' in page
        # The other version wants more than these fields hold.
        assert '"brand": "Typed"' in read_field(page, "json")
        assert "The form can’t show this input exactly" in page
        assert 'value="mine"' in page
        text = '{"brand": "Typed", "seeds": 5}'
        page = send(operator, {"view": "json", "json": text, "version": "1", "from": str(earlier.pk), "take": "2"}, 200)
        assert 'name="version"' not in page
        assert read_field(page, "json") == text
        assert Run.objects.count() == 1

    @pytest.mark.parametrize("number", ["9", "x", "-1", "9" * 30, "٣"])
    def test_a_version_that_there_is_not_gets_a_sentence_and_nothing_else_runs_instead(
        self, operator: Client, flow: Flow, number: str
    ) -> None:
        sentence = f"There is no version {number[:20]} of this flow; this is its live version 1."
        assert sentence in get_page(operator, f"{ADDRESS}?version={number}")
        assert sentence in send(operator, {**FIELDS, "version": number}, 200)
        assert not Run.objects.exists()

    def test_a_run_that_was_deleted_meanwhile_keeps_nobody_from_starting(self, operator: Client, flow: Flow) -> None:
        send(operator, {**FIELDS, "from": "999"}, 302)
        assert Run.objects.get().input == INPUT

    def test_a_flow_in_the_archive_is_not_run_again_and_its_runs_say_why(self, operator: Client, earlier: Run) -> None:
        Flow.objects.update(is_archived=True)
        page = get_page(operator, run_address(earlier))
        assert "Run again" not in page
        assert "The flow is in the archive, so that it can’t be run again." in read_words(page)
        for address in (f"{ADDRESS}?from={earlier.pk}", f"{ADDRESS}?from={earlier.pk}&version=1"):
            assert operator.get(address).status_code == 409


class TestCancelling:
    def test_cancelling_asks_first_and_a_queued_run_ends_at_once(self, operator: Client) -> None:
        run = make_run()
        assert f'href="/runs/{run.pk}/cancel/"' in get_page(operator, run_address(run))
        assert "Cancel Example" in read_words(get_page(operator, f"/runs/{run.pk}/cancel/"))
        run.refresh_from_db()
        assert run.status == RunStatus.QUEUED
        answer = operator.post(f"/runs/{run.pk}/cancel/", follow=True)
        assert "The run is cancelled." in read_words(answer.content.decode())
        run.refresh_from_db()
        assert run.status == RunStatus.CANCELLED

    def test_a_running_run_is_flagged_for_its_worker(self, operator: Client) -> None:
        run = make_stored_run(status=RunStatus.RUNNING)
        answer = operator.post(f"/runs/{run.pk}/cancel/", follow=True)
        words = read_words(answer.content.decode())
        assert "The run is being cancelled." in words
        assert "Cancelling" in words

    def test_a_run_that_has_ended_stays_as_it_is(self, operator: Client) -> None:
        run = make_retried_run()
        answer = operator.post(f"/runs/{run.pk}/cancel/", follow=True)
        assert "The run had ended already: succeeded." in read_words(answer.content.decode())
        run.refresh_from_db()
        assert run.status == RunStatus.SUCCEEDED

    def test_who_may_not_cancel_can_not(self, viewer: Client) -> None:
        run = make_run()
        assert viewer.post(f"/runs/{run.pk}/cancel/").status_code == 403
        run.refresh_from_db()
        assert run.status == RunStatus.QUEUED
