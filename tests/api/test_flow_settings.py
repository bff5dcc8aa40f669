"""How an installation runs a flow, read and changed by a script: the same rules as in the editor."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from pytest_django import DjangoAssertNumQueries

from flows.models import Flow, FlowVersion
from runs.models import TrailEntry
from tests.api.asking import Script, read_problem
from tests.api.documents import SIGN_IN_QUERIES, read, settle
from tests.engine.builders import make_flow
from tests.runs.builders import make_version

pytestmark = pytest.mark.django_db

PATH = "flows/example/settings"
UNSET = {
    "flow": "example",
    "max_runs_in_flight": None,
    "total_token_budget": None,
    "total_cost_budget": None,
    "budget_period": "month",
    "keep_days": None,
    "keep_outputs_days": None,
    "retention": {"keep_days": None, "keep_outputs_days": None},
}


@pytest.fixture(autouse=True)
def version(db: None) -> FlowVersion:
    return make_version(make_flow())


def change(script: Script, **values: Any) -> dict[str, Any]:
    """The settings after a change."""
    answer: Any = script.ask("PATCH", PATH, values)
    assert answer.status_code == 200, answer.content
    document: dict[str, Any] = answer.json()
    return document


def list_pointers(script: Script, values: Any) -> list[str]:
    problem = read_problem(script.ask("PATCH", PATH, values))
    assert problem["status"] == 422
    return [error["pointer"] for error in problem["errors"]]


def test_a_flow_has_none_at_first(viewer: Script, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    settle(viewer)
    with django_assert_num_queries(SIGN_IN_QUERIES + 1):
        document = read(viewer, PATH)
    assert document.pop("updated_at").endswith("Z")
    assert document == UNSET


def test_what_is_named_is_set_and_the_rest_stays(editor: Script) -> None:
    first = change(editor, total_cost_budget="12.5", keep_days=90)
    assert (first["total_cost_budget"], first["keep_days"]) == ("12.50000000", 90)
    second = change(editor, keep_outputs_days=30, max_runs_in_flight=20, budget_period="day", total_token_budget=10**6)
    assert second == read(editor, PATH)
    assert (second["keep_days"], second["keep_outputs_days"]) == (90, 30)
    assert (second["max_runs_in_flight"], second["budget_period"]) == (20, "day")


def test_null_takes_it_away(editor: Script) -> None:
    change(editor, keep_days=90, max_runs_in_flight=1)
    assert change(editor, keep_days=None)["max_runs_in_flight"] == 1
    assert Flow.objects.get().keep_days is None


def test_it_tells_what_holds_in_the_end(editor: Script, settings: Any) -> None:
    settings.TOOLFLOW_KEEP_DAYS, settings.TOOLFLOW_KEEP_OUTPUTS_DAYS = 365, 30
    assert read(editor, PATH)["retention"] == {"keep_days": 365, "keep_outputs_days": 30}
    assert change(editor, keep_days=7)["retention"] == {"keep_days": 7, "keep_outputs_days": None}
    assert change(editor, keep_days=0)["retention"] == {"keep_days": None, "keep_outputs_days": 30}
    assert change(editor, keep_outputs_days=0)["retention"] == {"keep_days": None, "keep_outputs_days": None}


def test_a_change_makes_no_version_and_open_pages_of_the_editor_know(editor: Script) -> None:
    before = Flow.objects.get()
    for _ in range(2):
        # The second one changes nothing.
        change(editor, max_runs_in_flight=3)
    flow = Flow.objects.get()
    assert (flow.versions.count(), flow.revision, LogEntry.objects.count()) == (1, before.revision + 1, 1)
    assert flow.updated_at > before.updated_at


def test_history_and_audit_log_have_a_change(editor: Script) -> None:
    change(editor, max_runs_in_flight=3, keep_days=90)
    entry = LogEntry.objects.get()
    assert entry.change_message == "Changed through the API: max_runs_in_flight none → 3, keep_days none → 90."
    audited = TrailEntry.objects.get(action="flow_changed")
    assert (audited.actor_name, audited.details) == (
        "editor",
        {"settings": ["max_runs_in_flight", "keep_days"], "keep_days": {"from": None, "to": 90}},
    )


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"max_runs_in_flight": 0}, "/max_runs_in_flight"),
        ({"max_runs_in_flight": 2**31}, "/max_runs_in_flight"),
        ({"max_runs_in_flight": "3"}, "/max_runs_in_flight"),
        ({"total_token_budget": 1.5}, "/total_token_budget"),
        ({"total_cost_budget": "0"}, "/total_cost_budget"),
        ({"budget_period": "week"}, "/budget_period"),
        ({"budget_period": None}, "/budget_period"),
        ({"keep_days": 36_501}, "/keep_days"),
        ({"keep_days": 30, "keep_outputs_days": 31}, "/keep_outputs_days"),
        ({"priority": "high"}, "/priority"),
        ([], ""),
    ],
)
def test_what_is_not_valid_is_named(editor: Script, values: Any, pointer: str) -> None:
    assert list_pointers(editor, values) == [pointer]
    assert read(editor, PATH) | UNSET == read(editor, PATH)


def test_what_is_stored_counts_where_settings_must_fit_together(editor: Script) -> None:
    change(editor, keep_days=30)
    assert list_pointers(editor, {"keep_outputs_days": 31}) == ["/keep_outputs_days"]
    assert change(editor, keep_outputs_days=31, keep_days=60)["keep_outputs_days"] == 31


class TestCondition:
    def test_settings_that_somebody_has_changed_meanwhile_are_left_alone(self, editor: Script) -> None:
        read_tag = editor.get(PATH)["ETag"]
        mine = editor.ask("PATCH", PATH, {"keep_days": 30}, If_Match=read_tag)
        late = editor.ask("PATCH", PATH, {"keep_days": 60}, If_Match=read_tag)
        problem = read_problem(late)
        assert (mine.status_code, problem["status"], problem["type"]) == (
            200,
            412,
            "urn:toolflow:problem:settings-changed",
        )
        assert late["ETag"] == mine["ETag"] == editor.get(PATH)["ETag"] != read_tag
        assert Flow.objects.get().keep_days == 30
        assert editor.ask("PATCH", PATH, {"keep_days": 60}, If_Match=late["ETag"]).status_code == 200

    @pytest.mark.parametrize(
        ("header", "status"),
        [("*", 200), ('"a", *', 412), ('"a"', 412), ('W/"a"', 412), ("nonsense", 400), ("", 400)],
    )
    def test_a_header_that_holds_none_of_it_is_refused(self, editor: Script, header: str, status: int) -> None:
        answer = editor.ask("PATCH", PATH, {"keep_days": 30}, If_Match=header)
        assert answer.status_code == status
        assert Flow.objects.get().keep_days == (30 if status == 200 else None)

    def test_what_changes_in_the_definition_changes_no_tag(self, editor: Script) -> None:
        before = editor.get(PATH)["ETag"]
        document = make_flow(title="Another title").to_document()
        assert editor.put("flows/example?make_live=true", document).status_code == 200
        assert editor.get(PATH)["ETag"] == before
        # Whether an amount was typed with places or not makes no difference.
        tags = {editor.ask("PATCH", PATH, {"total_cost_budget": text})["ETag"] for text in ("12", "12.00", 12)}
        assert len(tags) == 1 and before not in tags


def test_there_are_none_of_a_flow_that_there_is_not(editor: Script) -> None:
    assert editor.get("flows/nowhere/settings").status_code == 404
    assert editor.ask("PATCH", "flows/nowhere/settings", {"keep_days": 1}).status_code == 404
