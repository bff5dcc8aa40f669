"""The limits of a flow: those of its definition make versions, those of this installation hold at once."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.test import Client

from flows.models import BudgetPeriod, Flow, FlowVersion
from flows.portability import load_flow
from flows.publishing import publish_flow
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import fill_new_flow, open_flow

pytestmark = pytest.mark.django_db

OPERATIONAL = ("max_runs_in_flight", "total_token_budget", "total_cost_budget", "budget_period")


def test_limits_of_the_editor_and_of_files_are_part_of_the_version(editor: Client) -> None:
    page = fill_new_flow(editor)
    page.fill(token_budget=20_000, cost_budget="0.50", time_limit=600)
    page.fill("steps-0-", time_limit=30)
    page.save()
    document = FlowVersion.objects.get().spec
    assert (document["token_budget"], document["cost_budget"], document["time_limit"]) == (20_000, 0.5, 600)
    assert document["steps"][0]["time_limit"] == 30
    page = open_flow(editor, make_step(time_limit=86_400), token_budget=10**15, cost_budget=0.0001, time_limit=1)
    names = ("token_budget", "cost_budget", "time_limit", "steps-0-time_limit")
    assert [page.fields[name] for name in names] == [str(10**15), "0.0001", "1", "86400"]
    assert page.save()[0].startswith("Nothing changed")
    flow = load_flow(document=make_flow().to_document()).flow
    assert (flow.token_budget, flow.cost_budget, flow.time_limit, flow.steps.get().time_limit) == (None,) * 4


def test_an_amount_of_money_keeps_its_value_through_rows_and_versions() -> None:
    amount = Decimal("123456.12345678")
    version = load_flow(document=make_flow(cost_budget=amount).to_document())
    assert Flow.objects.get().cost_budget == version.flow_spec.cost_budget == amount
    assert publish_flow(flow=Flow.objects.get()) == version


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("token_budget", "1e3"), ("cost_budget", "NaN"), ("max_runs_in_flight", "0")),
        *(("total_cost_budget", "0"), ("budget_period", "year"), ("steps-0-time_limit", "0")),
    ],
)
def test_what_is_not_valid_is_refused_beside_the_field(editor: Client, field: str, value: str) -> None:
    page = open_flow(editor)
    page.fill(**{field: value})
    assert list(page.save_in_vain()) == [field]


def test_limits_of_the_installation_make_no_version_and_stay_when_a_file_is_loaded(editor: Client) -> None:
    page = open_flow(editor, cost_budget="0.5")
    assert Flow.objects.values_list(*OPERATIONAL).get() == (None, None, None, BudgetPeriod.MONTH)
    page.fill(max_runs_in_flight=5, total_token_budget=1_000_000, total_cost_budget="25.5", budget_period="day")
    page.save()
    page.save()
    assert (FlowVersion.objects.count(), page.fields["cost_budget"]) == (1, "0.50")
    assert "Limits 5 set" in page.text
    load_flow(document=make_flow(description="New.").to_document())
    found = Flow.objects.values_list(*OPERATIONAL).get()
    assert found == (5, 1_000_000, Decimal("25.5"), BudgetPeriod.DAY)


def test_saving_warns_where_a_budget_in_money_would_count_nothing(editor: Client) -> None:
    page = open_flow(editor, make_step(model="llama-at-home"))
    found = []
    for budgets in ({"cost_budget": "1"}, {"cost_budget": "", "total_cost_budget": "10"}, {"total_cost_budget": ""}):
        page.fill(**budgets)
        found.append(len(page.save()) - 1)
    assert found == [1, 1, 0]
