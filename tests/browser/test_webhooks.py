"""The log of webhooks in a browser: found, followed while it is sent again, and no wider than a phone."""

from __future__ import annotations

from datetime import timedelta

from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, expect

from flows.models import Flow
from flows.webhook_secret import WebhookSigner
from runs.models import WebhookDelivery, WebhookTry
from runs.webhooks.tasks import send_due
from tests.browser.test_accessibility import assert_accessible
from tests.browser.widths import assert_fits_in_both_themes
from tests.runs.builders import make_version
from tests.runs.webhooks.deliveries import make_delivery, make_ended_run
from tests.runs.webhooks.receiver import Receiver, Reply, receiver  # noqa: F401  # a fixture


def test_a_failed_one_is_found_and_sent_again(admin_page: Page, receiver: Receiver) -> None:  # noqa: F811
    receiver.reply(Reply(410, body=b"no longer here"), Reply(200, body=b"welcome back"))
    delivery = make_delivery(receiver.url())
    send_due()
    admin_page.goto("/webhooks/")
    admin_page.get_by_role("navigation", name="State").get_by_role("link", name="Not delivered").click()
    admin_page.get_by_role("link", name="Run failed").click()
    expect(admin_page.get_by_text("The receiver answered 410 Gone.")).to_be_visible()
    expect(admin_page.get_by_text("no longer here")).to_be_visible()
    admin_page.get_by_role("button", name="Send again").click()
    expect(admin_page.get_by_text("It is being sent again.")).to_be_visible()
    expect(admin_page.get_by_role("button", name="Send now")).to_be_visible()

    # A worker comes to it; the page that is open follows.
    send_due()
    expect(admin_page.get_by_text("welcome back")).to_be_visible()
    expect(admin_page.get_by_role("heading", level=1)).to_contain_text("Delivered")
    assert [one.headers["webhook-id"] for one in receiver.received] == [delivery.message_id] * 2


def test_the_secret_of_a_flow_is_copied_where_its_address_is_set(admin_page: Page) -> None:
    flow = make_version().flow
    Flow.objects.update(webhook_url="https://hooks.example.com/")
    admin_page.goto(reverse("admin:flows_flow_change", args=[flow.pk]))
    expect(admin_page.locator("#webhook-secret")).to_have_text(WebhookSigner.of_flow(flow.pk).secret)
    admin_page.get_by_role("button", name="Copy the secret").click()
    expect(admin_page.get_by_role("button", name="Copy the secret")).to_have_attribute("data-told", "Copied")
    assert_accessible(admin_page)
    assert_fits_in_both_themes(admin_page)


def test_its_pages_fit_a_phone(admin_page: Page) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 844})
    admin_page.goto("/webhooks/")
    assert_fits_in_both_themes(admin_page)
    run = make_ended_run(input={"topic": "tea" * 300})
    delivery = WebhookDelivery.objects.create(
        run=run, event="run.failed", url="https://hooks.example.com/" + "x" * 800, host="h" * 200, try_count=1,
        last_status=500, next_try_at=timezone.now() + timedelta(hours=1),
    )  # fmt: skip
    now = timezone.now()
    WebhookTry.objects.create(
        delivery=delivery, number=1, started_at=now, ended_at=now, status=500, signature="v1," + "s" * 44,
        problem="The receiver answered 500 Internal Server Error.", response="y" * 1_000,
    )  # fmt: skip
    for address in (
        "/webhooks/",
        f"/webhooks/{delivery.pk}/",
        "/webhooks/?state=delivered",
        "/webhooks/?state=" + "z" * 90,
    ):
        admin_page.goto(address)
        assert_fits_in_both_themes(admin_page)
