"""How an installation runs a flow, read and changed by a script: the same rules as in the editor."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry

from flows.models import Flow, FlowVersion
from runs.models import AuditEntry
from tests.api.asking import Script, list_wrong, read, read_json, read_type
from tests.engine.builders import make_flow
from tests.runs.builders import make_version

pytestmark = pytest.mark.django_db

PATH = "flows/example/settings"
NAMES = ("max_runs_in_flight", "total_token_budget", "total_cost_budget", "keep_days", "keep_outputs_days")
FOR_EVER = {"keep_days": None, "keep_outputs_days": None}
UNSET = {"flow": "example", **dict.fromkeys(NAMES), "budget_period": "month", "retention": FOR_EVER}


@pytest.fixture(autouse=True)
def version(db: None) -> FlowVersion:
    return make_version(make_flow())


def change(script: Script, **values: Any) -> dict[str, Any]:
    """The settings after a change."""
    document: dict[str, Any] = read_json(script.ask("PATCH", PATH, values))
    return document


def test_what_is_named_is_set_and_the_rest_stays(editor: Script) -> None:
    document = read(editor, PATH)
    assert document.pop("updated_at").endswith("Z")
    assert document == UNSET
    first = change(editor, total_cost_budget="12.5", keep_days=90)
    assert (first["total_cost_budget"], first["keep_days"]) == ("12.50000000", 90)
    second = change(editor, keep_outputs_days=30, max_runs_in_flight=20, budget_period="day", total_token_budget=10**6)
    assert second == read(editor, PATH)
    assert (second["keep_days"], second["keep_outputs_days"]) == (90, 30)
    assert (second["max_runs_in_flight"], second["budget_period"]) == (20, "day")
    # What is stored counts where settings must fit together.
    assert list_wrong(editor.ask("PATCH", PATH, {"keep_outputs_days": 91}), 422) == ["/keep_outputs_days"]
    # Only of what is changed.
    Flow.objects.update(keep_outputs_days=91)
    assert change(editor, max_runs_in_flight=21)["max_runs_in_flight"] == 21
    Flow.objects.update(keep_outputs_days=30)
    third = change(editor, keep_days=None)
    assert (third["keep_days"], third["keep_outputs_days"]) == (None, 30)


def test_it_tells_what_holds_in_the_end(editor: Script, settings: Any) -> None:
    settings.TOOLFLOW_KEEP_DAYS, settings.TOOLFLOW_KEEP_OUTPUTS_DAYS = 365, 30
    assert read(editor, PATH)["retention"] == {"keep_days": 365, "keep_outputs_days": 30}
    assert change(editor, keep_days=7)["retention"] == {"keep_days": 7, "keep_outputs_days": None}
    assert change(editor, keep_days=0)["retention"] == {"keep_days": None, "keep_outputs_days": 30}
    assert change(editor, keep_outputs_days=0)["retention"] == FOR_EVER


def test_a_change_makes_no_version_and_editor_history_and_audit_log_know_it(editor: Script) -> None:
    for _ in range(2):
        # The second one changes nothing.
        change(editor, max_runs_in_flight=3, keep_days=90)
    assert Flow.objects.get().versions.count() == 1
    entry = LogEntry.objects.get()
    assert "max_runs_in_flight none → 3, keep_days none → 90" in entry.change_message
    audited = AuditEntry.objects.get(action="flow_changed")
    details = {"settings": ["max_runs_in_flight", "keep_days"], "keep_days": {"from": None, "to": 90}}
    assert (audited.actor_name, audited.details) == ("editor", details)


def test_settings_that_were_changed_meanwhile_are_left_alone(editor: Script) -> None:
    read_tag = editor.get(PATH)["ETag"]
    # What changes in the definition changes no tag, nor whether an amount was typed with places.
    assert editor.put("flows/example?make_live=true", make_flow(title="Another title").to_document()).status_code == 200
    mine = editor.ask("PATCH", PATH, {"total_cost_budget": "12"}, If_Match=read_tag)
    late = editor.ask("PATCH", PATH, {"total_cost_budget": "60"}, If_Match=read_tag)
    assert (mine.status_code, read_type(late)) == (200, (412, "settings-changed"))
    assert late["ETag"] == mine["ETag"] == editor.get(PATH)["ETag"] != read_tag
    for amount in ("12.00", 12):
        assert editor.ask("PATCH", PATH, {"total_cost_budget": amount}, If_Match=late["ETag"])["ETag"] == late["ETag"]
    for method in ("GET", "PATCH"):
        assert editor.ask(method, "flows/nowhere/settings", {"keep_days": 1}).status_code == 404
