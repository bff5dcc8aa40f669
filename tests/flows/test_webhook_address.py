"""The address that is told when runs of a flow end, in the flow editor."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils.html import escape

from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from flows.webhook_secret import WebhookSigner
from tests.engine.builders import make_flow
from tests.flows.editor_page import EditorPage, open_flow

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

URL = "https://hooks.example.com/toolflow?key=1"


def test_it_is_stored_and_makes_no_version(editor: Client) -> None:
    page = open_flow(editor)
    assert "Webhook" in page.text and "Webhook 1 set" not in page.text
    page.fill(webhook_url=f" {URL} ")
    assert page.save() == ["Saved. The definition is still that of version 1, which is live: new runs use it."]
    assert Flow.objects.get().webhook_url == URL
    assert FlowVersion.objects.count() == 1
    assert "Webhook 1 set" in page.text
    page.fill(webhook_url="")
    page.save()
    assert Flow.objects.get().webhook_url == ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("hooks.example.com", "The address must begin with https:// or http://"),
        ("https://user:secret@hooks.example.com/", "must not hold a user name or a password"),
        ("https://hooks.example.com:25/", "The port 25 is not one for webhooks"),
        ("http://hooks.example.com/", "Plain http:// is only for hosts and networks that TOOLFLOW_WEBHOOK_ALLOW names"),
        ("https://169.254.169.254/", "“169.254.169.254” leads to an address that is not one of the internet"),
        ("https://127.1/", "“127.1” is not a valid host; an IPv4 address has four decimal numbers"),
    ],
)
def test_what_can_not_be_told_anything_is_refused_beside_the_field(editor: Client, url: str, words: str) -> None:
    page = open_flow(editor)
    page.fill(webhook_url=url)
    errors = page.save_in_vain()
    assert any(words in message for message in errors["webhook_url"]), errors
    assert Flow.objects.get().webhook_url == ""


def test_an_address_that_the_settings_rule_out_by_now_may_stay(editor: Client) -> None:
    url = open_flow(editor).url
    Flow.objects.update(webhook_url="http://receiver:8080/")
    page = EditorPage(editor, url)
    page.fill(max_runs_in_flight=3)
    page.save()
    assert Flow.objects.get().max_runs_in_flight == 3


def test_the_log_tells_whose_it_is_and_no_more(editor: Client) -> None:
    page = open_flow(editor)
    page.fill(webhook_url=URL)
    page.save()
    (message,) = LogEntry.objects.values_list("change_message", flat=True)
    assert message == "Changed limits: Webhook address none → https://hooks.example.com/…."


@pytest.mark.parametrize(("codename", "is_shown"), [("view_run", False), ("add_run", True)])
@pytest.mark.parametrize("flows", ["view_flow", "change_flow"])
def test_only_who_may_start_runs_is_shown_it(editor: Client, flows: str, codename: str, is_shown: bool) -> None:
    url = open_flow(editor).url
    Flow.objects.update(webhook_url=URL)
    user = User.objects.create_user("vera", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=[flows, codename]))
    browser = Client()
    browser.force_login(user)
    page = browser.get(url).content.decode()
    assert ("hooks.example.com" in page) == is_shown
    assert "Budget of all runs" in page


def test_who_is_not_shown_it_leaves_it_as_it_is(editor: Client) -> None:
    url = open_flow(editor).url
    Flow.objects.update(webhook_url=URL)
    user = User.objects.create_user("vera", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="change_flow"))
    browser = Client()
    browser.force_login(user)
    page = EditorPage(browser, url)
    page.fill(max_runs_in_flight=3)
    page.fields["webhook_url"] = "https://example.com/other"
    page.save()
    flow = Flow.objects.get()
    assert (flow.webhook_url, flow.max_runs_in_flight) == (URL, 3)


def test_only_who_may_change_the_flow_is_shown_the_secret_of_its_address(editor: Client) -> None:
    url = open_flow(editor).url
    other = load_flow(document=make_flow(title="Other").to_document() | {"name": "other"}).flow
    secret = WebhookSigner.of_flow(Flow.objects.get(name="example").pk).secret
    shown = editor.get(url).content.decode()
    assert f'<code id="webhook-secret">{escape(secret)}</code>' in shown and 'data-copies="webhook-secret"' in shown
    assert escape(WebhookSigner.of_flow(other.pk).secret) not in shown
    assert "webhook-secret" not in editor.get("/admin/flows/flow/add/").content.decode()
    user = User.objects.create_user("vera", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_flow", "add_run"]))
    browser = Client()
    browser.force_login(user)
    read = browser.get(url).content.decode()
    assert "Webhook address" in read and "whsec_" not in read


def test_the_secret_is_written_to_no_log_and_no_version(editor: Client) -> None:
    page = open_flow(editor)
    page.fill(webhook_url=URL)
    page.save()
    rows = [*LogEntry.objects.values_list("change_message", flat=True), *map(str, FlowVersion.objects.values("spec"))]
    assert rows and not any("whsec_" in row for row in rows)


def test_files_neither_hold_it_nor_change_it() -> None:
    version = load_flow(document=make_flow().to_document())
    Flow.objects.update(webhook_url=URL)
    load_flow(document=make_flow(description="New.").to_document())
    assert Flow.objects.get().webhook_url == URL
    assert URL not in str(FlowVersion.objects.latest("number").spec) and version.number == 1
