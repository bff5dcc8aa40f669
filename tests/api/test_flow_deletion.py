"""Deleting flows and versions that are of no use; what has runs stays."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission

from flows.models import Flow, FlowVersion
from runs.models import TrailEntry
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def version(db: None) -> FlowVersion:
    return make_version(make_flow())


class TestFlows:
    def test_a_flow_without_runs_goes_with_its_versions(self, editor: Script) -> None:
        make_version(make_flow(title="Later"))
        answer = editor.ask("DELETE", "flows/example")
        assert (answer.status_code, answer.content) == (204, b"")
        assert not Flow.objects.exists() and not FlowVersion.objects.exists()
        assert editor.get("flows/example").status_code == 404
        assert LogEntry.objects.get().change_message == "Deleted through the API, with all its versions."
        (entry,) = TrailEntry.objects.filter(action__in=["flow_deleted", "version_deleted"])
        assert (entry.action, entry.actor_name) == ("flow_deleted", "editor")

    def test_one_that_has_runs_stays(self, editor: Script, version: FlowVersion) -> None:
        make_run(version)
        problem = read_problem(editor.ask("DELETE", "flows/example"))
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:has-runs")
        assert problem["detail"] == "“example” has runs, and history is kept. Archive the flow instead."
        assert Flow.objects.exists() and not LogEntry.objects.exists()

    def test_one_that_somebody_has_saved_meanwhile_stays_if_asked_for(self, editor: Script) -> None:
        read_tag = editor.get("flows/example")["ETag"]
        make_version(make_flow(title="Later"))
        assert editor.ask("DELETE", "flows/example", If_Match=read_tag).status_code == 412
        assert editor.ask("DELETE", "flows/example", If_Match=editor.get("flows/example")["ETag"]).status_code == 204

    def test_there_is_none_of_another_name(self, editor: Script) -> None:
        assert editor.ask("DELETE", "flows/nowhere").status_code == 404

    def test_its_versions_take_a_permission_of_their_own(self, groups: None) -> None:
        user = make_user("ada")
        user.user_permissions.set(Permission.objects.filter(codename="delete_flow"))
        problem = read_problem(Script(make_token(user)).ask("DELETE", "flows/example"))
        assert (problem["status"], "flows.delete_flowversion" in problem["detail"]) == (403, True)


class TestVersions:
    def test_one_that_nobody_uses_goes(self, editor: Script, version: FlowVersion) -> None:
        make_version(make_flow(title="Later"))
        assert editor.ask("DELETE", "flows/example/versions/1").status_code == 204
        assert [one.number for one in FlowVersion.objects.all()] == [2]
        assert LogEntry.objects.get().change_message == "Deleted through the API."
        assert TrailEntry.objects.get(action="version_deleted").details == {"version": 1}

    def test_the_live_one_and_those_with_runs_stay(self, editor: Script, version: FlowVersion) -> None:
        make_run(version)
        make_version(make_flow(title="Later"))
        problems = [read_problem(editor.ask("DELETE", f"flows/example/versions/{number}")) for number in (1, 2)]
        assert [(problem["status"], problem["type"].rpartition(":")[2]) for problem in problems] == [
            (409, "has-runs"),
            (409, "is-live"),
        ]
        assert FlowVersion.objects.count() == 2

    def test_there_is_none_of_another_number(self, editor: Script) -> None:
        assert editor.ask("DELETE", "flows/example/versions/9").status_code == 404
        assert editor.ask("DELETE", "flows/nowhere/versions/1").status_code == 404
