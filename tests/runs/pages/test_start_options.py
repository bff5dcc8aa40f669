"""Priority, budgets and time limit in the form that starts a run."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.http import HttpResponse
from django.test import Client

from flows.models import Flow
from runs.models import FacetKind, Priority, Run
from runs.submission import submit_run
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

ADDRESS = "/runs/new/colour-theme/"
SENT = {"view": "json", "json": '{"brand": "Nordwind"}'}


@pytest.fixture
def flow() -> Flow:
    return make_version(make_page_flow(token_budget=20_000, cost_budget=Decimal("0.5"))).flow


def send(client: Client, status: int, **fields: str) -> str:
    answer: HttpResponse = client.post(ADDRESS, {**SENT, **fields})  # type: ignore[assignment]  # the test client adds to it
    assert answer.status_code == status
    return answer.content.decode()


def read_option(page: str, name: str) -> str:
    found = re.search(rf'<input[^>]*name="{name}" id="option-{name}" value="([^"]*)"', page)
    assert found is not None
    return found[1]


@pytest.mark.usefixtures("flow")
class TestOptions:
    def test_the_part_is_folded_and_shows_what_the_flow_says(self, operator: Client) -> None:
        page = get_page(operator, ADDRESS)
        assert '<details class="more" id="more">' in page
        placeholders = dict(re.findall(r'name="(\w+)" id="option-\w+" value="" placeholder="([^"]*)"', page))
        assert placeholders == {
            "labels": "None",
            "token_budget": "20000, from the flow",
            "cost_budget": "0.50, from the flow",
            "time_limit": "No limit",
        }

    def test_a_run_gets_what_is_typed(self, operator: Client) -> None:
        send(operator, 302, priority="high", token_budget="5 000", cost_budget="0.25", time_limit="600")
        run = Run.objects.get()
        assert run.priority == Priority.HIGH
        assert (run.token_budget, run.cost_budget) == (5_000, Decimal("0.25"))
        assert run.time_limit == timedelta(minutes=10)

    def test_what_is_left_empty_is_as_the_flow_says(self, operator: Client) -> None:
        send(operator, 302, priority="normal", token_budget="", cost_budget="", time_limit=" ")
        run = Run.objects.get()
        assert run.priority == Priority.NORMAL
        assert (run.token_budget, run.cost_budget, run.time_limit) == (20_000, Decimal("0.5"), None)

    @pytest.mark.parametrize(
        ("name", "text", "sentence"),
        [
            ("labels", "x" * 51, "The label “" + "x" * 40 + "…” is longer than 50 characters."),
            ("labels", "fine, bulk-7", "The label “bulk-7” is one that bulk actions give"),
            ("priority", "urgent", "“urgent” is not a priority; it can be high, normal, low."),
            ("token_budget", "many", "“many” is not a token budget; write a whole number"),
            ("cost_budget", "0,50", "“0,50” is not a cost budget; write USD"),
            ("time_limit", "soon", "“soon” is not a time limit; write a whole number of seconds"),
        ],
    )
    def test_what_can_not_be_read_is_refused_at_its_field_and_nothing_typed_is_lost(
        self, operator: Client, name: str, text: str, sentence: str
    ) -> None:
        page = send(operator, 422, **{"token_budget": "700", name: text})
        assert '<details class="more" id="more" open>' in page
        assert f'<a href="#option-{name}">' in page
        assert read_words(page).count(sentence) == 2
        assert re.search(rf'name="{name}" id="option-{name}"[^>]*aria-invalid="true"', page)
        assert "The run can’t start like this" in page
        assert "Nordwind" in page
        if name in ("cost_budget", "time_limit"):
            assert (read_option(page, "token_budget"), read_option(page, name)) == ("700", text)
        assert not Run.objects.exists()

    def test_changing_the_view_keeps_what_was_typed(self, operator: Client) -> None:
        page = send(operator, 200, switch="", token_budget="700", priority="low")
        assert read_option(page, "token_budget") == "700"
        assert '<option value="low" selected>' in page
        assert '<details class="more" id="more" open>' in page

    def test_running_again_fills_in_what_the_run_was_given_beyond_the_flow(
        self, client: Client, operator: Client, flow: Flow
    ) -> None:
        run = submit_run(flow=flow, input={}, priority=Priority.LOW, time_limit=90)
        page = get_page(operator, f"{ADDRESS}?from={run.pk}")
        assert read_option(page, "time_limit") == "90"
        assert read_option(page, "token_budget") == ""
        assert '<option value="low" selected>' in page

    def test_a_run_gets_labels_by_which_it_is_found_again(self, operator: Client) -> None:
        send(operator, 302, labels=" nightly, Customer  42 ,, nightly,<b>&?")
        run = Run.objects.get()
        assert run.labels == ["<b>&?", "Customer 42", "nightly"]
        assert set(run.facets.filter(kind=FacetKind.LABEL).values_list("value", flat=True)) == set(run.labels)
        page = get_page(operator, f"/runs/{run.pk}/")
        assert re.findall(r'href="/runs/\?label=([^"]*)"', page) == ["%3Cb%3E%26%3F", "Customer%2042", "nightly"]
        assert "&lt;b&gt;&amp;?" in page

    def test_running_again_fills_in_the_labels(self, operator: Client, flow: Flow) -> None:
        run = submit_run(flow=flow, input={}, labels=["nightly", "customer 42"])
        assert read_option(get_page(operator, f"{ADDRESS}?from={run.pk}"), "labels") == "customer 42, nightly"

    def test_running_a_plain_run_again_leaves_the_part_folded(self, operator: Client, flow: Flow) -> None:
        run = submit_run(flow=flow, input={})
        assert '<details class="more" id="more">' in get_page(operator, f"{ADDRESS}?from={run.pk}")
