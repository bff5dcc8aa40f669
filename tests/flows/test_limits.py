"""The limits of a flow: those of its definition make versions, those of this installation hold at once."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client

from flows.models import FLOW_SETTINGS, BudgetPeriod, Flow, FlowVersion
from runs.models import AuditEntry
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import PageReader, open_flow, read_rows
from tests.flows.loading import load_flow

pytestmark = pytest.mark.django_db

FIRST = (
    "Changed limits: Runs in flight none → 5, Budget of all runs (USD) none → 25.50, "
    "Budget of all runs, for each Month → Day, Keep runs (days) none → 30."
)
SECOND = (
    "Changed limits: Runs in flight 5 → none, Budget of all runs (tokens) none → 1,000,000, "
    "Budget of all runs (USD) 25.50 → none."
)


def store_flow(**fields: Any) -> Flow:
    return load_flow(make_flow(**fields).to_document()).flow


class Settings:
    """The page of a flow's settings as it was opened: a form with what it showed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.url = f"/admin/flows/flow/{Flow.objects.get().pk}/settings/"
        self.fields = PageReader(client.get(self.url).content.decode()).fields | {"budget_period": "month"}

    def post(self, **values: Any) -> HttpResponse:
        return self.client.post(self.url, {**self.fields, **values})

    def save(self, **values: Any) -> list[str]:
        page = self.client.get(self.post(**values)["Location"])
        return [str(message) for message in page.context["messages"]]


def read_settings() -> tuple[Any, ...]:
    return Flow.objects.values_list(*FLOW_SETTINGS).get()


def test_settings_are_stored_and_logged_with_old_and_new_values_and_make_no_version(editor: Client) -> None:
    store_flow()
    assert read_settings() == (None, None, None, BudgetPeriod.MONTH, None, None)
    Settings(editor).save(max_runs_in_flight="5", total_cost_budget="25.5", budget_period="day", keep_days="30")
    assert read_settings() == (5, None, Decimal("25.5"), BudgetPeriod.DAY, 30, None)
    fields = Settings(editor)
    fields.fields["budget_period"] = "day"
    assert fields.save() == ["Nothing changed."]
    fields.save(max_runs_in_flight="", total_cost_budget="", total_token_budget="1000000")
    assert list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True)) == [
        FIRST,
        SECOND,
    ]
    changed = AuditEntry.objects.filter(action="flow_changed").order_by("pk")
    assert [entry.details for entry in changed] == [
        {
            "settings": ["max_runs_in_flight", "total_cost_budget", "budget_period", "keep_days"],
            "keep_days": {"from": None, "to": 30},
        },
        {"settings": ["max_runs_in_flight", "total_token_budget", "total_cost_budget"]},
    ]
    load_flow(make_flow(description="New.").to_document())
    assert (read_settings()[1], FlowVersion.objects.count()) == (1_000_000, 2)


def test_what_others_stored_meanwhile_stays_where_the_page_did_not_change_it(editor: Client, colleague: Client) -> None:
    store_flow()
    mine, theirs = Settings(editor), Settings(colleague)
    theirs.save(max_runs_in_flight="5", keep_days="30")
    mine.save(keep_outputs_days="7", keep_days="30")
    assert read_settings() == (5, None, None, BudgetPeriod.MONTH, 30, 7)
    assert LogEntry.objects.latest("pk").change_message == "Changed limits: Keep outputs (days) none → 7."


@pytest.mark.parametrize(
    "values",
    [
        *({"max_runs_in_flight": value} for value in ("0", "1e3", "²", "9" * 30, "\0")),
        *({"total_cost_budget": value} for value in ("0", "NaN", "1e-9", "1000001")),
        *({"total_token_budget": "0"}, {"budget_period": "year"}, {"budget_period": ""}),
        *({"keep_days": "-1"}, {"keep_outputs_days": "36501"}, {"keep_days": "30", "keep_outputs_days": "31"}),
    ],
)
def test_what_is_not_valid_is_refused_with_a_link_to_its_field(editor: Client, values: dict[str, str]) -> None:
    store_flow()
    before, answer = read_rows(), Settings(editor).post(**values)
    assert (answer.status_code, read_rows()) == (200, before)
    assert f'<a href="#id_{list(values)[-1]}">' in answer.content.decode()


@pytest.mark.parametrize("days", [("0", "31"), ("30", "0"), ("30", "30"), ("", "30")])
def test_outputs_may_be_kept_where_runs_are_kept_for_ever_or_as_long(editor: Client, days: tuple[str, str]) -> None:
    store_flow()
    assert Settings(editor).post(keep_days=days[0], keep_outputs_days=days[1]).status_code == 302


def test_limits_of_the_definition_are_part_of_the_version(editor: Client) -> None:
    amount = Decimal("123456.12345678")
    page = open_flow(editor, make_step(time_limit=86_400), token_budget=10**15, cost_budget=amount, time_limit=1)
    assert FlowVersion.objects.get().flow_spec.cost_budget == amount
    assert (page.document["token_budget"], page.steps[0]["time_limit"]) == (10**15, 86_400)
    assert page.save()[0].startswith("Nothing changed")
    page.document |= {"token_budget": "1e3", "cost_budget": True}
    page.steps[0]["time_limit"] = 0
    assert list(page.be_refused()) == ["/token_budget", "/cost_budget", "/steps/0/time_limit"]


def test_saving_warns_where_a_budget_in_money_would_count_nothing(editor: Client) -> None:
    page = open_flow(editor, make_step(model="llama-at-home"))
    page.document["cost_budget"] = 1
    assert len(page.save("_make_live")) == 2
    del page.document["cost_budget"]
    assert len(page.save()) == 1
    assert len(Settings(editor).save(total_cost_budget="10")) == 2
    assert len(Settings(editor).save(total_cost_budget="")) == 1
