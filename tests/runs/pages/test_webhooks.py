"""The pages of webhooks: endpoints, deliveries, each with its tries, and what can be sent from them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from runs.models import Run, WebhookDelivery, WebhookEndpoint, WebhookTry
from runs.pages import webhooks
from runs.rollup import count_ended_runs
from runs.webhooks.messages import derive_secret
from runs.webhooks.tasks import SEND_TASK, send_due
from tests.runs.builders import make_run, make_version
from tests.runs.pages.reading import HTMX, get_page, read_words
from tests.runs.webhooks.deliveries import make_ended_run, make_endpoint
from tests.runs.webhooks.receiver import Receiver, Reply, receiver  # noqa: F401  # a fixture
from tests.runs.webhooks.test_deliveries import list_messages

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/toolflow"


def make_stored(run: Run | None = None, **fields: Any) -> WebhookDelivery:
    """A delivery as it is in the list."""
    values = {"event": "run.failed", "url": URL, "host": "hooks.example.com", **fields}
    run = run or make_ended_run()
    return WebhookDelivery.objects.create(run=run, flow_id=run.flow_id, **values)


def add_try(delivery: WebhookDelivery, number: int = 1, **fields: Any) -> WebhookTry:
    now = timezone.now()
    values = {"started_at": now - timedelta(seconds=2), "ended_at": now, **fields}
    return WebhookTry.objects.create(delivery=delivery, number=number, **values)


def make_many(count: int) -> list[WebhookDelivery]:
    """The oldest first."""
    version = make_version()
    return [make_stored(make_run(version)) for _ in range(count)]


def list_ids(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'class="webhook-event" href="/webhooks/(\d+)/"', page)]


class TestEndpoints:
    @pytest.fixture
    def admin(self) -> Client:
        client = Client()
        client.force_login(User.objects.create_superuser("root"))
        return client

    def test_they_are_listed_without_their_paths_for_those_who_may_see_them(
        self, admin: Client, viewer: Client
    ) -> None:
        endpoint = make_endpoint(f"{URL}/secret", is_enabled=False)
        make_stored(endpoint=endpoint, state="delivered")
        page = get_page(admin, "/webhooks/")
        assert page.count('data-testid="endpoint"') == 1 and "/secret" not in page
        assert f'action="/webhooks/endpoints/{endpoint.pk}/test/"' in page
        assert "Disabled" in page and "All flows" in page
        assert 'data-testid="endpoint"' not in get_page(viewer, "/webhooks/")

    def test_the_admin_adds_one_and_shows_its_secret_once(self, admin: Client) -> None:
        path = "/admin/runs/webhookendpoint/"
        refused = admin.post(f"{path}add/", {"url": "https://127.0.0.1/", "is_enabled": "on"})
        assert "url" in refused.context["adminform"].form.errors
        shown = admin.post(
            f"{path}add/", {"url": URL, "event_types": ["run.failed"], "is_enabled": "on"}, follow=True
        ).content.decode()
        endpoint = WebhookEndpoint.objects.get()
        assert (endpoint.url, endpoint.event_types, endpoint.flow) == (URL, ["run.failed"], None)
        assert escape(derive_secret(endpoint)) in shown
        assert "whsec_" not in get_page(admin, path) + get_page(admin, f"{path}{endpoint.pk}/change/")

    def test_the_admin_tests_and_rotates(self, admin: Client) -> None:
        endpoint = make_endpoint(URL)
        before = derive_secret(endpoint)
        shown = []
        for action in ("send_test", "rotate_secrets", "rotate_secrets"):
            data = {"action": action, "_selected_action": [endpoint.pk]}
            page = admin.post("/admin/runs/webhookendpoint/", data, follow=True).content.decode()
            endpoint.refresh_from_db()
            shown.append(escape(derive_secret(endpoint)) in page)
        # A second rotation would end a secret that still counts.
        assert shown == [False, True, False]
        assert derive_secret(endpoint) != before and WebhookDelivery.objects.count() == 1


class TestList:
    def test_each_row_says_what_was_sent_where_and_how_it_went(self, viewer: Client) -> None:
        soon = timezone.now() + timedelta(minutes=9, seconds=30)
        waiting = make_stored(try_count=2, last_status=503, next_try_at=soon)
        version = waiting.run.version  # type: ignore[union-attr]  # it has one
        make_stored(make_run(version), event="run.succeeded", state="delivered", try_count=1, last_status=200)
        make_stored(make_run(version), state="failed", try_count=8, next_try_at=None)
        make_stored(make_run(version), try_count=1, sending_until=soon)
        page = get_page(viewer, "/webhooks/")
        rows = [read_words(row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)[1:]]
        first = waiting.run_id or 0
        assert [re.sub(r" (under )?\d+ (s|min) ago$", "", row) for row in rows] == [
            f"Run failed Sending Example #{first + 3} hooks.example.com 1 — now",
            f"Run failed Not delivered Example #{first + 2} hooks.example.com 8 No answer —",
            f"Run succeeded Delivered Example #{first + 1} hooks.example.com 1 200 —",
            f"Run failed Waiting to retry Example #{first} hooks.example.com 2 503 in 9 min",
        ]

    def test_pages_go_on_where_the_last_one_ended(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(webhooks, "PAGE_SIZE", 2)
        keys = [one.pk for one in make_many(5)][::-1]
        page, seen = get_page(viewer, "/webhooks/"), []
        seen.append(list_ids(page))
        while older := re.search(r'href="([^"]*)" rel="next"', page):
            page = get_page(viewer, older[1].replace("&amp;", "&"))
            seen.append(list_ids(page))
        assert seen == [keys[:2], keys[2:4], keys[4:]]
        newer = re.search(r'href="([^"]*)" rel="prev"', page)
        assert newer is not None and list_ids(get_page(viewer, newer[1])) == keys[2:4]

    def test_states_and_runs_are_filtered(self, viewer: Client) -> None:
        first, second, third = make_many(3)
        WebhookDelivery.objects.filter(pk=second.pk).update(state="failed")
        cases = {"state=failed": [second], "state=waiting": [third, first], f"run={first.run_id}": [first]}
        for query, expected in cases.items():
            assert list_ids(get_page(viewer, f"/webhooks/?{query}")) == [one.pk for one in expected]
        nothing = get_page(viewer, f"/webhooks/?run={first.run_id}&state=delivered")
        assert list_ids(nothing) == [] and f"/webhooks/?state=failed&amp;run={first.run_id}" in nothing


class TestDelivery:
    def test_it_shows_what_was_sent_and_what_came_back(self, viewer: Client, receiver: Receiver) -> None:  # noqa: F811
        receiver.reply(Reply(500, body=b"<script>alert(1)</script> \xe2\x80\xae no room"))
        make_ended_run(webhook_url=receiver.url("/a?b=<i>"))
        count_ended_runs()
        send_due()
        delivery = WebhookDelivery.objects.get()
        page = get_page(viewer, f"/webhooks/{delivery.pk}/")
        words = read_words(page)
        # What follows the host may be a secret, and a viewer starts no runs.
        assert "/…" in words and "a?b=" not in page
        assert "<script>alert(1)</script>" not in page and "&lt;script&gt;alert(1)" in page and "\\u202e" in words
        sent = receiver.received[0].headers
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
            assert f"{name}: {sent[name]}" in words
        assert '"type": "run.failed"' in words and 'id="send-again"' not in page

    def test_while_it_moves_the_page_follows(self, viewer: Client) -> None:
        delivery = make_stored()
        seen = re.search(r'hx-get="([^"]*)" hx-trigger="every 1s"', get_page(viewer, f"/webhooks/{delivery.pk}/"))
        assert seen is not None
        assert viewer.get(seen[1], headers=HTMX).status_code == 204
        WebhookDelivery.objects.update(state="delivered", try_count=1, next_try_at=None)
        add_try(delivery, status=200)
        part = viewer.get(seen[1], headers=HTMX).content.decode()
        assert "Delivered" in part and "hx-trigger" not in part and "<html" not in part


class TestSendingAgain:
    @pytest.mark.parametrize(("is_under_way", "messages"), [(False, [SEND_TASK]), (True, [])])
    def test_it_is_sent_at_once_but_not_twice(
        self, operator: Client, django_capture_on_commit_callbacks: Any, is_under_way: bool, messages: list[str]
    ) -> None:
        lease = timezone.now() + timedelta(seconds=30) if is_under_way else None
        delivery = make_stored(try_count=8, sending_until=lease, state="waiting" if is_under_way else "failed")
        address = f"/webhooks/{delivery.pk}/"
        assert ('id="send-again"' in get_page(operator, address)) != is_under_way
        with django_capture_on_commit_callbacks(execute=True):
            answer = operator.post(f"{address}send/", follow=True)
        assert answer.redirect_chain == [(address, 302)] and list_messages() == messages
        assert WebhookDelivery.objects.due().exists() != is_under_way
