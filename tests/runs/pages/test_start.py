"""Starting and cancelling runs from the browser."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from flows.engine.spec import FlowSpec
from flows.models import Flow
from runs.models import FacetKind, Priority, Run, RunStatus
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.reading import get_page, read_words, run_address

pytestmark = pytest.mark.django_db

ADDRESS = "/runs/new/colour-theme/"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["brand", "seeds", "style"],
    "properties": {
        "brand": {"type": "string", "description": "Whose theme it is"},
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


def make_form_flow(schema: dict[str, Any] | None = SCHEMA, **fields: Any) -> FlowSpec:
    return make_page_flow(input_schema=schema, **fields)


@pytest.fixture
def flow(db: None) -> Flow:
    return make_version(make_form_flow(token_budget=20_000, cost_budget=Decimal("0.5"))).flow


def read_field(page: str, name: str) -> str:
    """What is in a field of the form."""
    found = re.search(rf'<textarea[^>]*name="{re.escape(name)}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    if found is None:
        found = re.search(rf'<input[^>]*name="{re.escape(name)}"[^>]*value="([^"]*)"', page)
    assert found is not None, f"There is no field {name}."
    return unescape(found[1])


def send(client: Client, fields: dict[str, str], status: int) -> str:
    answer: HttpResponse = client.post(ADDRESS, fields)  # type: ignore[assignment]  # the test client adds to it
    assert answer.status_code == status
    return answer.content.decode()


def test_flows_that_can_run_are_offered_and_others_say_why_not(operator: Client, flow: Flow) -> None:
    make_version(make_page_flow(name="archived"))
    Flow.objects.filter(name="archived").update(is_archived=True)
    Flow.objects.create(name="draft", title="Draft flow")
    page = get_page(operator, "/runs/new/")
    assert re.findall(r'class="card flow-card" href="([^"]+)"', page) == [f"/runs/new/{flow.name}/"]
    assert operator.get("/runs/new/draft/").status_code == operator.get("/runs/new/archived/").status_code == 409


@pytest.mark.usefixtures("flow")
class TestFields:
    def test_they_are_made_from_the_schema_with_its_defaults_and_its_example(self, operator: Client) -> None:
        page = get_page(operator, ADDRESS)
        assert (read_field(page, "input/seeds"), read_field(page, "input/brand")) == ("3", "")
        assert "Brand Whose theme it is." in read_words(page)
        assert 'href="?example=1"' in page
        page = get_page(operator, f"{ADDRESS}?example=1")
        assert (read_field(page, "input/brand"), read_field(page, "input/style/moods")) == ("Nordwind", "calm")

    def test_problems_are_summed_up_in_the_order_of_the_page_with_links_to_their_fields(self, operator: Client) -> None:
        wrong = {**FIELDS, "time_limit": "soon", "input/style/moods": "a\nb\nc", "input/seeds": "9"}
        page = send(operator, wrong, 422)
        summary = re.findall(r'<li><a href="#([\w-]+)">([^<]+)</a>', page)
        assert [label for _, label in summary] == ["Seeds", "Moods", "Time limit"]
        assert all(f'id="{field}"' in page for field, _ in summary)
        page = send(operator, {"view": "json", "json": "{", "priority": "urgent"}, 422)
        assert re.findall(r'<li><a href="#([\w-]+)">', page) == ["input-json", "option-priority"]


@pytest.mark.usefixtures("flow")
class TestJson:
    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ('{\n  "brand": "x"\n  "seeds": 1\n}', "Line 3, column 3"),
            ("[1]", "A JSON object is expected, got a list."),
            ('{"brand": "x", "brand": "y"}', "occurs twice"),
            ('{"brand": "x", "seeds": 9, "style": {"moods": [1]}}', "/style/moods/0"),
        ],
        ids=["comma", "list", "twice", "schema"],
    )
    def test_what_is_no_input_is_refused_with_its_place_and_stays_as_typed(
        self, operator: Client, text: str, sentence: str
    ) -> None:
        page = send(operator, {"view": "json", "json": text}, 422)
        assert sentence in unescape(page) and read_field(page, "json") == text
        assert not Run.objects.exists()

    @pytest.mark.parametrize("text", ['{"a": "\\u0000"}', '{"a": "\\ud83d"}', '{"a": "<script>alert(1)</script>"}'])
    def test_hostile_input_is_kept_or_refused_and_never_a_crash(self, operator: Client, text: str) -> None:
        make_version(make_form_flow(None))
        answer = operator.post(ADDRESS, {"view": "json", "json": text})
        assert answer.status_code in (302, 422)
        page = answer.content.decode() if answer.status_code == 422 else get_page(operator, answer["Location"])
        assert "<script>alert" not in page


@pytest.mark.usefixtures("flow")
class TestOptions:
    def test_they_are_folded_and_show_what_the_flow_says(self, operator: Client) -> None:
        page = get_page(operator, ADDRESS)
        assert '<details class="more" id="more">' in page
        placeholders = dict(re.findall(r'name="(\w+)" id="option-\w+" value="" placeholder="([^"]*)"', page))
        assert placeholders == {
            "labels": "None",
            "token_budget": "20000, from the flow",
            "cost_budget": "$0.50, from the flow",
            "time_limit": "No limit",
        }

    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            (("high", "5 000", "0.25", "600"), (Priority.HIGH, 5_000, Decimal("0.25"), timedelta(minutes=10))),
            (("normal", "", "", " "), (Priority.NORMAL, 20_000, Decimal("0.5"), None)),
        ],
        ids=["typed", "left empty"],
    )
    def test_a_run_gets_what_is_typed_or_what_the_flow_says(
        self, operator: Client, texts: tuple[str, ...], expected: Any
    ) -> None:
        names = ("priority", "token_budget", "cost_budget", "time_limit")
        send(operator, {**FIELDS, **dict(zip(names, texts, strict=True))}, 302)
        run = Run.objects.get()
        assert (run.priority, run.token_budget, run.cost_budget, run.time_limit) == expected

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("labels", "fine, bulk-7"),
            ("priority", "urgent"),
            ("cost_budget", "0,50"),
            ("time_limit", "soon"),
        ],
    )
    def test_what_can_not_be_read_is_refused_at_its_field_and_nothing_typed_is_lost(
        self, operator: Client, name: str, text: str
    ) -> None:
        page = send(operator, {**FIELDS, "token_budget": "700", name: text}, 422)
        assert '<details class="more" id="more" open>' in page and f'<a href="#option-{name}">' in page
        assert re.search(rf'name="{name}" id="option-{name}"[^>]*aria-invalid="true"', page)
        assert read_field(page, "input/brand") == "Tea & Co"
        if name in ("cost_budget", "time_limit"):
            assert (read_field(page, "token_budget"), read_field(page, name)) == ("700", text)
        assert not Run.objects.exists()

    def test_a_run_gets_labels_by_which_it_is_found_again(self, operator: Client) -> None:
        send(operator, {**FIELDS, "labels": " nightly, Customer  42 ,, nightly,<b>&?"}, 302)
        run = Run.objects.get()
        assert run.labels == ["<b>&?", "Customer 42", "nightly"]
        assert set(run.facets.filter(kind=FacetKind.LABEL).values_list("value", flat=True)) == set(run.labels)
        page = get_page(operator, run_address(run))
        assert re.findall(r'href="/runs/\?label=([^"]*)"', page) == ["%3Cb%3E%26%3F", "Customer%2042", "nightly"]


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.SUCCEEDED])
def test_cancelling_asks_first_and_is_offered_until_the_run_has_ended(operator: Client, status: str) -> None:
    run = make_run() if status == RunStatus.QUEUED else make_retried_run()
    address = f"/runs/{run.pk}/cancel/"
    assert (f'href="{address}"' in get_page(operator, run_address(run))) == (status == RunStatus.QUEUED)
    operator.get(address)
    run.refresh_from_db()
    assert run.status == status
    operator.post(address)
    run.refresh_from_db()
    assert run.status == (RunStatus.CANCELLED if status == RunStatus.QUEUED else status)
