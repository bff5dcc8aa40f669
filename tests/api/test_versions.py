"""Versions of flows over the API: list, read, compare them, and make one live."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from flows.flow_file import parse_flow
from flows.models import Flow, FlowVersion
from runs.models import AuditEntry
from tests.api.asking import Script, list_wrong, read, read_json, read_problem
from tests.flows.versioned import store_three_versions, store_version

pytestmark = pytest.mark.django_db

VERSIONS = "flows/example/versions"


class TestRead:
    def test_the_newest_comes_first(self, viewer: Script) -> None:
        old = store_version("As it began", by=User.objects.create_user("ada"))
        store_version(max_retries=1)
        first, second = read(viewer, VERSIONS)["items"]
        assert (first["number"], first["is_live"], first["note"], first["created_by"]) == (2, False, None, None)
        at = old.created_at.isoformat().replace("+00:00", "Z")
        made = {"digest": old.digest, "note": "As it began", "created_by": "ada", "created_at": at}
        assert second == {"flow": "example", "number": 1, "is_live": True, **made}

    def test_a_version_comes_with_its_definition(self, viewer: Script) -> None:
        version = store_three_versions().versions.get(number=2)
        document = read(viewer, f"{VERSIONS}/2")
        assert (document["flow"], document["number"], document["note"]) == ("example", 2, "Fewer tries")
        assert document["document"] == version.spec
        assert read_json(viewer.get(f"{VERSIONS}/2?format=json", Accept="application/yaml")) == document
        for number in ("0", "9", "9" * 30, "-1", "latest", "1/", "9?format=yaml"):
            assert read_problem(viewer.get(f"{VERSIONS}/{number}"))["status"] == 404, number

    def test_as_yaml_it_is_the_file_that_editors_download(self, viewer: Script) -> None:
        flow = store_three_versions()
        answer = viewer.get(f"{VERSIONS}/2", Accept="application/yaml")
        assert viewer.ask("HEAD", f"{VERSIONS}/2?format=yaml")["Content-Type"] == answer["Content-Type"]
        page = Client()
        page.force_login(User.objects.create_superuser("ada"))
        download: Any = page.get(f"/admin/flows/flow/{flow.pk}/download/?version=2")
        assert answer.content == download.getvalue()
        for name in ("Content-Type", "Content-Disposition"):
            assert answer[name] == download[name]
        assert parse_flow(answer.content).digest == flow.versions.get(number=2).digest
        # The audit log has both; reading a version as JSON is no export.
        read(viewer, f"{VERSIONS}/2")
        entries = AuditEntry.objects.filter(action="flow_exported").order_by("pk")
        assert [(entry.actor_name, entry.details["version"]) for entry in entries] == [("viewer", 2), ("ada", 2)]

    def test_a_definition_of_another_toolflow_can_be_read_but_not_as_a_file(self, viewer: Script) -> None:
        flow = store_version().flow
        spec = {"name": "example", "shape": "round", "steps": []}
        FlowVersion.objects.create(flow=flow, number=2, spec=spec, digest="0" * 64)
        assert read(viewer, f"{VERSIONS}/2")["document"] == spec
        for path in ("2?format=yaml", "2/diff"):
            problem = read_problem(viewer.get(f"{VERSIONS}/{path}"))
            assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:unreadable-version")


class TestDifference:
    def test_it_says_what_a_version_changed(self, viewer: Script) -> None:
        store_three_versions()
        retries = {"field": "max_retries", "kind": "changed", "old": 3, "new": 1, "notes": []}
        step = {"subject": "step", "kind": "changed", "name": "Step 1", "place": 1, "notes": []}
        assert read(viewer, f"{VERSIONS}/2/diff") == {
            "flow": "example",
            "from": 1,
            "to": 2,
            "summary": "“Step 1”: max_retries 3 → 1",
            "changes": [{**step, "fields": [retries], "audits": []}],
        }

    def test_any_two_can_be_compared(self, viewer: Script) -> None:
        store_three_versions()
        for path, numbers, count in (
            ("1/diff?against=3", (3, 1), 1),
            ("3/diff?against=live", (1, 3), 1),
            ("2/diff?against=2", (2, 2), 0),
        ):
            found = read(viewer, f"{VERSIONS}/{path}")
            assert ((found["from"], found["to"]), len(found["changes"])) == (numbers, count)

    def test_what_cannot_be_compared_is_named(self, viewer: Script) -> None:
        store_three_versions()
        Flow.objects.update(live_version=None)
        # The first has none before it, and no version is live.
        for path in ("1/diff", "2/diff?against=live"):
            assert list_wrong(viewer.get(f"{VERSIONS}/{path}"), 400) == ["against"]


def test_new_runs_use_the_version_that_is_made_live(editor: Script) -> None:
    flow = store_three_versions()
    for _ in range(2):
        assert read_json(editor.post(f"{VERSIONS}/2/make-live"))["live_version"] == 2
    flow.refresh_from_db()
    assert flow.live_version == flow.versions.get(number=2)
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["Made version 2 live."]
    assert read_problem(editor.post(f"{VERSIONS}/9/make-live"))["status"] == 404
