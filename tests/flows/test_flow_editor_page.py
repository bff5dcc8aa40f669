"""The page of the flow editor: what it says of its parts, and that it stays small and quick for a large flow."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from flows.models import AuditRule, FlowVersion, StepDefinition
from flows.portability import load_flow
from tests.engine.builders import make_step
from tests.flows.editor_page import EditorPage, open_flow
from tests.flows.large_flow import make_document

pytestmark = pytest.mark.django_db

LARGEST_PAGE = 1_100_000
"""Bytes."""

AUDITS = [{"name": f"Audit {number}", "rule": "true"} for number in range(3)]


class TagReader(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def list_values(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(attribute))]


def test_a_large_flow_is_opened_and_saved_with_few_bytes_and_queries(
    editor: Client, django_assert_max_num_queries: Any
) -> None:
    flow = load_flow(document=make_document()).flow
    large = EditorPage(editor, f"/admin/flows/flow/{flow.pk}/change/")
    with django_assert_max_num_queries(10):
        assert len(editor.get(large.url).content) < LARGEST_PAGE
    large.fill("steps-19-audits-9-", rule="output.total > 0.0")
    with django_assert_max_num_queries(StepDefinition.objects.count() + AuditRule.objects.count() + 40):
        assert large.post().status_code == 302
    assert FlowVersion.objects.count() == 2


def test_every_field_is_told_what_its_help_says(editor: Client) -> None:
    page = open_flow(editor, make_step(1, audits=AUDITS), make_step(2))
    reader = TagReader(editor.get(page.url).content.decode())
    ids = reader.list_values("id")
    assert sorted({one for one in ids if ids.count(one) > 1}) == []
    for described in reader.list_values("aria-describedby"):
        assert set(described.split()) <= set(ids)
    assert set(reader.list_values("for")) <= set(ids)
    assert [attrs for tag, attrs in reader.tags if tag == "textarea" and "maxlength" in attrs] == []


def test_heads_of_cards_and_of_folded_fields_count_what_is_in_them(editor: Client) -> None:
    audits = [{"name": "One", "rule": "false", "message": "'No.'", "path": "'/text'"}]
    page = open_flow(editor, make_step(1, model="gpt-5", audits=audits), make_step(2, compute="{'text': ''}"))
    for words in ("Message, suggestions and path 2 set", "Model and input sanitizer 1 set", "1 audit"):
        assert words in page.words
    cards = [
        set((attrs.get("class") or "").split()) for _, attrs in TagReader(editor.get(page.url).content.decode()).tags
    ]
    assert ["local" in card for card in cards if "step" in card] == [False, True, False]
    page.fill("steps-0-", max_retries=-1)
    page.fill("steps-0-audits-0-", rule="nonsense(")
    page.save_in_vain()
    assert "2 problems" in page.words


@pytest.mark.parametrize("is_stored", [True, False])
def test_mistakes_are_shown_also_beside_something_that_is_deleted(editor: Client, is_stored: bool) -> None:
    page = open_flow(editor, make_step(1, audits=AUDITS), make_step(2), make_step(3))
    prefix = "steps-1-" if is_stored else page.add_step(name="New", compute="{}")
    page.fields[f"{prefix}DELETE"] = "on"
    page.fill("steps-0-audits-0-", rule="nonsense(")
    page.fill("steps-2-", include_results="7", max_retries=-1)
    errors = page.save_in_vain()
    assert set(errors) == {"steps-0-audits-0-rule", "steps-2-include_results", "steps-2-max_retries"}
