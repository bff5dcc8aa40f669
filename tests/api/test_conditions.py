"""Requests that depend on what is there: nothing is overwritten unseen, and nothing is sent twice."""

from __future__ import annotations

from typing import Any

import pytest

from flows.models import Flow, FlowVersion
from tests.api.asking import Script, read_json, read_type
from tests.engine.builders import make_flow, make_step
from tests.flows.loading import load_flow

pytestmark = pytest.mark.django_db

TEA = "flows/tea"


def make_document(**step: Any) -> dict[str, Any]:
    return make_flow(make_step(**step), title="Tea").model_copy(update={"name": "tea"}).to_document()


def store(retries: int = 3) -> FlowVersion:
    return load_flow(document=make_document(max_retries=retries))


def test_a_flow_is_created_but_none_that_is_there_is_changed_not_even_a_draft(editor: Script) -> None:
    Flow.objects.create(name="draft", title="Draft")
    assert editor.put("flows/draft", {**make_document(), "name": "draft"}, If_None_Match="*").status_code == 412
    assert read_json(editor.put(TEA, make_document(), If_None_Match="*"), 201)["made_version"] == 1
    answer = editor.put(TEA, make_document(max_retries=1), If_None_Match="*")
    assert (read_type(answer), answer["ETag"]) == ((412, "flow-exists"), editor.get(TEA)["ETag"])
    assert FlowVersion.objects.count() == 1


class TestOnlyIfItIsAsItWasRead:
    @pytest.mark.parametrize("action", ["versions/1/make-live", "archive", "take-out"])
    def test_what_was_done_meanwhile_is_left_alone(self, editor: Script, action: str) -> None:
        store()
        store(retries=1)
        known = editor.get(TEA)["ETag"]
        assert editor.post(f"{TEA}/versions/2/make-live", If_Match=known).status_code == 200
        assert read_type(editor.post(f"{TEA}/{action}", If_Match=known)) == (412, "flow-changed")
        flow = Flow.objects.get()
        assert (flow.live_version and flow.live_version.number, flow.is_archived) == (2, False)
        assert editor.post(f"{TEA}/{action}", If_Match=editor.get(TEA)["ETag"]).status_code == 200

    def test_a_script_that_read_an_earlier_version_overwrites_nothing(self, editor: Script) -> None:
        known = editor.post("flows", make_document())["ETag"]
        assert known == editor.get(TEA)["ETag"]
        other = editor.put(TEA, make_document(max_retries=1), If_Match=known)
        for method, body in (("PUT", make_document(max_retries=2)), ("DELETE", None)):
            late = editor.ask(method, TEA, body, If_Match=known)
            assert read_type(late) == (412, "flow-changed")
            assert late["ETag"] == other["ETag"] == editor.get(TEA)["ETag"] != known
        assert read_json(editor.put(TEA, make_document(max_retries=2), If_Match=other["ETag"]))["made_version"] == 3
        assert editor.ask("DELETE", TEA, If_Match=editor.get(TEA)["ETag"]).status_code == 204

    @pytest.mark.parametrize(("header", "status"), [("*", 200), ('"a", "b"', 412), ("no-quotes", 400), ("", 400)])
    def test_conditions_of_every_kind_are_understood(self, editor: Script, header: str, status: int) -> None:
        # There is nothing yet that a condition could name: a flow that is gone doesn't come back by one.
        assert editor.put(TEA, make_document(), If_Match=header).status_code == (400 if status == 400 else 412)
        assert not Flow.objects.exists()
        digest = store().digest
        assert editor.put(TEA, make_document(), If_Match=header).status_code == status
        # The digest of the latest version will do.
        for retries, expected in ((1, 200), (2, 412)):
            answer = editor.put(TEA, make_document(max_retries=retries), If_Match=f'"{digest}"')
            assert answer.status_code == expected


class TestNotSentTwice:
    @pytest.mark.parametrize("address", [TEA, f"{TEA}/versions/1?format=yaml", f"{TEA}/settings"])
    def test_who_has_it_already_gets_no_body(self, viewer: Script, address: str) -> None:
        store()
        tag = viewer.get(address)["ETag"]
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            for method in ("GET", "HEAD"):
                answer = viewer.ask(method, address, If_None_Match=known)
                assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", tag), known
                assert answer["Cache-Control"] == "private, no-store" and "RateLimit" in answer
        for unknown in ('"other"', "no-tag", ""):
            assert viewer.get(address, If_None_Match=unknown).status_code == 200

    def test_every_answer_has_a_tag_of_its_own(self, editor: Script) -> None:
        store()
        version = f"{TEA}/versions/1"
        answers = [editor.get(TEA), editor.get(version), editor.get(version, Accept="application/yaml")]
        store(retries=1)
        answers.append(editor.get(TEA))
        assert editor.get(version)["ETag"] == answers[1]["ETag"]
        editor.post(f"{TEA}/versions/2/make-live")
        # Another version is live; the first one no longer is.
        answers += [editor.get(TEA), editor.get(version)]
        assert editor.get(version, Accept="application/yaml")["ETag"] == answers[2]["ETag"]
        assert len({answer["ETag"] for answer in answers}) == len({answer.content for answer in answers}) == 6
