"""Flows over the API: list, read, create, change and archive them, as a script in somebody's pipeline does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse

from flows.examples import load_documents, load_examples
from flows.flow_file import render_flow
from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from runs.models import TokenScope
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import make_flow, make_step
from tests.flows.versioned import store_three_versions, store_version

pytestmark = pytest.mark.django_db


def make_document(name: str = "tea", **fields: Any) -> dict[str, Any]:
    """The document of a flow with one step, whose fields may be given."""
    return {**make_flow(make_step(**fields), title="Tea").to_document(), "name": name}


def store(name: str, **fields: Any) -> Flow:
    return load_flow(document={**make_document(name), **fields}).flow


def read(answer: HttpResponse, status: int = 200) -> dict[str, Any]:
    """The document in an answer."""
    assert answer.status_code == status, answer.content.decode()[:500]
    document: dict[str, Any] = answer.json()  # type: ignore[attr-defined]  # answers to test clients have it
    return document


def list_names(script: Script, query: str = "") -> list[str]:
    return [item["name"] for item in read(script.get(f"flows{query}"))["items"]]


class TestList:
    def test_flows_come_by_name_with_what_runs_need_to_know(self, viewer: Script) -> None:
        store("tea", description="Makes tea.")
        store_three_versions()
        first, second = read(viewer.get("flows"))["items"]
        assert (first["name"], first["title"], first["live_version"], first["latest_version"]) == (
            "example",
            "Invoices",
            1,
            3,
        )
        assert second["created_at"].endswith("Z")
        assert {name: second[name] for name in ("name", "description", "is_archived")} == {
            "name": "tea",
            "description": "Makes tea.",
            "is_archived": False,
        }
        assert first["description"] is None

    def test_what_is_archived_is_listed_on_demand(self, viewer: Script) -> None:
        store("tea")
        Flow.objects.filter(pk=store("coffee").pk).update(is_archived=True)
        asked = {query: list_names(viewer, query) for query in ("", "?archived=true", "?archived=all")}
        assert asked == {"": ["tea"], "?archived=true": ["coffee"], "?archived=all": ["coffee", "tea"]}

    def test_the_input_schema_is_that_of_the_version_that_new_runs_use(self, viewer: Script) -> None:
        schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
        store("tea", input_schema=schema)
        store("tea", input_schema={"type": "object"})
        (item,) = read(viewer.get("flows?input_schema=true"))["items"]
        assert item["input_schema"] == schema
        assert list(item["input_schema"]["properties"]) == ["b", "a"]
        assert "input_schema" not in read(viewer.get("flows"))["items"][0]

    def test_pages_lead_to_one_another(self, viewer: Script) -> None:
        for name in ("e", "a", "d", "b", "c"):
            store(name)
        first = read(viewer.get("flows?limit=2"))
        second = read(viewer.get(first["next"].removeprefix("http://testserver")))
        last = read(viewer.get(second["next"].removeprefix("http://testserver")))
        back = read(viewer.get(last["previous"].removeprefix("http://testserver")))
        pages = [[item["name"] for item in page["items"]] for page in (first, second, last, back)]
        assert pages == [["a", "b"], ["c", "d"], ["e"], ["c", "d"]]
        assert (first["previous"], last["next"]) == (None, None)

    @pytest.mark.parametrize(
        ("query", "parameter"),
        [
            ("archived=yes", "archived"),
            ("input_schema=1", "input_schema"),
            ("limit=201", "limit"),
            ("after=%00", "after"),
            ("status=failed", "status"),
        ],
    )
    def test_a_parameter_that_makes_no_sense_is_named(self, viewer: Script, query: str, parameter: str) -> None:
        problem = read_problem(viewer.get(f"flows?{query}"))
        assert (problem["status"], problem["errors"][0]["parameter"]) == (400, parameter)

    @pytest.mark.parametrize("count", [1, 30])
    def test_it_costs_the_same_however_many_flows_there_are(
        self, viewer: Script, count: int, django_assert_num_queries: Callable[[int], Any]
    ) -> None:
        for number in range(count):
            store(f"flow-{number}")
        viewer.get("flows")
        with django_assert_num_queries(3):  # the token, permissions, and the flows
            assert len(read(viewer.get("flows?input_schema=true"))["items"]) == count


class TestRead:
    def test_a_flow_comes_with_its_live_and_its_latest_definition(self, viewer: Script) -> None:
        flow = store_three_versions()
        answer = viewer.get("flows/example")
        document = read(answer)
        latest = flow.versions.get(number=3)
        assert (document["live_version"], document["latest_version"]) == (1, 3)
        assert document["live"]["document"]["steps"][0].get("max_retries", 3) == 3
        assert document["latest"]["document"] == latest.spec
        assert (document["latest"]["digest"], document["latest"]["is_live"]) == (latest.digest, False)
        assert (document["live"]["note"], document["latest"]["note"]) == ("As it began", None)

    def test_a_flow_that_was_never_published_has_no_definition(self, viewer: Script) -> None:
        Flow.objects.create(name="draft", title="Draft")
        answer = viewer.get("flows/draft")
        document = read(answer)
        assert (document["live"], document["latest"], document["latest_version"]) == (None, None, None)
        assert "ETag" not in answer.headers

    @pytest.mark.parametrize("name", ["coffee", "Tea", "a/b", "tea/", "%00", "x" * 300, "..", "%F0%9F%8D%B5"])
    def test_what_is_no_flow_is_not_found(self, viewer: Script, name: str) -> None:
        store("tea")
        assert read_problem(viewer.get(f"flows/{name}"))["status"] == 404

    @pytest.mark.parametrize("versions", [1, 5])
    def test_it_costs_the_same_however_many_versions_there_are(
        self, viewer: Script, versions: int, django_assert_num_queries: Callable[[int], Any]
    ) -> None:
        for retries in range(versions):
            store_version(max_retries=retries)
        viewer.get("flows/example")
        with django_assert_num_queries(4):  # the token, permissions, the flow, its latest version
            read(viewer.get("flows/example"))


class TestCreate:
    def test_a_flow_is_created_from_its_document_and_runs_at_once(self, editor: Script) -> None:
        answer = editor.post("flows?note=From%20git", make_document(max_retries=1))
        document = read(answer, 201)
        assert answer["Location"] == "http://testserver/api/v1/flows/tea"
        assert read(editor.get(answer["Location"].removeprefix("http://testserver")))["name"] == "tea"
        version = FlowVersion.objects.get()
        assert (version.note, version.created_by and version.created_by.username) == ("From git", "editor")
        assert document["made_version"] == document["live_version"] == 1
        assert document["live"]["document"] == make_document(max_retries=1)

    def test_every_example_can_be_sent_as_the_file_that_it_is(self, editor: Script) -> None:
        load_examples()
        expected = {name: Flow.objects.get(name=name).live_version for name in load_documents()}
        files = {name: render_flow(version.flow_spec) for name, version in expected.items() if version}
        Flow.objects.update(live_version=None)
        Flow.objects.all().delete()
        for name, file in files.items():
            answer = editor.post("flows", file.encode(), Content_Type="application/yaml")
            assert read(answer, 201)["live"]["digest"] == expected[name].digest  # type: ignore[union-attr]

    def test_a_name_that_is_taken_is_a_conflict_and_changes_nothing(self, editor: Script) -> None:
        store("tea")
        problem = read_problem(editor.post("flows", make_document(max_retries=0)))
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:name-taken")
        assert FlowVersion.objects.count() == 1

    def test_a_repeated_request_with_its_key_gets_the_same_answer(self, editor: Script) -> None:
        answers = [editor.post("flows", make_document(), Idempotency_Key="once") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 201]
        assert answers[0].content == answers[1].content
        other = editor.post("flows", make_document("coffee"), Idempotency_Key="once")
        assert read_problem(other)["status"] == 409

    def test_all_mistakes_are_told_with_pointers(self, editor: Script) -> None:
        document = {
            "name": "Tea Time",
            "colour": "green",
            "steps": [{"name": "Brew", "compute": "input", "max_retries": -1}],
        }
        problem = read_problem(editor.post("flows", document))
        assert problem["status"] == 422
        pointers = {error["pointer"] for error in problem["errors"]}
        assert pointers == {"/colour", "/name", "/steps/0/max_retries"}
        assert not Flow.objects.exists()

    def test_mistakes_in_yaml_are_told_with_their_lines(self, editor: Script) -> None:
        file = b"name: tea\nsteps:\n  - name: 5\n    compute: input\n"
        problem = read_problem(editor.post("flows", file, Content_Type="application/yaml"))
        (error,) = problem["errors"]
        assert error["pointer"] == "/steps/0/name"
        assert error["detail"].startswith("Line 3, column 5: “name”")

    @pytest.mark.parametrize(
        ("body", "kind", "status"),
        [
            (b"", "application/json", 422),
            (b"", "application/yaml", 422),
            (b"[]", "application/json", 422),
            (b"- a\n- b", "application/yaml", 422),
            (b"null", "application/json", 422),
            (b'"tea"', "application/json", 422),
            (b"{", "application/json", 400),
            (b'{"name": "a", "name": "b"}', "application/json", 400),
            (b'{"name": NaN}', "application/json", 400),
            (b"name: tea", "application/json", 400),
            (b"\xff\xfe", "application/yaml", 400),
            (b"name: [", "application/yaml", 422),
            (b"name: tea\x00", "application/yaml", 422),
            (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "application/yaml", 422),
            (b"name: !!python/object:os.system tea", "application/yaml", 422),
            (b"[" * 5_000, "application/yaml", 422),
            (b"[" * 5_000, "application/json", 400),
            (b'{"name": "t\\u0000a", "steps": []}', "application/json", 422),
            (b'{"name": "tea", "title": "\\ud800", "steps": []}', "application/json", 422),
            (b'{"name": "a/b", "steps": [{"name": "x", "compute": "input"}]}', "application/json", 422),
            (b"<flow/>", "application/xml", 415),
            (b"name=tea", "application/x-www-form-urlencoded", 415),
        ],
    )
    def test_what_is_no_flow_is_refused_with_a_sentence(
        self, editor: Script, body: bytes, kind: str, status: int
    ) -> None:
        problem = read_problem(editor.post("flows", body, Content_Type=kind))
        assert problem["status"] == status
        assert problem["detail"].endswith(".")
        assert not Flow.objects.exists()

    @pytest.mark.parametrize("size", [1_100_000, 10_000_001])
    @pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
    def test_a_body_that_is_too_large_is_refused(self, editor: Script, size: int, kind: str) -> None:
        body = b'{"title": "' + b"x" * size + b'"}'
        assert read_problem(editor.post("flows", body, Content_Type=kind))["status"] == 413

    @pytest.mark.parametrize("note", ["%00", "x" * 501])
    def test_a_note_that_cannot_be_stored_is_refused(self, editor: Script, note: str) -> None:
        problem = read_problem(editor.post(f"flows?note={note}", make_document()))
        assert (problem["status"], problem["errors"][0]["parameter"]) == (400, "note")

    def test_text_that_only_json_may_hold_as_it_is_is_kept(self, editor: Script) -> None:
        body = '{"name": "tea", "title": "a\x7fb \u2028 \ufeff", "steps": [{"name": "Brew", "compute": "input"}]}'
        assert read(editor.post("flows", body.encode()), 201)["title"] == "a\x7fb \u2028 \ufeff"


class TestChange:
    def test_what_differs_becomes_a_new_version_that_is_not_live_yet(self, editor: Script) -> None:
        store("tea")
        document = read(editor.put("flows/tea?note=Fewer", make_document(max_retries=1)))
        assert (document["made_version"], document["latest_version"], document["live_version"]) == (2, 2, 1)
        assert document["latest"]["note"] == "Fewer"
        assert document["latest"]["document"]["steps"][0]["max_retries"] == 1

    def test_what_is_the_same_makes_no_version(self, editor: Script) -> None:
        store("tea")
        document = read(editor.put("flows/tea", make_document()))
        assert (document["made_version"], document["latest_version"]) == (None, 1)
        assert not LogEntry.objects.exists()

    def test_it_goes_live_if_that_is_wanted_even_if_it_was_there_before(self, editor: Script) -> None:
        store("tea")
        editor.put("flows/tea", make_document(max_retries=1))
        document = read(editor.put("flows/tea?make_live=true", make_document(max_retries=1)))
        assert (document["made_version"], document["live_version"]) == (None, 2)
        assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
            "Saved version 2 through the API.",
            "Made version 2 live.",
        ]

    def test_a_flow_that_is_not_there_is_created(self, editor: Script) -> None:
        answer = editor.put("flows/tea", make_document())
        assert read(answer, 201)["live_version"] == 1
        assert answer["Location"] == "http://testserver/api/v1/flows/tea"

    def test_whoever_may_add_no_flows_creates_none(self, groups: None) -> None:
        user = User.objects.create_user("vera")
        user.user_permissions.set(Permission.objects.filter(codename__in=["view_flow", "change_flow"]))
        problem = read_problem(Script(make_token(user)).put("flows/tea", make_document()))
        assert (problem["status"], "flows.add_flow" in problem["detail"]) == (403, True)
        assert not Flow.objects.exists()

    def test_yaml_works_as_well(self, editor: Script) -> None:
        flow = store("tea")
        version = flow.versions.get()
        file = render_flow(version.flow_spec).replace("title: Tea", "title: Green tea")
        document = read(editor.put("flows/tea", file.encode(), Content_Type="application/yaml"))
        assert (document["title"], document["made_version"]) == ("Green tea", 2)

    def test_the_name_in_the_document_is_that_in_the_address(self, editor: Script) -> None:
        store("tea")
        problem = read_problem(editor.put("flows/tea", make_document("coffee")))
        assert (problem["status"], problem["errors"][0]["pointer"]) == (422, "/name")
        assert FlowVersion.objects.count() == 1

    def test_a_script_that_read_an_earlier_version_overwrites_nothing(self, editor: Script) -> None:
        store("tea")
        read_tag = editor.get("flows/tea")["ETag"]
        other = editor.put("flows/tea", make_document(max_retries=1), If_Match=read_tag)
        late = editor.put("flows/tea", make_document(max_retries=2), If_Match=read_tag)
        problem = read_problem(late)
        assert (problem["status"], problem["type"]) == (412, "urn:toolflow:problem:flow-changed")
        assert late["ETag"] == other["ETag"] != read_tag
        assert read(editor.put("flows/tea", make_document(max_retries=2), If_Match=other["ETag"]))["made_version"] == 3

    @pytest.mark.parametrize(("header", "status"), [("*", 200), ('"a", "b"', 412), ("no-quotes", 400), ("", 400)])
    def test_conditions_of_every_kind_are_understood(self, editor: Script, header: str, status: int) -> None:
        store("tea")
        assert editor.put("flows/tea", make_document(), If_Match=header).status_code == status

    def test_a_condition_keeps_a_flow_that_is_gone_from_coming_back(self, editor: Script) -> None:
        assert read_problem(editor.put("flows/tea", make_document(), If_Match="*"))["status"] == 412
        assert not Flow.objects.exists()

    @pytest.mark.parametrize("query", ["make_live=1", "live=true", "make_live="])
    def test_a_parameter_that_makes_no_sense_changes_nothing(self, editor: Script, query: str) -> None:
        assert read_problem(editor.put(f"flows/tea?{query}", make_document()))["status"] == 400
        assert not Flow.objects.exists()

    def test_editors_see_in_the_history_of_the_flow_what_scripts_did(self, editor: Script) -> None:
        editor.post("flows", make_document())
        editor.put("flows/tea?make_live=true", make_document(max_retries=1))
        entries = LogEntry.objects.order_by("pk").values_list("user__username", "object_repr", "change_message")
        assert list(entries) == [
            ("editor", "Tea", "Created through the API."),
            ("editor", "Tea", "Saved version 2 through the API. Made version 2 live."),
        ]


class TestArchive:
    def test_a_flow_goes_into_the_archive_and_comes_out_again(self, editor: Script) -> None:
        store("tea")
        assert read(editor.post("flows/tea/archive"))["is_archived"] is True
        assert read(editor.post("flows/tea/archive"))["is_archived"] is True
        assert list_names(editor) == []
        assert read(editor.post("flows/tea/take-out"))["is_archived"] is False
        assert list_names(editor) == ["tea"]
        messages = LogEntry.objects.order_by("pk").values_list("change_message", flat=True)
        assert list(messages) == ["Archived.", "Taken out of the archive."]

    @pytest.mark.parametrize("action", ["archive", "take-out"])
    def test_what_is_not_there_is_not_found_and_a_body_means_nothing(self, editor: Script, action: str) -> None:
        store("tea")
        assert read_problem(editor.post(f"flows/coffee/{action}"))["status"] == 404
        assert read_problem(editor.post(f"flows/tea/{action}", {"force": True}))["status"] == 422


@pytest.mark.parametrize("name", ["validate", "preview", "try-audits"])
def test_a_flow_may_be_called_like_a_tool(editor: Script, name: str) -> None:
    assert read_problem(editor.get(f"flows/{name}"))["status"] == 405
    store(name)
    assert read(editor.get(f"flows/{name}"))["name"] == name
    assert read(editor.put(f"flows/{name}", make_document(name, max_retries=1)))["made_version"] == 2


def test_only_editors_change_flows(viewer: Script, operator: Script) -> None:
    store("tea")
    for script in (viewer, operator, Script(make_token(make_user("eve", "Editor"), TokenScope.READ))):
        asked = [
            script.post("flows", make_document("coffee")),
            script.put("flows/tea", make_document(max_retries=1)),
            script.post("flows/tea/archive"),
            script.post("flows/tea/take-out"),
            script.post("flows/tea/versions/1/make-live"),
        ]
        assert [read_problem(answer)["status"] for answer in asked] == [403] * 5
        assert read(script.get("flows/tea"))["latest_version"] == 1
    assert Flow.objects.count() == FlowVersion.objects.count() == 1
