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
        second = read(viewer.get(first["next"].removeprefix("http://testserver")))
        back = read(viewer.get(second["previous"].removeprefix("http://testserver")))
        pages = [[item["number"] for item in page["items"]] for page in (first, second, back)]
        assert pages == [[5, 4], [3, 2], [5, 4]]

    def test_those_of_other_flows_are_not_listed(self, viewer: Script) -> None:
        store_version()
        Flow.objects.create(name="draft", title="Draft")
        assert read(viewer.get("flows/draft/versions"))["items"] == []
        assert read_problem(viewer.get("flows/nowhere/versions"))["status"] == 404

    @pytest.mark.parametrize("count", [1, 12])
    def test_it_costs_the_same_however_many_versions_there_are(
        self, viewer: Script, count: int, django_assert_num_queries: Callable[[int], Any]
    ) -> None:
        for retries in range(count):
            store_version(max_retries=retries)
        viewer.get(VERSIONS)
        with django_assert_num_queries(4):  # the token, permissions, the flow, its versions
            assert len(read(viewer.get(VERSIONS))["items"]) == count


class TestRead:
    def test_a_version_comes_with_its_definition(self, viewer: Script) -> None:
        store_three_versions()
        answer = viewer.get(f"{VERSIONS}/2")
        document = read(answer)
        version = FlowVersion.objects.get(number=2)
        assert (document["flow"], document["number"], document["note"]) == ("example", 2, "Fewer tries")
        assert document["document"] == version.spec

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
        # The trail tells of both; reading a version as JSON is none.
        read(viewer.get(f"{VERSIONS}/2"))
        told = TrailEntry.objects.filter(action="flow_exported").order_by("pk")
        assert [entry.actor_name for entry in told] == ["viewer", "ada"]
        assert {entry.details["version"] for entry in told} == {2}

    def test_the_parameter_wins_over_the_header(self, viewer: Script) -> None:
        store_version()
        assert read(viewer.get(f"{VERSIONS}/1?format=json", Accept="application/yaml"))["number"] == 1

    def test_a_format_that_nobody_writes_is_refused(self, viewer: Script) -> None:
        store_version()
        problem = read_problem(viewer.get(f"{VERSIONS}/1?format=xml"))
        assert (problem["status"], problem["errors"][0]["parameter"]) == (400, "format")
        assert read_problem(viewer.get(f"{VERSIONS}/1", Accept="application/xml"))["status"] == 406

    @pytest.mark.parametrize("query", ["", "?format=yaml"])
    @pytest.mark.parametrize("number", ["0", "2", "9" * 30, "9" * 5_000, "-1", "latest", "1/"])
    def test_a_version_that_is_not_there_is_not_found(self, viewer: Script, number: str, query: str) -> None:
        store_version()
        assert read_problem(viewer.get(f"{VERSIONS}/{number}{query}"))["status"] == 404

    def test_a_definition_of_another_toolflow_can_be_read_but_not_as_a_file(self, viewer: Script) -> None:
        flow = store_version().flow
        spec = {"name": "example", "shape": "round", "steps": []}
        FlowVersion.objects.create(flow=flow, number=2, spec=spec, digest="0" * 64)
        assert read(viewer.get(f"{VERSIONS}/2"))["document"] == spec
        for path in ("2?format=yaml", "2/diff"):
            problem = read_problem(viewer.get(f"{VERSIONS}/{path}"))
            assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:unreadable-version")

    def test_it_costs_five_queries(self, viewer: Script, django_assert_num_queries: Callable[[int], Any]) -> None:
        store_three_versions()
        viewer.get("flows")
        # The token, permissions, the flow, the version; of a file an entry of the trail with its title.
        for query, count in (("", 4), ("?format=yaml", 6)):
            with django_assert_num_queries(count):
                viewer.get(f"{VERSIONS}/2{query}")


class TestDifference:
    def test_it_tells_what_a_version_changed(self, viewer: Script) -> None:
        store_three_versions()
        document = read(viewer.get(f"{VERSIONS}/2/diff"))
        assert (document["from"], document["to"]) == (1, 2)
        assert document["summary"] == "“Step 1”: max_retries 3 → 1"
        (change,) = document["changes"]
        assert (change["subject"], change["kind"], change["name"], change["place"]) == ("step", "changed", "Step 1", 1)
        assert change["fields"] == [{"field": "max_retries", "kind": "changed", "old": 3, "new": 1, "notes": []}]

    def test_audits_that_came_stand_with_their_step(self, viewer: Script) -> None:
        store_version()
        store_version(audits=[{"name": "Long", "rule": "size(output.text) > 3"}])
        (change,) = read(viewer.get(f"{VERSIONS}/2/diff"))["changes"]
        (audit,) = change["audits"]
        assert (audit["subject"], audit["kind"], audit["name"]) == ("audit", "added", "Long")
        assert audit["fields"][0]["new"] == "size(output.text) > 3"

    def test_any_two_can_be_compared_and_the_live_one_by_its_word(self, viewer: Script) -> None:
        store_three_versions()
        asked = {
            query: read(viewer.get(f"{VERSIONS}/{query}")) for query in ("1/diff?against=3", "3/diff?against=live")
        }
        told = {query: (found["from"], found["to"], found["summary"]) for query, found in asked.items()}
        assert told == {
            "1/diff?against=3": (3, 1, "“Step 1”: max_retries 2 → 3"),
            "3/diff?against=live": (1, 3, "“Step 1”: max_retries 3 → 2"),
        }
        same = read(viewer.get(f"{VERSIONS}/2/diff?against=2"))
        assert (same["changes"], same["summary"]) == ([], "No difference")

    @pytest.mark.parametrize(
        ("path", "sentence"),
        [
            ("1/diff", "Version 1 has none before it; name another one."),
            ("2/diff?against=7", "This flow has no version 7."),
            ("2/diff?against=one", "“one” is neither the number of a version nor “live”."),
            ("2/diff?against=" + "9" * 5_000, "“" + "9" * 40 + "” is neither the number of a version nor “live”."),
        ],
    )
    def test_what_cannot_be_compared_is_told(self, viewer: Script, path: str, sentence: str) -> None:
        store_three_versions()
        problem = read_problem(viewer.get(f"{VERSIONS}/{path}"))
        assert (problem["status"], problem["errors"]) == (400, [{"detail": sentence, "parameter": "against"}])

    def test_without_a_live_version_its_word_means_nothing(self, viewer: Script) -> None:
        store_three_versions()
        Flow.objects.update(live_version=None)
        problem = read_problem(viewer.get(f"{VERSIONS}/2/diff?against=live"))
        assert problem["detail"] == "No version of this flow is live."

    def test_it_costs_six_queries(self, viewer: Script, django_assert_num_queries: Callable[[int], Any]) -> None:
        store_three_versions()
        viewer.get("flows")
        with django_assert_num_queries(5):  # the token, permissions, the flow, both versions
            viewer.get(f"{VERSIONS}/3/diff")


class TestMakeLive:
    def test_new_runs_use_the_version_from_then_on(self, editor: Script) -> None:
        flow = store_three_versions()
        assert read(editor.post(f"{VERSIONS}/2/make-live"))["live_version"] == 2
        assert read(editor.post(f"{VERSIONS}/2/make-live"))["live_version"] == 2
        flow.refresh_from_db()
        assert flow.live_version == flow.versions.get(number=2)
        assert [entry.change_message for entry in LogEntry.objects.all()] == ["Made version 2 live."]

    def test_what_is_not_there_is_not_found_and_a_body_means_nothing(self, editor: Script) -> None:
        store_version()
        for path in (f"{VERSIONS}/2/make-live", "flows/nowhere/versions/1/make-live"):
            assert read_problem(editor.post(path))["status"] == 404
        assert read_problem(editor.post(f"{VERSIONS}/1/make-live", {"now": True}))["status"] == 422
