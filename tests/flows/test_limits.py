"""The limits of a flow: those of its definition make versions, those of this installation hold at once."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from flows.models import BudgetPeriod, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from flows.publishing import publish_flow
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import fill_new_flow, open_flow

pytestmark = pytest.mark.django_db


def latest_document() -> dict[str, Any]:
    version = FlowVersion.objects.first()
    assert version is not None
    return version.flow_spec.to_document()


class TestDefinition:
    def test_budgets_and_time_limits_are_part_of_the_version(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.fill(token_budget=20_000, cost_budget="0.50", time_limit=600)
        page.fill("steps-0-", time_limit=30)
        page.save()
        document = latest_document()
        assert (document["token_budget"], document["cost_budget"], document["time_limit"]) == (20_000, 0.5, 600)
        assert document["steps"][0]["time_limit"] == 30

    def test_what_came_from_a_file_is_shown_and_not_changed_by_saving_it(self, editor: Client) -> None:
        flow = {"token_budget": 10**15, "cost_budget": 0.0001, "time_limit": 1}
        page = open_flow(editor, make_step(time_limit=86_400), **flow)
        assert (page.fields["token_budget"], page.fields["time_limit"]) == (str(10**15), "1")
        assert page.fields["cost_budget"] == "0.0001"
        assert page.fields["steps-0-time_limit"] == "86400"
        assert page.save() == ["Nothing changed since version 1, which is live: new runs use it."]

    def test_taking_a_limit_out_of_the_file_takes_it_from_the_flow(self) -> None:
        load_flow(
            document=make_flow(make_step(time_limit=5), token_budget=10, cost_budget=1, time_limit=9).to_document()
        )
        load_flow(document=make_flow().to_document())
        flow = Flow.objects.get()
        assert (flow.token_budget, flow.cost_budget, flow.time_limit) == (None, None, None)
        assert StepDefinition.objects.get().time_limit is None

    def test_an_amount_of_money_keeps_its_value_through_rows_and_versions(self) -> None:
        document = make_flow(cost_budget=Decimal("123456.12345678")).to_document()
        version = load_flow(document=document)
        assert Flow.objects.get().cost_budget == Decimal("123456.12345678")
        assert version.flow_spec.cost_budget == Decimal("123456.12345678")
        assert publish_flow(flow=Flow.objects.get()) == version

    @pytest.mark.any_database
    @pytest.mark.parametrize(
        ("field", "value", "words"),
        [
            ("token_budget", "0", "greater than or equal to 1."),
            ("token_budget", "1e3", "Enter a whole number."),
            ("token_budget", str(10**16), "less than or equal to 1000000000000000."),
            ("cost_budget", "-1", "greater than or equal to 0.0001."),
            ("cost_budget", "2000000", "less than or equal to 1000000."),
            ("cost_budget", "0.123456789", "no more than 8 decimal places."),
            ("cost_budget", "NaN", "Enter a number."),
            ("cost_budget", "much", "Enter a number."),
            ("time_limit", "0", "greater than or equal to 1."),
            ("time_limit", "1.5", "Enter a whole number."),
            ("max_runs_in_flight", "0", "greater than or equal to 1."),
            ("max_runs_in_flight", "-5", "greater than or equal to"),
            ("total_token_budget", str(10**30), "less than or equal to"),
            ("total_cost_budget", "0", "greater than or equal to 0.0001."),
            ("budget_period", "year", "year is not one of the available choices."),
            ("steps-0-time_limit", "0", "greater than or equal to 1."),
        ],
    )
    def test_what_makes_no_sense_is_refused_beside_the_field_and_nothing_is_stored(
        self, editor: Client, field: str, value: str, words: str
    ) -> None:
        page = open_flow(editor)
        page.fill(**{field: value})
        errors = page.save_in_vain()
        assert any(words in message for message in errors[field]), errors
        assert FlowVersion.objects.count() == 1

    @pytest.mark.parametrize(
        ("amount", "shown"), [("5", "5.00"), ("0.5", "0.50"), ("1.2345", "1.2345"), ("1000", "1000.00")]
    )
    def test_an_amount_of_money_is_shown_with_cents(self, editor: Client, amount: str, shown: str) -> None:
        assert open_flow(editor, cost_budget=amount).fields["cost_budget"] == shown


class TestOperation:
    def test_they_are_stored_and_make_no_version(self, editor: Client) -> None:
        page = open_flow(editor)
        page.fill(max_runs_in_flight=5, total_token_budget=1_000_000, total_cost_budget="25.5", budget_period="day")
        assert page.save() == ["Saved. The definition is still that of version 1, which is live: new runs use it."]
        flow = Flow.objects.get()
        assert (flow.max_runs_in_flight, flow.total_token_budget) == (5, 1_000_000)
        assert (flow.total_cost_budget, flow.budget_period) == (Decimal("25.5"), BudgetPeriod.DAY)
        assert FlowVersion.objects.count() == 1
        assert page.save() == ["Nothing changed since version 1, which is live: new runs use it."]

    def test_a_flow_has_none_unless_somebody_sets_them(self) -> None:
        flow = load_flow(document=make_flow().to_document()).flow
        assert (flow.max_runs_in_flight, flow.total_token_budget, flow.total_cost_budget) == (None, None, None)
        assert flow.budget_period == BudgetPeriod.MONTH

    def test_loading_a_file_again_leaves_them_as_they_are(self) -> None:
        load_flow(document=make_flow().to_document())
        Flow.objects.update(max_runs_in_flight=3, total_token_budget=7)
        load_flow(document=make_flow(description="New.").to_document())
        flow = Flow.objects.get()
        assert (flow.max_runs_in_flight, flow.total_token_budget) == (3, 7)


@pytest.mark.any_database
class TestEditor:
    def test_the_limits_are_folded_away_until_one_is_set(self, editor: Client) -> None:
        page = open_flow(editor)
        assert not re.search("Limits [1-9]", page.text)
        page.fill(max_runs_in_flight=5, time_limit=60)
        page.save()
        assert "Limits 2 set" in page.text

    def test_saving_warns_where_a_budget_in_money_would_count_nothing(self, editor: Client) -> None:
        page = open_flow(editor, make_step(model="llama-at-home"))
        page.fill(cost_budget="1", total_cost_budget="10")
        _, doubt = page.save()
        assert doubt.startswith("The price of “llama-at-home” is not known")
        page.fill(cost_budget="")
        _, doubt = page.save()
        assert doubt.startswith("The price of “llama-at-home” is not known")
        page.fill(total_cost_budget="")
        assert len(page.save()) == 1
