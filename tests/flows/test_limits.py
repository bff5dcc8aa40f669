"""The limits of a flow: those of its definition make versions, those of this installation hold at once."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from django.test import Client

from flows.models import BudgetPeriod, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from flows.publishing import publish_flow
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import fill_new_flow, open_flow

pytestmark = pytest.mark.django_db

OPERATIONAL = ("max_runs_in_flight", "total_token_budget", "total_cost_budget", "budget_period")


class TestDefinition:
    def test_limits_of_the_editor_are_part_of_the_version(self, editor: Client) -> None:
        page = fill_new_flow(editor)
        page.fill(token_budget=20_000, cost_budget="0.50", time_limit=600)
        page.fill("steps-0-", time_limit=30)
        page.save()
        document = FlowVersion.objects.get().spec
        assert (document["token_budget"], document["cost_budget"], document["time_limit"]) == (20_000, 0.5, 600)
        assert document["steps"][0]["time_limit"] == 30

    def test_what_came_from_a_file_is_shown_and_goes_with_the_file(self, editor: Client) -> None:
        page = open_flow(editor, make_step(time_limit=86_400), token_budget=10**15, cost_budget=0.0001, time_limit=1)
        names = ("token_budget", "cost_budget", "time_limit", "steps-0-time_limit")
        assert [page.fields[name] for name in names] == [str(10**15), "0.0001", "1", "86400"]
        page.save()
        assert FlowVersion.objects.count() == 1
        load_flow(document=make_flow().to_document())
        flow = Flow.objects.get()
        assert (flow.token_budget, flow.cost_budget, flow.time_limit) == (None, None, None)
        assert StepDefinition.objects.get().time_limit is None

    def test_an_amount_of_money_keeps_its_value_through_rows_and_versions(self) -> None:
        amount = Decimal("123456.12345678")
        version = load_flow(document=make_flow(cost_budget=amount).to_document())
        assert Flow.objects.get().cost_budget == version.flow_spec.cost_budget == amount
        assert publish_flow(flow=Flow.objects.get()) == version

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(("token_budget", value) for value in ("0", "1e3", str(10**16))),
            *(("cost_budget", value) for value in ("-1", "2000000", "0.123456789", "NaN", "much")),
            *(("time_limit", value) for value in ("0", "1.5")),
            *(("max_runs_in_flight", value) for value in ("0", "-5")),
            ("total_token_budget", str(10**30)),
            ("total_cost_budget", "0"),
            ("budget_period", "year"),
            ("steps-0-time_limit", "0"),
        ],
    )
    def test_what_is_not_valid_is_refused_beside_the_field(self, editor: Client, field: str, value: str) -> None:
        page = open_flow(editor)
        page.fill(**{field: value})
        assert list(page.save_in_vain()) == [field]
        assert FlowVersion.objects.count() == 1

    @pytest.mark.parametrize(("amount", "shown"), [("5", "5.00"), ("0.5", "0.50"), ("1.2345", "1.2345")])
    def test_an_amount_of_money_is_shown_with_cents(self, editor: Client, amount: str, shown: str) -> None:
        assert open_flow(editor, cost_budget=amount).fields["cost_budget"] == shown


class TestOperation:
    def test_they_are_stored_make_no_version_and_stay_when_a_file_is_loaded(self, editor: Client) -> None:
        page = open_flow(editor)
        assert Flow.objects.values_list(*OPERATIONAL).get() == (None, None, None, BudgetPeriod.MONTH)
        page.fill(max_runs_in_flight=5, total_token_budget=1_000_000, total_cost_budget="25.5", budget_period="day")
        page.save()
        page.save()
        assert FlowVersion.objects.count() == 1
        load_flow(document=make_flow(description="New.").to_document())
        found = Flow.objects.values_list(*OPERATIONAL).get()
        assert found == (5, 1_000_000, Decimal("25.5"), BudgetPeriod.DAY)


class TestEditor:
    def test_the_limits_are_folded_away_until_one_is_set(self, editor: Client) -> None:
        page = open_flow(editor)
        assert not re.search("Limits [1-9]", page.text)
        page.fill(max_runs_in_flight=5, time_limit=60)
        page.save()
        assert "Limits 2 set" in page.text

    def test_saving_warns_where_a_budget_in_money_would_count_nothing(self, editor: Client) -> None:
        page = open_flow(editor, make_step(model="llama-at-home"))
        for budgets, warnings in (({"cost_budget": "1", "total_cost_budget": "10"}, 1), ({"cost_budget": ""}, 1)):
            page.fill(**budgets)
            assert len(page.save()) == 1 + warnings
        page.fill(total_cost_budget="")
        assert len(page.save()) == 1
