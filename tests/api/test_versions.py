"""Versions of flows over the API: list, read, compare them, and make one live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from flows.flow_file import parse_flow
from flows.models import Flow, FlowVersion
from runs.models import TrailEntry
from tests.api.asking import Script, read_problem
from tests.flows.versioned import store_three_versions, store_version

pytestmark = pytest.mark.django_db

VERSIONS = "flows/example/versions"


def read(answer: HttpResponse) -> dict[str, Any]:
    assert answer.status_code == 200, answer.content.decode()[:500]
    document: dict[str, Any] = answer.json()  # type: ignore[attr-defined]  # answers to test clients have it
    return document


class TestList:
    def test_the_newest_comes_first(self, viewer: Script) -> None:
        store_version("As it began", by=User.objects.create_user("ada"))
        store_version(max_retries=1)
        new, old = read(viewer.get(VERSIONS))["items"]
        assert (new["number"], new["is_live"], new["note"], new["created_by"]) == (2, False, None, None)
        assert (old["number"], old["is_live"], old["note"], old["created_by"]) == (1, True, "As it began", "ada")
        assert old["digest"] == FlowVersion.objects.get(number=1).digest
        assert old["created_at"].endswith("Z")
        assert "document" not in old

    def test_pages_lead_to_one_another(self, viewer: Script) -> None:
        for retries in range(5):
            store_version(max_retries=retries)
        first = read(viewer.get(f"{VERSIONS}?limit=2"))
        second = read(viewer.get(first["next"]))
        back = read(viewer.get(second["previous"]))
        pages = [[item["number"] for item in page["items"]] for page in (first, second, back)]
        assert pages == [[5, 4], [3, 2], [5, 4]]

    def test_those_of_other_flows_are_not_listed(self, viewer: Script) -> None:
        store_version()
        Flow.objects.create(name="draft", title="Draft")
        assert read(viewer.get("flows/draft/versions"))["items"] == []
        assert read_problem(viewer.get("flows/nowhere/versions"))["status"] == 404


class TestRead:
    def test_a_version_comes_with_its_definition(self, viewer: Script) -> None:
        store_three_versions()
        document = read(viewer.get(f"{VERSIONS}/2"))
        version = FlowVersion.objects.get(number=2)
        assert (document["flow"], document["number"], document["note"]) == ("example", 2, "Fewer tries")
        assert document["document"] == version.spec
        assert read(viewer.get(f"{VERSIONS}/2?format=json", Accept="application/yaml")) == document

    @pytest.mark.parametrize("headers", [{"Accept": "application/yaml"}, {}])
    def test_as_yaml_it_is_the_file_that_editors_download(self, viewer: Script, headers: dict[str, str]) -> None:
        flow = store_three_versions()
        answer = viewer.get(f"{VERSIONS}/2" + ("" if headers else "?format=yaml"), **headers)
        page = Client()
        page.force_login(User.objects.create_superuser("ada"))
        download: Any = page.get(f"/admin/flows/flow/{flow.pk}/download/?version=2")
        assert answer.content == download.getvalue()
        for name in ("Content-Type", "Content-Disposition"):
            assert answer[name] == download[name]
        assert parse_flow(answer.content).digest == flow.versions.get(number=2).digest
        # The trail has both; reading a version as JSON is no export.
        read(viewer.get(f"{VERSIONS}/2"))
        entries = TrailEntry.objects.filter(action="flow_exported").order_by("pk")
        assert [(entry.actor_name, entry.details["version"]) for entry in entries] == [("viewer", 2), ("ada", 2)]

    def test_a_format_that_there_is_not_is_refused(self, viewer: Script) -> None:
        store_version()
        problem = read_problem(viewer.get(f"{VERSIONS}/1?format=xml"))
        assert (problem["status"], problem["errors"][0]["parameter"]) == (400, "format")
        assert read_problem(viewer.get(f"{VERSIONS}/1", Accept="application/xml"))["status"] == 406

    @pytest.mark.parametrize("number", ["0", "2", "9" * 30, "9" * 5_000, "-1", "latest", "1/", "2?format=yaml"])
    def test_a_version_that_is_not_there_is_not_found(self, viewer: Script, number: str) -> None:
        store_version()
        assert read_problem(viewer.get(f"{VERSIONS}/{number}"))["status"] == 404

    def test_a_definition_of_another_toolflow_can_be_read_but_not_as_a_file(self, viewer: Script) -> None:
        flow = store_version().flow
        spec = {"name": "example", "shape": "round", "steps": []}
        FlowVersion.objects.create(flow=flow, number=2, spec=spec, digest="0" * 64)
        assert read(viewer.get(f"{VERSIONS}/2"))["document"] == spec
        for path in ("2?format=yaml", "2/diff"):
            problem = read_problem(viewer.get(f"{VERSIONS}/{path}"))
            assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:unreadable-version")


class TestDifference:
    def test_it_says_what_a_version_changed(self, viewer: Script) -> None:
        store_three_versions()
        assert read(viewer.get(f"{VERSIONS}/2/diff")) == {
            "flow": "example",
            "from": 1,
            "to": 2,
            "summary": "“Step 1”: max_retries 3 → 1",
            "changes": [
                {
                    "subject": "step",
                    "kind": "changed",
                    "name": "Step 1",
                    "place": 1,
                    "notes": [],
                    "fields": [{"field": "max_retries", "kind": "changed", "old": 3, "new": 1, "notes": []}],
                    "audits": [],
                }
            ],
        }

    def test_audits_that_came_stand_with_their_step(self, viewer: Script) -> None:
        store_version()
        store_version(audits=[{"name": "Long", "rule": "size(output.text) > 3"}])
        (change,) = read(viewer.get(f"{VERSIONS}/2/diff"))["changes"]
        (audit,) = change["audits"]
        assert (audit["subject"], audit["kind"], audit["name"]) == ("audit", "added", "Long")
        assert audit["fields"][0]["new"] == "size(output.text) > 3"
        assert "audits" not in audit

    @pytest.mark.parametrize(
        ("path", "numbers", "count"),
        [("1/diff?against=3", (3, 1), 1), ("3/diff?against=live", (1, 3), 1), ("2/diff?against=2", (2, 2), 0)],
    )
    def test_any_two_can_be_compared(self, viewer: Script, path: str, numbers: tuple[int, int], count: int) -> None:
        store_three_versions()
        found = read(viewer.get(f"{VERSIONS}/{path}"))
        assert ((found["from"], found["to"]), len(found["changes"])) == (numbers, count)

    @pytest.mark.parametrize(
        "path", ["1/diff", "2/diff?against=7", "2/diff?against=one", f"2/diff?against={'9' * 5_000}", "2/diff?against="]
    )
    def test_what_cannot_be_compared_is_named(self, viewer: Script, path: str) -> None:
        store_three_versions()
        problem = read_problem(viewer.get(f"{VERSIONS}/{path}"))
        assert (problem["status"], [error["parameter"] for error in problem["errors"]]) == (400, ["against"])

    def test_without_a_live_version_its_word_means_nothing(self, viewer: Script) -> None:
        store_three_versions()
        Flow.objects.update(live_version=None)
        assert read_problem(viewer.get(f"{VERSIONS}/2/diff?against=live"))["status"] == 400


@pytest.mark.parametrize(
    # The token, permissions, the flow, its versions or one or two of them; of a file an entry of the trail with its
    # title.
    ("path", "count"),
    [("", 4), ("/2", 4), ("/2?format=yaml", 6), ("/3/diff", 5)],
)
def test_it_costs_the_same_however_many_versions_there_are(
    viewer: Script, path: str, count: int, django_assert_num_queries: Callable[[int], Any]
) -> None:
    store_three_versions()
    viewer.get("flows")
    with django_assert_num_queries(count):
        viewer.get(f"{VERSIONS}{path}")


def test_new_runs_use_the_version_that_is_made_live(editor: Script) -> None:
    flow = store_three_versions()
    for _ in range(2):
        assert read(editor.post(f"{VERSIONS}/2/make-live"))["live_version"] == 2
    flow.refresh_from_db()
    assert flow.live_version == flow.versions.get(number=2)
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["Made version 2 live."]
    assert read_problem(editor.post(f"{VERSIONS}/9/make-live"))["status"] == 404
