"""The page of the flow editor: what it asks and in which words, and that it stays small and quick for a large flow."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.forms.renderers import DjangoTemplates
from django.http import QueryDict
from django.test import Client

from flows.admin.large_pages import PostedPage
from flows.field_renderer import FieldRenderer
from flows.forms import AuditForm, FlowForm, StepForm
from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from tests.engine.builders import TEXT_SCHEMA, make_flow, make_step
from tests.flows.editor_page import EditorPage, open_flow
from tests.flows.large_flow import make_document

pytestmark = pytest.mark.django_db

LARGEST_PAGE = 1_050_000
"""Bytes."""

EVIL = "<script>\"'&</textarea>\r\n"


class TagReader(HTMLParser):
    """The tags of a page with their attributes, and the ids that there are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def list_values(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(attribute))]


def read_page(client: Client, page: EditorPage) -> str:
    return client.get(page.url).content.decode()


# Size and speed


@pytest.fixture
def large(editor: Client) -> EditorPage:
    """The page of a flow of twenty steps with ten audits each."""
    flow = load_flow(document=make_document()).flow
    return EditorPage(editor, f"/admin/flows/flow/{flow.pk}/change/")


def test_the_page_of_a_large_flow_is_small(editor: Client, large: EditorPage) -> None:
    assert len(editor.get(large.url).content) < LARGEST_PAGE


def test_opening_a_large_flow_takes_no_more_queries_than_a_small_one(
    editor: Client, large: EditorPage, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(10):
        editor.get(large.url)


def test_a_large_flow_is_saved_with_one_write_a_row(large: EditorPage, django_assert_max_num_queries: Any) -> None:
    large.fill("steps-19-audits-9-", rule="output.total > 0.0")
    rows = StepDefinition.objects.count() + AuditRule.objects.count()
    with django_assert_max_num_queries(rows + 40):
        assert large.post().status_code == 302
    assert FlowVersion.objects.count() == 2


# Fields


@pytest.mark.parametrize("form", [FlowForm, StepForm, AuditForm])
@pytest.mark.parametrize("value", ["", EVIL, "\n\nText", None])
def test_fields_are_drawn_as_their_templates_would(form: Any, value: str | None) -> None:
    drawn, expected = form(), form()
    expected.renderer = DjangoTemplates()
    for name in drawn.fields:
        drawn.initial[name] = expected.initial[name] = value
        assert read_field(str(drawn[name])) == read_field(str(expected[name])), name


def read_field(markup: str) -> tuple[Any, str]:
    """The tags and the text of a field; what only lays the markup out does not count."""
    reader = TagReader(markup)
    text = re.sub(r"\s*\n\s*(?=<)", "", markup.split(">", 1)[1]) if "<select" in markup else markup.split(">", 1)[1]
    return reader.tags, text


def test_widgets_that_are_not_drawn_here_get_their_template() -> None:
    from django import forms

    name = "django/forms/widgets/radio.html"
    context = forms.RadioSelect(choices=[("a", "A")]).get_context("choice", "a", {"id": "x"})
    assert FieldRenderer().render(name, context) == DjangoTemplates().render(name, context)


def test_a_text_is_as_high_as_it_is_long_within_bounds() -> None:
    for lines, rows in ((0, 3), (5, 5), (100, 24)):
        form = StepForm(initial={"system_message": "\n".join(["line"] * lines)})
        assert f'rows="{rows}"' in str(form["system_message"])


def test_what_is_too_long_is_not_cut_off_by_the_browser(editor: Client) -> None:
    page = read_page(editor, open_flow(editor))
    assert [attrs for tag, attrs in TagReader(page).tags if tag == "textarea" and "maxlength" in attrs] == []


def test_a_description_of_several_lines_comes_back_as_it_was(editor: Client) -> None:
    page = open_flow(editor, make_step(description="Reads it.\nThen says so."))
    assert page.save()[0].startswith("Nothing changed since version 1")


def test_every_field_is_told_what_its_help_says(editor: Client) -> None:
    audits = [{"name": f"Audit {number}", "rule": "true"} for number in range(3)]
    reader = TagReader(read_page(editor, open_flow(editor, make_step(1, audits=audits), make_step(2))))
    ids = reader.list_values("id")
    assert sorted({one for one in ids if ids.count(one) > 1}) == []
    for described in reader.list_values("aria-describedby"):
        assert set(described.split()) <= set(ids)
    for labelled in reader.list_values("for"):
        assert labelled in ids


def test_help_of_audits_is_shown_once_a_step(editor: Client) -> None:
    audits = [{"name": f"Audit {number}", "rule": "true"} for number in range(5)]
    page = read_page(editor, open_flow(editor, make_step(1, audits=audits)))
    # In the first audit, in the template of new ones, and where fields refer to.
    assert page.count("Issues of this severity or above fail the attempt. Never: the audit only warns.") == 3


def test_folded_fields_say_how_many_are_set(editor: Client) -> None:
    audits = [{"name": "One", "rule": "false", "message": "'No.'", "path": "'/text'"}]
    words = open_flow(editor, make_step(1, model="gpt-5", audits=audits)).words
    assert "Message, suggestions and path 2 set" in words
    assert "Model and input sanitizer 1 set" in words


def test_the_head_of_a_card_counts_its_audits_and_problems(editor: Client) -> None:
    audits = [{"name": "One", "rule": "true"}]
    page = open_flow(editor, make_step(1, audits=audits))
    assert "1 audit" in page.words
    page.fill("steps-0-", max_retries=-1)
    page.fill("steps-0-audits-0-", rule="nonsense(")
    page.save_in_vain()
    assert "2 problems" in page.words


def test_a_step_without_a_model_is_marked(editor: Client) -> None:
    page = open_flow(editor, make_step(1), make_step(2, compute="{'text': ''}"))
    cards = [
        attrs for _, attrs in TagReader(read_page(editor, page)).tags if "step" in (attrs.get("class") or "").split()
    ]
    assert ["local" in (card["class"] or "").split() for card in cards] == [False, True, False]


# New cards that are deleted again


def test_a_new_step_that_was_deleted_is_not_saved_whatever_it_lacks(editor: Client) -> None:
    page = open_flow(editor)
    prefix = page.add_step(name="", output_schema="{")
    page.fields[f"{prefix}DELETE"] = "on"
    page.fill("steps-0-", max_retries=1)
    page.save()
    assert [row.name for row in StepDefinition.objects.all()] == ["Step 1"]


def test_a_new_audit_that_was_deleted_comes_back_as_deleted_when_saving_fails(editor: Client) -> None:
    page = open_flow(editor)
    prefix = page.add_audit("steps-0-", name="Gone")
    page.fields[f"{prefix}DELETE"] = "on"
    page.fill("steps-0-", max_retries=-1)
    assert list(page.save_in_vain()) == ["steps-0-max_retries"]
    assert page.fields[f"{prefix}DELETE"] == "on"
    assert page.fields[f"{prefix}name"] == "Gone"
    page.fill("steps-0-", max_retries=0)
    page.save()
    assert not AuditRule.objects.exists()


@pytest.mark.parametrize("is_stored", [True, False])
def test_mistakes_are_shown_also_beside_something_that_is_deleted(editor: Client, is_stored: bool) -> None:
    audits = [{"name": "One", "rule": "true"}]
    page = open_flow(editor, make_step(1, audits=audits), make_step(2), make_step(3))
    prefix = "steps-1-" if is_stored else page.add_step(name="New", compute="{}")
    page.fields[f"{prefix}DELETE"] = "on"
    page.fill("steps-0-audits-0-", rule="nonsense(")
    page.fill("steps-2-", include_results="7", max_retries=-1)
    errors = page.save_in_vain()
    assert set(errors) == {"steps-0-audits-0-rule", "steps-2-include_results", "steps-2-max_retries"}
    assert FlowVersion.objects.count() == 1


# Who may only look


def test_whoever_may_only_see_flows_reads_all_values_and_gets_no_tools(client: Client) -> None:
    viewer = User.objects.create_user("vera", password="secret", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_flow"))
    client.force_login(viewer)
    audits = [{"name": "Not empty", "rule": "output.text != ''", "severity": "high"}]
    step = make_step(system_message="Be brief.\nBe kind.", output_schema=TEXT_SCHEMA, audits=audits, time_limit=60)
    flow = load_flow(document=make_flow(step, input_schema={"type": "object"}).to_document()).flow
    page = client.get(f"/admin/flows/flow/{flow.pk}/change/").content.decode()
    assert "Be brief.\nBe kind." in page
    assert '<pre class="shown code" tabindex="0">output.text != &#x27;&#x27;</pre>' in page
    assert "  &quot;type&quot;: &quot;object&quot;" in page
    assert '<div class="shown">High</div>' in page
    assert '<div class="shown">Yes</div>' in page
    assert '<div class="shown">60</div>' in page
    tags = TagReader(page).tags
    assert [attrs for _, attrs in tags if "data-tool" in attrs or "data-try-step" in attrs] == []
    assert [tag for tag, _ in tags if tag in {"textarea", "select"}] == []
    assert Flow.objects.count() == 1


def test_a_copy_of_a_posted_page_can_be_changed_and_leaves_the_page_alone() -> None:
    page = PostedPage.of(QueryDict("a=1&a=2&b=3"))
    copied = page.copy()
    copied["b"] = "4"
    copied.appendlist("a", "5")
    assert (page.getlist("a"), page["b"]) == (["1", "2"], "3")
    assert (copied.getlist("a"), copied["b"]) == (["1", "2", "5"], "4")
    with pytest.raises(AttributeError):
        page["b"] = "6"
