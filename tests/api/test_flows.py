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


class TestList:
    def test_flows_come_by_name_with_what_runs_need_to_know(self, viewer: Script) -> None:
        store("tea", description="Makes tea.")
        flow = store_three_versions()
        first, second = read(viewer, "flows")["items"]
        assert first.pop("created_at") == flow.created_at.isoformat().replace("+00:00", "Z")
        assert first.pop("updated_at")
        versions = {"live_version": 1, "latest_version": 3}
        assert first == {"name": "example", "title": "Invoices", "description": None, "is_archived": False, **versions}
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
        for name in ("coffee", "Example", "a/b", "example/", "%00", "x" * 300, "%F0%9F%8D%B5"):
            assert read_type(viewer.get(f"flows/{name}")) == (404, "not-found"), name
        document = read(viewer, "flows/example")
        assert (document["live_version"], document["latest_version"]) == (1, 3)
        assert document["live"]["document"]["steps"][0].get("max_retries", 3) == 3
        assert document["latest"]["document"] == latest.spec
        assert (document["latest"]["digest"], document["latest"]["is_live"]) == (latest.digest, False)
        assert (document["live"]["note"], document["latest"]["note"]) == ("As it began", None)


class TestCreate:
    def test_a_flow_is_created_from_its_document_and_runs_at_once(self, editor: Script) -> None:
        answer = editor.post("flows?note=From%20%20git", make_document(max_retries=1))
        document = read_json(answer, 201)
        assert read(editor, answer["Location"]) | {"made_version": 1} == document
        version = FlowVersion.objects.get()
        assert (version.note, version.created_by and version.created_by.username) == ("From git", "editor")
        assert document["made_version"] == document["live_version"] == 1
        assert document["live"]["document"] == make_document(max_retries=1)

    @pytest.mark.parametrize(
        ("body", "kind", "status"),
        [
            (b"", "yaml", 422),
            (b"\xff\xfe", "yaml", 400),
            (b"name: tea\x00", "yaml", 422),
            (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "yaml", 422),
            (b"[" * 5_000, "yaml", 422),
            (b"[" * 5_000, "json", 400),
            (b'{"name": "t\\u0000a", "steps": []}', "json", 422),
            (b'{"name": "tea", "\\ud800": 1, "steps": []}', "json", 422),
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

    def test_what_only_json_may_hold_as_it_is_and_what_is_put_into_a_prompt_is_kept(self, editor: Script) -> None:
        document = make_document(system_message="For {input.party}: {}") | {"title": "a\x7fb \u2028 \ufeff"}
        live = read_json(editor.post("flows", document), 201)["live"]
        assert live["document"] == document
        file = render_flow(FlowSpec.from_document(document))
        assert read_json(editor.put("flows/tea", file.encode(), Content_Type="application/yaml"), 200)["live"] == live


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
        assert LogEntry.objects.count() == 2

    def test_a_flow_that_is_not_there_is_created(self, editor: Script) -> None:
        answer = editor.put(TEA, make_document())
        assert read_json(answer, 201)["live_version"] == 1
        assert answer["Location"] == "http://testserver/api/v1/flows/tea"
        assert LogEntry.objects.count() == 1


class TestArchive:
    def test_a_flow_goes_into_the_archive_and_comes_out_again(self, editor: Script) -> None:
        store("tea")
        store("coffee")
        for _ in range(2):
            assert read_json(editor.post(f"{TEA}/archive"))["is_archived"] is True
        listed = {query: list_names(editor, query) for query in ("", "?archived=true", "?archived=all")}
        assert listed == {"": ["coffee"], "?archived=true": ["tea"], "?archived=all": ["coffee", "tea"]}
        assert read_json(editor.post(f"{TEA}/take-out"))["is_archived"] is False
        assert LogEntry.objects.count() == 2
        for action in ("archive", "take-out", "versions/1/make-live"):
            assert read_type(editor.post(f"flows/nowhere/{action}")) == (404, "not-found")


class TestDelete:
    def test_a_version_that_is_not_used_goes_and_a_flow_without_runs_with_all_of_its(self, editor: Script) -> None:
        store_three_versions()
        assert editor.ask("DELETE", "flows/example/versions/2").status_code == 204
        assert [one.number for one in FlowVersion.objects.order_by("number")] == [1, 3]
        answer = editor.ask("DELETE", "flows/example")
        assert (answer.status_code, answer.content) == (204, b"")
        assert not Flow.objects.exists() and not FlowVersion.objects.exists()
        assert LogEntry.objects.count() == 2
        entries = AuditEntry.objects.filter(action__in=["flow_deleted", "version_deleted"]).order_by("pk")
        assert [(entry.action, entry.actor_name) for entry in entries] == [
            ("version_deleted", "editor"), ("flow_deleted", "editor"),
        ]  # fmt: skip

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

    @pytest.mark.parametrize(
        ("method", "held"),
        [("PUT", ["view_flow", "change_flow"]), ("DELETE", ["delete_flow"])],
        ids=["add", "versions"],
    )
    def test_to_add_flows_and_to_delete_versions_takes_permissions_of_their_own(
        self, groups: None, method: str, held: list[str]
    ) -> None:
        coffee = store("coffee")
        user = make_user("vera")
        user.user_permissions.set(Permission.objects.filter(codename__in=held))
        path = TEA if method == "PUT" else "flows/coffee"
        assert read_problem(Script(create_token(user)).ask(method, path, make_document()))["status"] == 403
        assert Flow.objects.get() == coffee
