"""The page of the flow editor: what it holds, that saving it unchanged changes nothing, and how little it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, given, settings

from flows.admin.document_check import read_schema_texts
from flows.engine.errors import SpecError
from flows.engine.json_values import clean_value
from flows.engine.spec import FlowSpec
from flows.flow_file import parse_document
from flows.models import Flow, FlowDraft, FlowVersion
from tests.conftest import IS_LONG
from tests.contract.random_cases import make_case
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import EditorPage, open_flow
from tests.flows.flow_file.test_writing import flows
from tests.flows.loading import load_flow

pytestmark = pytest.mark.django_db

RANDOM_FLOWS = 1_000 if IS_LONG else 20
LARGEST_PAGE = 300_000
"""Bytes."""
MAX_QUERIES = {"page": 12, "check": 10, "save": 25, "list": 6}
"""Of large flows and small ones."""


def make_large() -> dict[str, Any]:
    """A flow as large as they come: 20 steps of 10 audits."""
    audits = [
        {"name": f"Audit {number}", "rule": "output.text != ''", "message": "'It is empty.'"} for number in range(10)
    ]
    steps = [make_step(number, audits=audits, description="x" * 200, system_message="y" * 500) for number in range(20)]
    return {**make_flow(*steps).to_document(), "name": "large"}


def open_stored(client: Client, document: dict[str, Any]) -> EditorPage:
    return EditorPage(client, f"/admin/flows/flow/{load_flow(document).flow_id}/change/")


def save_unchanged(page: EditorPage) -> None:
    """In either form; and nothing is reported to be changed."""
    versions = FlowVersion.objects.count()
    assert (page.check()["problems"], page.check()["is_changed"]) == ([], False)
    assert page.post().status_code == 200
    assert page.post_form().status_code == 302
    assert FlowVersion.objects.count() == versions


def open_unchecked(client: Client, spec: FlowSpec) -> EditorPage:
    """The page of a flow as it is, whether it could be published or not."""
    flow = Flow.objects.create(name=spec.name, title=spec.title or spec.name)
    FlowVersion.objects.create(flow=flow, number=1, spec=spec.to_document(), digest=spec.digest)
    return EditorPage(client, f"/admin/flows/flow/{flow.pk}/change/")


def test_saving_a_random_flow_unchanged_changes_nothing(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.throttle.count_request", lambda *args, **limits: 0)
    opened, saved = 0, 0
    for number in range(RANDOM_FLOWS):
        document = make_case(21, number)["spec"]
        try:
            spec = FlowSpec.from_document({**document, "title": document.get("title") or "Net"})
        except SpecError:
            continue
        if clean_value(spec.to_document()).notes:
            # No flow like it was ever stored.
            continue
        with transaction.atomic():
            page = open_unchecked(editor, spec)
            reported = page.check()
            assert not reported["is_changed"]
            if not reported["problems"]:
                save_unchanged(page)
            opened, saved = opened + 1, saved + (not reported["problems"])
            transaction.set_rollback(True)
    assert opened > RANDOM_FLOWS * 0.7 and saved > RANDOM_FLOWS * 0.2


@settings(
    max_examples=100 if IS_LONG else 15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(spec=flows)
def test_any_flow_is_the_same_on_the_page_and_in_its_text(editor: Client, spec: FlowSpec) -> None:
    with transaction.atomic():
        page = open_unchecked(editor, spec)
        for document in (read_schema_texts(page.document)[0], parse_document(page.fields["text"])):
            assert FlowSpec.from_document(document).digest == spec.digest
        transaction.set_rollback(True)


def test_queries_and_bytes_do_not_grow_with_steps_versions_flows_and_drafts(
    editor: Client, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    counts = []
    # What a process looks up once.
    ContentType.objects.get_for_model(Flow)
    small = open_flow(editor)
    document = make_large()
    with django_assert_max_num_queries(MAX_QUERIES["page"]) as first:
        small.read(editor.get(small.url))
        of_page = len(first)
    for number in range(5):
        large = open_stored(editor, {**document, "description": f"As it was {number}"})
        load_flow({**document, "name": f"flow-{number}"})
        user = User.objects.create_user(f"user-{number}", is_staff=True)
        FlowDraft.objects.create(flow=Flow.objects.get(name="large"), user=user, document=document, base_version=1)
    with django_assert_num_queries(of_page):
        large.read(editor.get(large.url))
    assert len(editor.get(large.url).content) < LARGEST_PAGE
    for page in (small, large):
        page.steps[0]["max_retries"] = 1
        page.check()
        found = {}
        for what, ask in (
            ("check", page.check),
            ("list", lambda: editor.get("/admin/flows/flow/")),
            ("save", page.post),
        ):
            with django_assert_max_num_queries(MAX_QUERIES[what]) as asked:
                ask()
                found[what] = len(asked)
        counts.append(found)
    assert counts[0] == counts[1]
