"""Flows over the API: list, read, create, change, archive and delete them, as a script in a pipeline does."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission

from flows.engine.spec import FlowSpec
from flows.flow_file import render_flow
from flows.models import Flow, FlowVersion
from runs.models import AuditEntry
from tests.api.asking import Script, create_token, list_wrong, make_user, read, read_json, read_problem, read_type
from tests.engine.builders import make_flow, make_step
from tests.flows.loading import load_flow
from tests.flows.versioned import store_three_versions
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db

TEA = "flows/tea"


def make_document(name: str = "tea", **fields: Any) -> dict[str, Any]:
    """The document of a flow with one step, whose fields may be given."""
    return {**make_flow(make_step(**fields), title="Tea").to_document(), "name": name}


def store(name: str, **fields: Any) -> Flow:
    return load_flow(document={**make_document(name), **fields}).flow


def list_names(script: Script, query: str = "") -> list[str]:
    return [item["name"] for item in read(script, f"flows{query}")["items"]]


def list_messages() -> list[str]:
    """What the admin's history says of flows."""
    return [entry.change_message for entry in LogEntry.objects.order_by("pk")]


class TestList:
    def test_flows_come_by_name_with_what_runs_need_to_know(self, viewer: Script) -> None:
        store("tea", description="Makes tea.")
        flow = store_three_versions()
        first, second = read(viewer, "flows")["items"]
        assert first.pop("created_at") == flow.created_at.isoformat().replace("+00:00", "Z")
        assert first.pop("updated_at")
        assert first == {
            "name": "example",
            "title": "Invoices",
            "description": None,
            "live_version": 1,
            "latest_version": 3,
            "is_archived": False,
        }
        assert (second["name"], second["description"]) == ("tea", "Makes tea.")

    def test_the_input_schema_is_that_of_the_version_that_new_runs_use(self, viewer: Script) -> None:
        schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
        store("tea", input_schema=schema)
        store("tea", input_schema={"type": "object"})
        Flow.objects.create(name="draft", title="Draft")
        draft, item = read(viewer, "flows?input_schema=true")["items"]
        assert (item["input_schema"], list(item["input_schema"]["properties"])) == (schema, ["b", "a"])
        assert draft["input_schema"] is None
        assert "input_schema" not in read(viewer, "flows")["items"][0]


class TestRead:
    def test_a_flow_comes_with_its_live_and_its_latest_definition(self, viewer: Script) -> None:
        latest = store_three_versions().versions.get(number=3)
        document = read(viewer, "flows/example")
        assert (document["live_version"], document["latest_version"]) == (1, 3)
        assert document["live"]["document"]["steps"][0].get("max_retries", 3) == 3
        assert document["latest"]["document"] == latest.spec
        assert (document["latest"]["digest"], document["latest"]["is_live"]) == (latest.digest, False)
        assert (document["live"]["note"], document["latest"]["note"]) == ("As it began", None)

    def test_what_is_no_flow_is_not_found(self, viewer: Script) -> None:
        store("tea")
        for name in ("coffee", "Tea", "a/b", "tea/", "%00", "x" * 300, "%F0%9F%8D%B5"):
            assert read_type(viewer.get(f"flows/{name}")) == (404, "not-found"), name


class TestCreate:
    def test_a_flow_is_created_from_its_document_and_runs_at_once(self, editor: Script) -> None:
        answer = editor.post("flows?note=From%20%20git", make_document(max_retries=1))
        document = read_json(answer, 201)
        assert read(editor, answer["Location"]) | {"made_version": 1} == document
        version = FlowVersion.objects.get()
        assert (version.note, version.created_by and version.created_by.username) == ("From git", "editor")
        assert document["made_version"] == document["live_version"] == 1
        assert document["live"]["document"] == make_document(max_retries=1)

    def test_what_is_asked_of_each_item_and_put_into_a_prompt_comes_back_as_it_was_sent(self, editor: Script) -> None:
        each = {"name": "Words", "for_each": "output.text.split(' ')", "rule": "size(item) < 9"}
        document = make_document(system_message="For {input.party}: {}", audits=[each])
        live = read_json(editor.post("flows", document), 201)["live"]
        assert live["document"] == document
        file = render_flow(FlowSpec.from_document(document))
        assert read_json(editor.put("flows/tea", file.encode(), Content_Type="application/yaml"), 200)["live"] == live

    def test_a_name_that_is_taken_is_a_conflict_and_changes_nothing(self, editor: Script) -> None:
        store("tea")
        assert read_type(editor.post("flows", make_document(max_retries=0))) == (409, "name-taken")
        assert FlowVersion.objects.count() == 1

    @pytest.mark.parametrize(
        ("body", "kind", "status"),
        [
            (b"", "yaml", 422),
            (b"[]", "json", 422),
            (b"{", "json", 400),
            (b"\xff\xfe", "yaml", 400),
            (b"name: tea\x00", "yaml", 422),
            (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "yaml", 422),
            (b"[" * 5_000, "yaml", 422),
            (b"[" * 5_000, "json", 400),
            (b'{"name": "t\\u0000a", "steps": []}', "json", 422),
            (b'{"name": "tea", "\\ud800": 1, "steps": []}', "json", 422),
            (b"<flow/>", "xml", 415),
            (b'{"title": "' + b"x" * 1_100_000 + b'"}', "json", 413),
            (b'{"title": "' + b"x" * 1_100_000 + b'"}', "yaml", 413),
        ],
    )
    def test_what_is_no_flow_is_refused(self, editor: Script, body: bytes, kind: str, status: int) -> None:
        problem = read_problem(editor.post("flows", body, Content_Type=f"application/{kind}"))
        assert problem["status"] == status
        assert not Flow.objects.exists()

    def test_a_query_that_is_not_valid_is_refused(self, editor: Script) -> None:
        for note in ("%00", "x" * 501):
            assert list_wrong(editor.post(f"flows?note={note}", make_document()), 400) == ["note"]
        assert list_wrong(editor.put(f"{TEA}?make_live=1", make_document()), 400) == ["make_live"]
        assert not Flow.objects.exists()

    def test_text_that_only_json_may_hold_as_it_is_is_kept(self, editor: Script) -> None:
        body = '{"name": "tea", "title": "a\x7fb \u2028 \ufeff", "steps": [{"name": "Brew", "compute": "input"}]}'
        assert read_json(editor.post("flows", body.encode()), 201)["title"] == "a\x7fb \u2028 \ufeff"


class TestChange:
    def test_what_differs_becomes_a_new_version_and_goes_live_if_that_is_wanted(self, editor: Script) -> None:
        store("tea")
        document = read_json(editor.put(f"{TEA}?note=Fewer", make_document(max_retries=1)))
        assert (document["made_version"], document["latest_version"], document["live_version"]) == (2, 2, 1)
        assert (document["latest"]["note"], document["latest"]["document"]["steps"][0]["max_retries"]) == ("Fewer", 1)
        same = read_json(editor.put(TEA, make_document(max_retries=1)))
        assert (same["made_version"], same["live_version"]) == (None, 1)
        live = read_json(editor.put(f"{TEA}?make_live=true", make_document(max_retries=1)))
        assert (live["made_version"], live["live_version"]) == (None, 2)
        assert list_messages() == ["Saved version 2 through the API.", "Made version 2 live."]

    def test_a_flow_that_is_not_there_is_created(self, editor: Script) -> None:
        answer = editor.put(TEA, make_document())
        assert read_json(answer, 201)["live_version"] == 1
        assert answer["Location"] == "http://testserver/api/v1/flows/tea"
        assert list_messages() == ["Created through the API."]

    def test_a_user_who_may_add_no_flows_creates_none(self, groups: None) -> None:
        user = make_user("vera")
        user.user_permissions.set(Permission.objects.filter(codename__in=["view_flow", "change_flow"]))
        assert read_problem(Script(create_token(user)).put(TEA, make_document()))["status"] == 403
        assert not Flow.objects.exists()


class TestArchive:
    def test_a_flow_goes_into_the_archive_and_comes_out_again(self, editor: Script) -> None:
        store("tea")
        store("coffee")
        for _ in range(2):
            assert read_json(editor.post(f"{TEA}/archive"))["is_archived"] is True
        listed = {query: list_names(editor, query) for query in ("", "?archived=true", "?archived=all")}
        assert listed == {"": ["coffee"], "?archived=true": ["tea"], "?archived=all": ["coffee", "tea"]}
        assert read_json(editor.post(f"{TEA}/take-out"))["is_archived"] is False
        assert list_messages() == ["Archived.", "Unarchived."]
        for action in ("archive", "take-out", "versions/1/make-live"):
            assert read_type(editor.post(f"flows/nowhere/{action}")) == (404, "not-found")


class TestDelete:
    def test_a_flow_without_runs_goes_with_its_versions(self, editor: Script) -> None:
        store_three_versions()
        answer = editor.ask("DELETE", "flows/example")
        assert (answer.status_code, answer.content) == (204, b"")
        assert not Flow.objects.exists() and not FlowVersion.objects.exists()
        assert list_messages() == ["Deleted through the API, with all its versions."]
        (entry,) = AuditEntry.objects.filter(action__in=["flow_deleted", "version_deleted"])
        assert (entry.action, entry.actor_name) == ("flow_deleted", "editor")

    def test_a_version_that_is_not_used_goes(self, editor: Script) -> None:
        store_three_versions()
        assert editor.ask("DELETE", "flows/example/versions/2").status_code == 204
        assert [one.number for one in FlowVersion.objects.order_by("number")] == [1, 3]
        assert list_messages() == ["Deleted through the API."]
        assert AuditEntry.objects.get(action="version_deleted").details == {"version": 2}

    @pytest.mark.parametrize(
        ("path", "status", "kind"),
        [
            ("flows/example", 409, "has-runs"),
            ("flows/example/versions/1", 409, "is-live"),
            ("flows/example/versions/2", 409, "has-runs"),
            ("flows/example/versions/9", 404, "not-found"),
            ("flows/nowhere", 404, "not-found"),
        ],
    )
    def test_what_has_runs_or_is_live_stays(self, editor: Script, path: str, status: int, kind: str) -> None:
        make_run(store_three_versions().versions.get(number=2))
        assert read_type(editor.ask("DELETE", path)) == (status, kind)
        assert FlowVersion.objects.count() == 3 and not LogEntry.objects.exists()

    def test_its_versions_take_a_permission_of_their_own(self, groups: None) -> None:
        store("tea")
        user = make_user("ada")
        user.user_permissions.set(Permission.objects.filter(codename="delete_flow"))
        assert read_problem(Script(create_token(user)).ask("DELETE", TEA))["status"] == 403


@pytest.mark.parametrize("name", ["validate", "preview", "try-audits"])
def test_a_flow_may_be_called_like_a_tool(editor: Script, name: str) -> None:
    assert read_problem(editor.get(f"flows/{name}"))["status"] == 405
    store(name)
    assert read(editor, f"flows/{name}")["name"] == name
    assert read_json(editor.put(f"flows/{name}", make_document(name, max_retries=1)))["made_version"] == 2
