"""A flow is archived instead of deleted, and its settings hold at once without a version."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client

from flows.examples import load_examples
from flows.models import FLOW_SETTINGS, BudgetPeriod, Flow, FlowVersion
from runs.models import AuditEntry
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import EditorPage, PageReader, open_flow, read_rows
from tests.flows.loading import load_flow
from tests.flows.versioned import read_words
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    """The page of a flow that has run."""
    page = open_flow(editor, title="Tea")
    make_run(FlowVersion.objects.get())
    return page


def press(client: Client, page: EditorPage, address: str = "archive") -> list[str]:
    """Press the button; gives the messages that come."""
    answer = client.post(page.url.replace("/change/", f"/{address}/"), follow=True)
    assert answer.status_code == 200
    return [str(message) for message in answer.context["messages"]]


def read_log() -> list[str]:
    return list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))


def is_archived() -> bool:
    return Flow.objects.get().is_archived


def test_the_page_for_deleting_says_why_a_flow_with_runs_stays_and_offers_to_archive_it(
    opened: EditorPage, editor: Client
) -> None:
    url = opened.url.replace("/change/", "/delete/")
    words = read_words(editor.get(url))
    assert "“Tea” has runs" in words and "Archive it" in words
    editor.post(url, {"post": "yes"})
    assert Flow.objects.exists()
    press(editor, opened)
    assert "Archive it" not in read_words(editor.get(url)), "it is already"
    user = User.objects.create_user("vera", password="secret", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_flow", "delete_flow"]))
    Flow.objects.update(is_archived=False)
    editor.force_login(user)
    words = read_words(editor.get(url))
    assert ("has runs" in words, "Archive it" in words) == (True, False)


def test_archiving_and_taking_out_are_asked_shown_logged_once_and_shown_in_the_editor(
    opened: EditorPage, editor: Client
) -> None:
    assert "Archive “Tea”?" in read_words(editor.get(opened.url.replace("/change/", "/archive/")))
    assert not is_archived()
    assert press(editor, opened) == ["“Tea” is archived: no new runs can be started. Runs in progress continue."]
    press(editor, opened)
    assert (is_archived(), read_log()) == (True, ["Archived."])
    words = read_words(editor.get(opened.url))
    assert "This flow is archived." in words and "Unarchive" in words
    assert press(editor, opened, "take-out") == ["“Tea” is unarchived."]
    assert (is_archived(), read_log()) == (False, ["Archived.", "Unarchived."])
    assert "This flow is archived." not in read_words(editor.get(opened.url))
    for number in ("0", "99999999999999999999"):
        for address in ("archive", "take-out"):
            assert editor.post(f"/admin/flows/flow/{number}/{address}/").status_code == 404


@pytest.mark.parametrize(
    ("query", "active", "archived"),
    [
        ("", True, False),
        ("?is_archived__exact=0", True, False),
        ("?is_archived__exact=1", False, True),
        ("?is_archived__exact=nonsense", True, True),
        ("?q=tea", False, False),
        ("?q=tea&is_archived__exact=all", False, True),
    ],
)
def test_the_list_leaves_archived_flows_out_unless_one_asks_for_them(
    editor: Client, query: str, active: bool, archived: bool
) -> None:
    load_examples()
    load_flow(document=make_flow(title="Old tea").to_document())
    Flow.objects.filter(title="Old tea").update(is_archived=True)
    titles = {flow.title for flow in editor.get(f"/admin/flows/flow/{query}").context["cl"].result_list}
    assert ("Old tea" in titles, bool(titles - {"Old tea"})) == (archived, active)


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
    assert LogEntry.objects.count() == 2
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


def test_what_two_pages_change_must_fit_together(editor: Client) -> None:
    store_flow()
    first, second = Settings(editor), Settings(editor)
    assert first.post(keep_days="30").status_code == 302
    assert second.post(keep_outputs_days="60").status_code == 200
    assert Flow.objects.get().keep_outputs_days is None


def test_a_version_of_an_archived_flow_that_is_made_live_promises_no_runs(opened: EditorPage, editor: Client) -> None:
    press(editor, opened)
    (message,) = press(editor, opened, "versions/1/make-live")
    assert "no new runs can be started" in message


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


def test_saving_warns_where_a_budget_in_money_would_count_nothing(editor: Client) -> None:
    page = open_flow(editor, make_step(model="llama-at-home"))
    page.document["cost_budget"] = 1
    assert len(page.save("_make_live")) == 2
    del page.document["cost_budget"]
    assert len(page.save()) == 1
    assert len(Settings(editor).save(total_cost_budget="10")) == 2
    assert len(Settings(editor).save(total_cost_budget="")) == 1
