"""Whatever is posted to the flow editor, and by whomever: an answer, and nothing stored that could not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.portability import load_flow
from flows.publishing import publish_flow
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import ADD_URL, EditorPage, fill_new_flow, open_flow

pytestmark = pytest.mark.django_db

AUDITS = [{"name": "One", "rule": "true"}, {"name": "Two", "rule": "output.text != ''"}]

NUMBERS = ["", "0", "1", "2", "-1", "7", "50", "51", "61", "1000", "1000001", "9" * 18, "9" * 30, "9" * 5000]
TEXTS = [
    " ", "abc", "on", "null", "true", "1.5", "1e999", "nan", "-Infinity", "²", "\0", "a\0b", "\ud800", "😀", "\u202e",
    "\r\n", "<b>&amp;</b>", "{}", "[]", "{", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 5000, '{"a":' * 5000, "input",
    "steps[0]", "python:x", "steps.map(a, steps.map(b, steps.map(c, c)))", "(" * 3000, "x" * 4001, "'" + "é" * 4000,
    '{"type": "object", "$ref": "#"}', '{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "%00",
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


@pytest.fixture
def opened(editor: Client) -> EditorPage:
    """The page of a flow with two steps; there is another flow beside it."""
    load_flow(document={**make_flow(make_step(audits=AUDITS)).to_document(), "name": "other"})
    return open_flow(editor, make_step(1, audits=AUDITS), make_step(2))


@st.composite
def changes(draw: Callable[[Any], Any], names: list[str]) -> dict[str, str | None]:
    """Some fields with other values; None takes a field away."""
    wanted = draw(st.lists(st.sampled_from(names), min_size=1, max_size=8))
    return {name: draw(st.none() | VALUES) for name in wanted}


@pytest.mark.parametrize("is_new", [False, True])
def test_any_values_in_any_fields_are_saved_or_refused(opened: EditorPage, editor: Client, is_new: bool) -> None:
    fields = {name: value for name, value in opened.fields.items() if not is_new or not name.endswith("-id")}
    foreign = [str(row.pk) for kind in (Flow, StepDefinition, AuditRule) for row in kind.objects.all()]
    before = read_rows()

    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(data=st.data())
    def post(data: Any) -> None:
        changed = data.draw(changes([*fields, *MORE_NAMES]))
        keys = [name for name in changed if name.endswith("-id")]
        changed.update({name: data.draw(st.sampled_from(foreign)) for name in keys})
        posted = {name: value for name, value in {**fields, **changed}.items() if value is not None}
        with transaction.atomic():
            answer = _post(editor, ADD_URL if is_new else opened.url, posted)
            if answer.status_code == 302:
                # Saved: then the rows are those of the latest version.
                for flow in Flow.objects.filter(versions__isnull=False).distinct():
                    assert publish_flow(flow=flow) == flow.versions.latest("number")
            else:
                assert (answer.status_code in {200, 400}, read_rows()) == (True, before)
            transaction.set_rollback(True)

    post()


def _post(client: Client, url: str, fields: dict[str, str]) -> Any:
    body = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in fields.items())
    return client.generic("POST", url, body, content_type="application/x-www-form-urlencoded")


def _quote(text: str) -> str:
    return quote_from_bytes(text.encode(errors="surrogatepass"), safe="")


@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded; charset=utf-16", "multipart/form-data; boundary=x", "application/json", ""],
)
def test_any_bytes_are_refused(opened: EditorPage, editor: Client, content_type: str) -> None:
    before = read_rows()
    for body in (b"", b"\xff\x00", b"--x", b'--x\r\nContent-Disposition: form-data; name="title"\r\n\r\nTea'):
        answer = editor.generic("POST", opened.url, body, content_type=content_type)
        assert (answer.status_code in {200, 400}, read_rows()) == (True, before)


def test_pages_that_were_made_by_hand_are_refused_and_change_nothing(opened: EditorPage) -> None:
    other = StepDefinition.objects.get(flow__name="other")
    foreign, stored, typed = other.audits.first(), opened.fields["steps-0-id"], dict(opened.fields)
    assert foreign is not None
    before = read_rows()

    def refuse(words: str, **fields: Any) -> None:
        opened.fields = {name: value for name, value in {**typed, **fields}.items() if value is not None}
        opened.save_in_vain()
        assert words in opened.text
        assert read_rows() == before

    refuse("The page arrived incomplete", **{f"steps-{name}_FORMS": None for name in ("TOTAL", "INITIAL")})
    refuse("", **{"steps-0-audits-0-step": typed["steps-1-id"]})
    for step, words in ((other.pk, "not part of the flow"), (stored, "names one step or audit twice")):
        opened.fields = dict(typed)
        prefix = opened.add_step(name="Stolen", compute="{}")
        refuse(words, **opened.fields | {f"{prefix}id": step})
    opened.fields = dict(typed)
    prefix = opened.add_audit("steps-1-", name="Stolen")
    refuse("not part of the flow", **opened.fields | {f"{prefix}id": foreign.pk})
    refuse("The page does not say which", revision="²", **{"steps-0-name": "New"})
    for position in ("-1", "abc", "9" * 20, "²"):
        refuse("", **{"steps-0-position": position})
    opened.fields = dict(typed)
    for number in range(3, 52):
        opened.add_step(name=f"Step {number}", compute="{}")
    refuse("A flow has at most 50 steps", **opened.fields)


def test_too_many_fields_get_an_error_page(opened: EditorPage) -> None:
    opened.fields.update({f"x{number}": "" for number in range(10_001)})
    before = read_rows()
    assert (opened.post().status_code, read_rows()) == (413, before)


@pytest.mark.parametrize("key", ["abc", "9" * 30, "_00", "\0"])
def test_a_flow_that_there_is_not_leads_away(opened: EditorPage, editor: Client, key: str) -> None:
    before = read_rows()
    for page in ("change", "delete", "history"):
        url = f"/admin/flows/flow/{quote(key)}/{page}/"
        answer = editor.get(url, follow=True)
        assert {str(message)[:24] for message in answer.context["messages"]} == {"This flow does not exist"}
        assert editor.post(url, {**opened.fields, "_save": ""}).status_code in {200, 302}
    assert read_rows() == before


class TestPermissions:
    """Beside ``tests/site/test_permissions.py``, which goes through all addresses."""

    @pytest.fixture
    def url(self) -> str:
        """The address of a stored flow's page."""
        step = make_step(system_message="Be brief.\nBe kind.", time_limit=60, audits=AUDITS[1:])
        return f"/admin/flows/flow/{load_flow(document=make_flow(step).to_document()).flow.pk}/change/"

    @staticmethod
    def sign_in(*actions: str) -> Client:
        """A browser of somebody of the staff who has these permissions for flows alone."""
        user = User.objects.create_user("vera", password="secret", is_staff=True)
        user.user_permissions.add(*Permission.objects.filter(codename__in=[f"{action}_flow" for action in actions]))
        client = Client()
        client.force_login(user)
        return client

    def test_who_may_only_see_flows_reads_all_values_and_saves_nothing(self, editor: Client, url: str) -> None:
        page = EditorPage(editor, url)
        page.fill("steps-0-", max_retries=0)
        client = self.sign_in("view")
        content = client.get(url).content.decode()
        for shown in ("Be brief.\nBe kind.", "output.text != &#x27;&#x27;", '<div class="shown">60</div>'):
            assert shown in content
        for field in ("<textarea", "<select", "data-tool", 'name="_save"', 'name="note"', "/archive/", "/delete/"):
            assert field not in content
        for fields in ({**page.fields, "_save": ""}, {**page.fields, "_overwrite": "1"}, {"_saveasnew": "1"}):
            assert client.post(url, fields).status_code == client.post(ADD_URL, fields).status_code == 403
        assert FlowVersion.objects.count() == 1

    def test_who_may_change_flows_saves_them_and_adds_none(self, url: str) -> None:
        client = self.sign_in("change")
        page = EditorPage(client, url)
        page.fill("steps-0-", max_retries=0)
        assert page.save()[0].startswith("Saved as version 2.")
        assert client.get(ADD_URL).status_code == 403

    def test_who_may_add_but_not_change_flows_gets_no_page_that_saves_nothing(self, url: str) -> None:
        client = self.sign_in("add", "view")
        assert client.get(ADD_URL).status_code == client.post(ADD_URL, {}).status_code == 403
        assert "/flow/add/" not in client.get("/admin/flows/flow/").content.decode()

    def test_who_may_add_and_change_flows_adds_one(self) -> None:
        fill_new_flow(self.sign_in("add", "change")).save()
        assert Flow.objects.get().name == "invoice-extraction"
