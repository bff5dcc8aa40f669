"""Whatever is posted to the flow editor: an answer, a sentence, and nothing stored that could not run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.models import Flow, FlowVersion
from flows.publishing import publish_flow
from tests.conftest import IS_LONG
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import ADD_URL, CHECK_URL, EditorPage, open_flow, read_rows
from tests.flows.loading import load_flow

pytestmark = pytest.mark.django_db

AUDITS = [{"name": "One", "rule": "true"}, {"name": "Two", "rule": "output.text != ''"}]
TEXTS = [
    *(
        "",
        " ",
        "abc",
        "null",
        "\0",
        "a\0b",
        "\ud800",
        "😀",
        "\u202e",
        "<b>&amp;</b>",
        "{}",
        "{",
        '{"a": NaN}',
        "python:x",
    ),
    *('{"a": "\\ud800"}', "[" * 5000, '{"a":' * 5000, "steps[0]", "(" * 3000, "x" * 4001, "'" + "é" * 4000, "output."),
    *('{"type": "object", "$ref": "#"}', '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "example"),
]
NUMBERS = [0, -1, 1, 2.5, 50, 101, 10**18, 10**400, 1e308, True, None]
values = st.recursive(
    st.sampled_from(TEXTS + NUMBERS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "name", "", "/", "~"]), inner),
    max_leaves=4,
)
NAMES = sorted({*FlowSpec.model_fields, *StepSpec.model_fields, *AuditSpec.model_fields, "", "/", "~0", "colour"})


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    """The page of a flow with two steps; there is another flow beside it."""
    load_flow({**make_flow(make_step(audits=AUDITS)).to_document(), "name": "other"})
    return open_flow(editor, make_step(1, audits=AUDITS), make_step(2))


@pytest.mark.parametrize("is_new", [False, True])
def test_any_values_in_any_fields_are_checked_and_then_saved_or_refused(
    opened: EditorPage, editor: Client, is_new: bool
) -> None:
    original, before = json.dumps(opened.document), read_rows()
    if is_new:
        opened = EditorPage(editor)

    @settings(
        max_examples=40 if IS_LONG else 12,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(st.lists(st.tuples(st.sampled_from(["flow", "step", "audit"]), st.sampled_from(NAMES), values), max_size=5))
    def post(changes: list[tuple[str, str, Any]]) -> None:
        opened.document = json.loads(original)
        parts = {"flow": opened.document, "step": opened.steps[0], "audit": opened.steps[0]["audits"][1]}
        for part, name, value in changes:
            parts[part][name] = value
        with transaction.atomic():
            question = {"flow": opened.data["flow"], "document": opened.document, "base_version": 1}
            checked = editor.post(CHECK_URL, json.dumps(question), content_type="application/json")
            assert checked.status_code in {200, 400}
            # The draft of it can be opened.
            assert editor.get(opened.url).status_code == 200
            answer = opened.post()
            if answer.status_code == 200:
                # Saved: then that is the latest version, and runs.
                assert checked.json()["problems"] == []
                flow = Flow.objects.get(pk=answer.json()["url"].split("/")[-3])
                latest = flow.versions.latest("number")
                assert publish_flow(spec=latest.flow_spec, flow=flow) == latest
            else:
                assert answer.status_code == (422 if checked.status_code == 200 else 400)
                assert read_rows(with_drafts=False) == before[:-1]
                reported = answer.json()["problems"]
                assert reported and all(one["message"] for one in reported)
                # What keeps a new name from being used is found out by saving.
                assert checked.status_code == 400 or checked.json()["problems"] in (reported, [])
            transaction.set_rollback(True)

    post()


DEEP = '{"name":' * 100_000


def test_what_is_too_large_is_refused(opened: EditorPage, editor: Client) -> None:
    before = read_rows()
    for size, status in ((1_100_000, 400), (10_000_000, 413)):
        opened.document["description"] = "x" * size
        assert opened.post().status_code == status
    question = {"flow": opened.data["flow"], "document": opened.document}
    assert editor.post(CHECK_URL, question, content_type="application/json").status_code == 400
    assert opened.post(document="", text="x" * 1_100_000).status_code == 422
    fields = {f"x{number}": "" for number in range(10_001)}
    assert (opened.post(**fields).status_code, read_rows()) == (413, before)


@pytest.mark.parametrize(
    "changes",
    [
        *({"flow": flow} for flow in ("1", True, -1, 2**63, 99)),
        *({"base_version": number} for number in ("1", 2**31)),
        *({"document": document} for document in (None, [])),
    ],
)
def test_questions_that_the_editor_never_asks_are_refused(opened: EditorPage, changes: dict[str, Any]) -> None:
    question = {"flow": opened.data["flow"], "document": {"name": "x"}, "base_version": 1, **changes}
    before = read_rows()
    answer = opened.client.post(CHECK_URL, question, content_type="application/json")
    assert (answer.status_code, answer.json()["error"][-1], read_rows()) == (400, ".", before)


@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded; charset=utf-16", "multipart/form-data; boundary=x", "application/json", ""],
)
def test_any_bytes_are_refused(opened: EditorPage, editor: Client, content_type: str) -> None:
    before = read_rows()
    for body in (b"", b"\xff\x00", b"--x", b'--x\r\nContent-Disposition: form-data; name="document"\r\n\r\n{}'):
        for url in (opened.url, ADD_URL, CHECK_URL):
            answer = editor.generic("POST", url, body, content_type=content_type)
            assert (answer.status_code in {400, 422}, read_rows()) == (True, before)
    assert editor.get(CHECK_URL).status_code == 405


def test_steps_without_end_are_refused(opened: EditorPage) -> None:
    opened.document["steps"] = [{"name": f"Step {number}", "compute": "{}"} for number in range(51)]
    assert list(opened.be_refused()) == ["/steps"]
    assert FlowVersion.objects.count() == 2
