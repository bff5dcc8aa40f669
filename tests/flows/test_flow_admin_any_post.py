"""Whatever fields and values are posted to the flow editor: an answer, and nothing stored that could not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from flows.publishing import publish_flow
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import ADD_URL, EditorPage, open_flow

pytestmark = pytest.mark.django_db

AUDITS = [{"name": "One", "rule": "true"}, {"name": "Two", "rule": "output.text != ''"}]

NUMBERS = ["", "0", "1", "2", "-1", "7", "50", "51", "61", "1000", "1000001", "9" * 18, "9" * 30, "9" * 5000]
TEXTS = [
    " ", "abc", "on", "null", "true", "1.5", "1e999", "nan", "-Infinity", "²", "\0", "a\0b", "\ud800", "😀", "\u202e",
    "\r\n", "<b>&amp;</b>", "{}", "[]", "{", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 5000, '{"a":' * 5000, "input",
    "steps[0]", "python:x", "steps.map(a, steps.map(b, steps.map(c, c)))", "(" * 3000, "x" * 4001, "'" + "é" * 4000,
    '{"type": "object", "$ref": "#"}', '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "%00",
    "💥" * 600,
]  # fmt: skip
VALUES = st.sampled_from(NUMBERS + TEXTS) | st.text(max_size=20)
MORE_NAMES = [
    "csrfmiddlewaretoken", "_save", "_make_live", "_overwrite", "_saveasnew", "_popup", "_to_field", "_continue",
    "_addanother", "is_archived", "live_version", "steps-__prefix__-name", "steps-empty-audits-0-name",
    "steps-0-audits-0-audits-0-id", "steps-00-id", "steps--1-id", "steps-²-id", "steps-9-id", "steps-2-name",
    "steps-0-audits-9-id", "steps-9-audits-0-id", "steps-1-audits-0-id", "audits-0-id", "steps-MIN_NUM_FORMS", "",
]  # fmt: skip


def read_rows() -> list[Any]:
    """All that flows are made of."""
    kinds = (Flow, StepDefinition, AuditRule, FlowVersion)
    return [list(kind._default_manager.order_by("pk").values()) for kind in kinds]


def check_answer(answer: Any, before: list[Any]) -> None:
    """Saved, and then the rows are those of the latest version; or not, and then nothing is different."""
    if answer.status_code == 302:
        for flow in Flow.objects.filter(versions__isnull=False).distinct():
            latest = flow.versions.latest("number")
            assert publish_flow(flow=flow) == latest
    else:
        assert answer.status_code in {200, 400}
        assert read_rows() == before


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    load_flow(document={**make_flow(make_step(audits=AUDITS)).to_document(), "name": "other"})
    return open_flow(editor, make_step(1, audits=AUDITS), make_step(2))


@st.composite
def changes(draw: Callable[[Any], Any], names: list[str]) -> dict[str, str | None]:
    """Some fields with other values; None takes a field away."""
    wanted = draw(st.lists(st.sampled_from(names), min_size=1, max_size=8))
    return {name: draw(st.none() | VALUES) for name in wanted}


MUCH = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.parametrize("is_new", [False, True])
def test_any_values_in_any_fields_are_saved_or_refused(opened: EditorPage, editor: Client, is_new: bool) -> None:
    fields = {name: value for name, value in opened.fields.items() if not is_new or not name.endswith("-id")}
    foreign = [str(row.pk) for kind in (Flow, StepDefinition, AuditRule) for row in kind.objects.all()]
    before = read_rows()

    @MUCH
    @given(data=st.data())
    def post(data: Any) -> None:
        changed = data.draw(changes([*fields, *MORE_NAMES]))
        keys = [name for name in changed if name.endswith("-id")]
        changed.update({name: data.draw(st.sampled_from(foreign)) for name in keys})
        posted = {name: value for name, value in {**fields, **changed}.items() if value is not None}
        with transaction.atomic():
            check_answer(_post(editor, ADD_URL if is_new else opened.url, posted), before)
            transaction.set_rollback(True)

    post()


def _post(client: Client, url: str, fields: dict[str, str]) -> Any:
    body = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in fields.items())
    return client.generic("POST", url, body, content_type="application/x-www-form-urlencoded")


def _quote(text: str) -> str:
    return quote_from_bytes(text.encode(errors="surrogatepass"), safe="")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=200))
@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-www-form-urlencoded",
        "application/x-www-form-urlencoded; charset=utf-16",
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "application/json",
        "",
    ],
)
def test_any_bytes_are_refused(opened: EditorPage, editor: Client, content_type: str, body: bytes) -> None:
    before = read_rows()
    answer = editor.generic("POST", opened.url, body, content_type=content_type)
    assert answer.status_code in {200, 400}
    assert read_rows() == before


def test_a_multipart_page_that_was_cut_short_is_refused_wherever_it_ends(opened: EditorPage, editor: Client) -> None:
    fields = {**opened.fields, "_save": "", "title": "Changed"}
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    ]
    assert list(fields)[-2:] == ["note", "_save"]
    body = ("".join(parts[:-2]) + "--x").encode()
    before = read_rows()
    for end in [*range(0, len(body), 397), len(body)]:
        cut = body[:end]
        answer = editor.generic("POST", opened.url, cut, content_type="multipart/form-data; boundary=x")
        assert answer.status_code in {200, 400}, end
        assert read_rows() == before, end
