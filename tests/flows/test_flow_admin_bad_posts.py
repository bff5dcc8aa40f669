"""Whatever is posted to the flow editor, by hand or by two people at once: an answer, no crash, nothing lost."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.test import Client

from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from tests.engine.builders import TEXT_SCHEMA, make_flow, make_step
from tests.flows.editor_page import EditorPage, fill_new_flow, open_flow

pytestmark = pytest.mark.django_db

AUDITS = [{"name": "One", "rule": "true"}]


def rows() -> list[Any]:
    """All that a flow is made of, to compare before and after."""
    kinds = (Flow, StepDefinition, AuditRule, FlowVersion)
    return [row for kind in kinds for row in kind._default_manager.order_by("pk").values()]


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    return open_flow(editor, make_step(1, audits=AUDITS), make_step(2))


def refuse(page: EditorPage) -> str:
    """Post the page; it must come back without a change to anything. Gives its text."""
    before = rows()
    page.save_in_vain()
    assert rows() == before
    return page.text


@pytest.mark.parametrize("formset", ["steps", "steps-0-audits"])
def test_a_page_without_its_management_form_is_refused(opened: EditorPage, formset: str) -> None:
    for name in ("TOTAL_FORMS", "INITIAL_FORMS"):
        del opened.fields[f"{formset}-{name}"]
    assert "The page arrived incomplete" in refuse(opened)


@pytest.mark.parametrize("text", ["-1", "-999999", "abc", "", "99999999999999999999", "1.5", "²"])
def test_a_position_that_is_none_is_refused(opened: EditorPage, text: str) -> None:
    opened.fill("steps-0-", position=text)
    refuse(opened)


@pytest.mark.parametrize("name", ["TOTAL_FORMS", "INITIAL_FORMS"])
@pytest.mark.parametrize("text", ["-1", "abc", "", "99999999999999999999", "1000000"])
def test_counts_that_cannot_be_never_change_anything(opened: EditorPage, name: str, text: str) -> None:
    opened.fields[f"steps-{name}"] = text
    before = rows()
    response = opened.post()
    if response.status_code == 302:
        # The number of stored rows is known without the opened.
        assert name == "INITIAL_FORMS"
    else:
        assert response.status_code == 200
    assert rows() == before


def test_more_steps_than_a_flow_may_have_are_refused(opened: EditorPage) -> None:
    for number in range(3, 52):
        opened.add_step(name=f"Step {number}", compute="{}")
    assert "A flow has at most 50 steps" in refuse(opened)


def test_more_audits_than_a_step_may_have_are_refused(opened: EditorPage) -> None:
    for number in range(2, 52):
        opened.add_audit("steps-0-", name=f"Audit {number}")
    assert "A step has at most 50 audits" in refuse(opened)


def test_positions_that_repeat_keep_the_order_of_the_page(opened: EditorPage) -> None:
    opened.add_step(name="Third", compute="{}", tool_name="")
    for step in ("steps-0-", "steps-1-", "steps-2-"):
        opened.fill(step, position=7)
    opened.save()
    assert [step.name for step in StepDefinition.objects.all()] == ["Step 1", "Step 2", "Third"]


def test_a_step_of_another_flow_cannot_be_taken(opened: EditorPage, editor: Client) -> None:
    other = load_flow(document={**make_flow().to_document(), "name": "other"}).flow
    step = other.steps.get()
    prefix = opened.add_step(name="Stolen", compute="{}")
    opened.fill(prefix, id=step.pk)
    assert "no part of the flow" in refuse(opened)


def test_an_audit_of_another_flow_cannot_be_taken_or_deleted(opened: EditorPage, editor: Client) -> None:
    document = make_flow(make_step(audits=AUDITS)).to_document()
    load_flow(document={**document, "name": "other"})
    audit = AuditRule.objects.get(step__flow__name="other")
    prefix = opened.add_audit("steps-1-", name="Stolen")
    opened.fill(prefix, id=audit.pk)
    assert "no part of the flow" in refuse(opened)
    opened.fill(prefix, DELETE="on")
    opened.save()
    assert AuditRule.objects.filter(pk=audit.pk).exists()


def test_a_row_that_is_named_twice_is_refused(opened: EditorPage) -> None:
    prefix = opened.add_step(name="Twin", compute="{}")
    opened.fill(prefix, id=opened.fields["steps-0-id"])
    assert "names one step or audit twice" in refuse(opened)


def test_an_audit_that_claims_another_parent_is_refused(opened: EditorPage) -> None:
    opened.fields["steps-0-audits-0-step"] = opened.fields["steps-1-id"]
    refuse(opened)


def test_a_choice_that_there_is_not_is_refused(opened: EditorPage) -> None:
    opened.fill("steps-0-", issue_severity_filter="fatal")
    assert "fatal is not one of the available choices" in refuse(opened)


def test_too_many_fields_get_an_error_page(opened: EditorPage) -> None:
    opened.fields.update({f"x{number}": "" for number in range(10_001)})
    before = rows()
    answer = opened.post()
    assert answer.status_code == 413
    assert "The form has more than 10,000 fields, the most it may have." in answer.content.decode()
    assert rows() == before


@pytest.mark.parametrize(("size", "words"), [(66_000, "64 KB"), (300_000, "Make it smaller.")])
def test_a_schema_that_is_too_large_is_refused_in_one_sentence(opened: EditorPage, size: int, words: str) -> None:
    opened.fill("steps-0-", output_schema={**TEXT_SCHEMA, "description": "x" * size})
    refuse(opened)
    (sentence,) = opened.errors["steps-0-output_schema"]
    assert words in sentence


@pytest.mark.parametrize("field", ["compute", "pass_expression", "audits-0-rule", "audits-0-message"])
def test_an_expression_that_is_too_long_is_refused_in_one_sentence(opened: EditorPage, field: str) -> None:
    opened.fill("steps-0-", **{field: "1" * 4001})
    refuse(opened)
    (sentence,) = opened.errors[f"steps-0-{field}"]
    assert "at most 4000 characters" in sentence


@pytest.mark.parametrize("field", ["title", "steps-0-name", "steps-0-system_message", "steps-0-audits-0-rule", "note"])
def test_characters_that_cannot_be_stored_are_refused(opened: EditorPage, field: str) -> None:
    opened.fill(**{field: "a\0b"})
    refuse(opened)
    assert "Null characters are not allowed." in opened.errors[field]


def test_a_lone_half_of_a_character_never_reaches_the_database(opened: EditorPage, editor: Client) -> None:
    opened.fill("steps-0-", system_message="HALF", output_schema='{"title": "\\ud800"}')
    refuse(opened)
    assert "can't be stored" in opened.errors["steps-0-output_schema"][0]
    opened.fill("steps-0-", output_schema=TEXT_SCHEMA)
    # What is no UTF-8 is read as the sign for that.
    body = urlencode({**opened.fields, "_save": ""}).replace("HALF", "%ED%A0%80")
    answer = editor.generic("POST", opened.url, body, content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 302
    assert set(StepDefinition.objects.get(name="Step 1").system_message) == {"\N{REPLACEMENT CHARACTER}"}


@pytest.mark.parametrize(
    "query", ["_to_field=", "_to_field=name", "_to_field=nonsense", "_popup=1", "_changelist_filters=%00"]
)
def test_addresses_that_the_admin_makes_for_itself_can_be_written_by_hand(
    opened: EditorPage, editor: Client, query: str
) -> None:
    for address in (opened.url, "/admin/flows/flow/add/", opened.url.replace("/change/", "/delete/")):
        assert editor.get(f"{address}?{query}").status_code in {200, 400}


@pytest.mark.parametrize("key", ["abc", "0", "9" * 30, "_00", "\0", "1.5", "-1"])
def test_a_flow_that_there_is_not_leads_away(opened: EditorPage, editor: Client, key: str) -> None:
    before = rows()
    for page in ("change", "delete", "history"):
        url = f"/admin/flows/flow/{quote(key)}/{page}/"
        answer = editor.get(url, follow=True)
        assert {str(message) for message in answer.context["messages"]} == {
            "There is no such flow. Perhaps somebody deleted it."
        }
        assert editor.post(url, {**opened.fields, "_save": ""}).status_code in {200, 302}
    assert rows() == before


def test_markup_that_was_typed_is_shown_as_text(editor: Client) -> None:
    page = fill_new_flow(editor)
    evil = "<script>alert(1)</script>"
    page.fill(title=evil, description=f"</textarea>{evil}")
    page.fill("steps-0-", name=evil, compute=f"'</textarea>{evil}")
    page.fill("steps-0-audits-0-", name=evil, rule=evil)
    content = page.post().content.decode()
    assert evil not in content
    assert "&lt;script&gt;" in content


@pytest.mark.django_db(transaction=True)
def test_a_post_to_a_page_that_only_shows_gets_the_page(editor: Client) -> None:
    opened = open_flow(editor)
    assert editor.post(opened.url.replace("/change/", "/history/")).status_code == 200
