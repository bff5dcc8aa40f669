"""The webhook address of a flow and its secret, in the flow editor."""

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

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/toolflow?key=1"


@pytest.fixture
def flow_page(editor: Client) -> EditorPage:
    return open_flow(editor)


def sign_in(*permissions: str) -> Client:
    user = User.objects.create_user("vera", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser = Client()
    browser.force_login(user)
    return browser


def test_it_is_stored_makes_no_version_and_is_logged_without_its_path(flow_page: EditorPage, editor: Client) -> None:
    page = flow_page
    page.fill(webhook_url=f" {URL} ")
    page.save()
    assert Flow.objects.get().webhook_url == URL
    assert "Webhook 1 set" in page.text
    (message,) = LogEntry.objects.values_list("change_message", flat=True)
    assert "https://hooks.example.com/…" in message and "whsec_" not in message
    # Files neither hold it nor change it.
    load_flow(document=make_flow(description="New.").to_document())
    assert Flow.objects.get().webhook_url == URL
    documents = str(list(FlowVersion.objects.values("spec")))
    assert URL not in documents and "whsec_" not in documents
    page = EditorPage(editor, page.url)
    page.fill(webhook_url="")
    page.save()
    assert Flow.objects.get().webhook_url == ""


@pytest.mark.parametrize("url", ["hooks.example.com", "http://hooks.example.com/", "https://169.254.169.254/"])
def test_an_address_that_nothing_can_be_sent_to_is_refused_beside_the_field(flow_page: EditorPage, url: str) -> None:
    flow_page.fill(webhook_url=url)
    assert list(flow_page.save_in_vain()) == ["webhook_url"]
    assert Flow.objects.get().webhook_url == ""


def test_an_address_that_the_settings_no_longer_allow_may_stay(flow_page: EditorPage, editor: Client) -> None:
    Flow.objects.update(webhook_url="http://receiver:8080/")
    page = EditorPage(editor, flow_page.url)
    page.fill(max_runs_in_flight=3)
    page.save()
    assert Flow.objects.get().max_runs_in_flight == 3


@pytest.mark.parametrize(("codename", "is_shown"), [("view_run", False), ("add_run", True)])
@pytest.mark.parametrize("flows", ["view_flow", "change_flow"])
def test_only_those_who_may_start_runs_see_the_address(
    flow_page: EditorPage, flows: str, codename: str, is_shown: bool
) -> None:
    Flow.objects.update(webhook_url=URL)
    shown = sign_in(flows, codename).get(flow_page.url).content.decode()
    assert ("hooks.example.com" in shown) == is_shown
    assert "Budget of all runs" in shown


def test_those_who_do_not_see_the_address_leave_it_as_it_is(flow_page: EditorPage) -> None:
    Flow.objects.update(webhook_url=URL)
    page = EditorPage(sign_in("change_flow"), flow_page.url)
    page.fill(max_runs_in_flight=3)
    page.fields["webhook_url"] = "https://example.com/other"
    page.save()
    flow = Flow.objects.get()
    assert (flow.webhook_url, flow.max_runs_in_flight) == (URL, 3)


def test_only_those_who_may_change_the_flow_see_the_secret_of_its_address(
    flow_page: EditorPage, editor: Client
) -> None:
    other = load_flow(document=make_flow(title="Other").to_document() | {"name": "other"}).flow
    own, others = (WebhookSigner.of_flow(flow.pk).secret for flow in (Flow.objects.get(name="example"), other))
    shown = editor.get(flow_page.url).content.decode()
    assert f'<code id="webhook-secret">{escape(own)}</code>' in shown and escape(others) not in shown
    assert "webhook-secret" not in editor.get("/admin/flows/flow/add/").content.decode()
    read = sign_in("view_flow", "add_run").get(flow_page.url).content.decode()
    assert "Webhook address" in read and "whsec_" not in read
