"""The log of webhooks, as somebody meets it who wants to know why a receiver heard nothing."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from runs import paging
from runs.models import Run, WebhookDelivery, WebhookTry
from runs.pages import webhooks
from runs.rollup import count_ended_runs
from runs.webhooks.messages import SEND_TASK
from runs.webhooks.tasks import send_due
from tests.runs.builders import make_run, make_version
from tests.runs.pages.reading import HTMX, count_queries, get_page, read_words
from tests.runs.webhooks.deliveries import make_ended_run
from tests.runs.webhooks.receiver import Receiver, Reply, receiver  # noqa: F401  # a fixture
from tests.runs.webhooks.test_making import list_messages

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/toolflow"


def make_stored(run: Run | None = None, **fields: Any) -> WebhookDelivery:
    """A delivery as it stands in the log."""
    values = {"event": "run.failed", "url": URL, "host": "hooks.example.com", **fields}
    return WebhookDelivery.objects.create(run=run or make_ended_run(), **values)


def add_try(delivery: WebhookDelivery, number: int = 1, **fields: Any) -> WebhookTry:
    now = timezone.now()
    values = {"started_at": now - timedelta(seconds=2), "ended_at": now, **fields}
    return WebhookTry.objects.create(delivery=delivery, number=number, **values)


def make_many(count: int) -> list[WebhookDelivery]:
    """The oldest first."""
    version = make_version()
    return [make_stored(make_run(version)) for _ in range(count)]


def listed(page: str) -> list[int]:
    return [
        int(number) for number in re.findall(r'<th scope="row"><a class="webhook-event" href="/webhooks/(\d+)/"', page)
    ]


class TestList:
    def test_each_row_says_what_was_told_to_whom_and_how_it_went(self, viewer: Client) -> None:
        soon = timezone.now() + timedelta(minutes=9, seconds=30)
        waiting = make_stored(try_count=2, last_status=503, next_try_at=soon)
        make_stored(
            make_run(waiting.run.version), event="run.succeeded", state="delivered", try_count=1, last_status=200
        )
        make_stored(make_run(waiting.run.version), state="failed", try_count=8, next_try_at=None)
        make_stored(make_run(waiting.run.version), try_count=1, sending_until=soon)
        page = get_page(viewer, "/webhooks/")
        rows = [read_words(row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)[1:]]
        assert [re.sub(r" \d+ (s|min) ago$", "", row) for row in rows] == [
            f"Run failed Being sent Example #{waiting.run_id + 3} hooks.example.com 1 — now",
            f"Run failed Not delivered Example #{waiting.run_id + 2} hooks.example.com 8 No answer —",
            f"Run succeeded Delivered Example #{waiting.run_id + 1} hooks.example.com 1 200 —",
            f"Run failed Waiting to retry Example #{waiting.run_id} hooks.example.com 2 503 in 9 min",
        ]

    def test_what_may_not_be_reached_was_not_sent(self, viewer: Client) -> None:
        make_stored(state="failed", try_count=1, next_try_at=None)
        make_stored(state="failed", try_count=9, tries_before=8, next_try_at=None)
        make_stored(state="failed", try_count=1, last_status=410, next_try_at=None)
        assert read_words(get_page(viewer, "/webhooks/")).count("Not sent") == 2

    def test_an_empty_log_says_where_webhooks_come_from(self, viewer: Client) -> None:
        assert "A flow or a run that has a webhook address tells it" in read_words(get_page(viewer, "/webhooks/"))

    def test_states_and_runs_are_filtered(self, viewer: Client) -> None:
        first, second, third = make_many(3)
        WebhookDelivery.objects.filter(pk=second.pk).update(state="failed")
        assert listed(get_page(viewer, "/webhooks/?state=failed")) == [second.pk]
        assert listed(get_page(viewer, "/webhooks/?state=waiting")) == [third.pk, first.pk]
        page = get_page(viewer, f"/webhooks/?run={first.run_id}")
        assert listed(page) == [first.pk] and f"of run #{first.run_id}" in read_words(page)
        nothing = get_page(viewer, f"/webhooks/?run={first.run_id}&state=delivered")
        assert "No webhook matches" in nothing and f"/webhooks/?state=failed&amp;run={first.run_id}" in nothing

    def test_pages_go_on_where_the_last_one_ended(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(webhooks, "PAGE_SIZE", 2)
        keys = [one.pk for one in make_many(5)][::-1]
        seen, address = [], "/webhooks/"
        while True:
            page = get_page(viewer, address)
            seen.append(listed(page))
            older = re.search(r'href="([^"]*)" rel="next"', page)
            if older is None:
                break
            address = older[1].replace("&amp;", "&")
        assert seen == [keys[:2], keys[2:4], keys[4:]]
        newer = re.search(r'href="([^"]*)" rel="prev"', page)
        assert newer is not None and listed(get_page(viewer, newer[1])) == keys[2:4]

    def test_a_run_with_very_many_is_looked_through_bit_by_bit(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paging, "FIRST_LOOK", 2)
        monkeypatch.setattr(paging, "WINDOW", 3)
        monkeypatch.setattr(webhooks, "PAGE_SIZE", 1)
        run = make_ended_run()
        first, *_ = [make_stored(run, url=f"{URL}/{number}") for number in range(9)]
        WebhookDelivery.objects.filter(pk=first.pk).update(state="failed")
        page = get_page(viewer, f"/webhooks/?run={run.pk}&state=failed")
        assert listed(page) == []
        assert "Searched the deliveries back to #" in read_words(page)
        further = re.search(r'href="([^"]*before=[^"]*)"', page)
        assert further is not None
        assert listed(get_page(viewer, further[1].replace("&amp;", "&"))) == [first.pk]

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            ("state=lost", "There is no state “lost”: it is waiting, delivered, failed."),
            ("run=tea", "“tea” is no number; “run” is left out."),
            ("before=-1", "“-1” is no number"),
            ("before=" + "9" * 40, "is no number"),
            ("before=3&after=1", "“before” and “after” can’t be combined"),
            ("state=%00", "There is no state"),
            ("run=%E2%80%AE", "is no number"),
        ],
    )  # fmt: skip
    def test_what_makes_no_sense_is_told(self, viewer: Client, query: str, sentence: str) -> None:
        delivery = make_stored()
        page = get_page(viewer, f"/webhooks/?{query}")
        assert sentence in read_words(page) and listed(page) == [delivery.pk]
        assert "\x00" not in page and "\u202e" not in page

    def test_it_takes_the_same_few_queries_with_many_rows(self, viewer: Client) -> None:
        make_many(3)
        few = count_queries(viewer, "/webhooks/")
        make_many(60)
        assert count_queries(viewer, "/webhooks/") == few == 5


class TestDelivery:
    def test_it_shows_what_was_sent_and_what_came_back(self, viewer: Client, receiver: Receiver) -> None:  # noqa: F811
        receiver.reply(Reply(500, body=b"<script>alert(1)</script> \xe2\x80\xae no room"))
        run = make_ended_run(webhook_url=receiver.url("/a?b=<i>"))
        count_ended_runs()
        send_due()
        delivery = WebhookDelivery.objects.get()
        page = get_page(viewer, f"/webhooks/{delivery.pk}/")
        words = read_words(page)
        assert "Run failed Waiting to retry" in words and f"Of Example #{run.pk}" in words
        # What stands behind the host may be a secret, and a viewer starts no runs.
        assert "/…" in words and "a?b=" not in page
        assert "500 The receiver answered 500 Internal Server Error." in words
        assert (
            "<script>alert(1)</script>" not in page and "&lt;script&gt;alert(1)" in page and "\\u202e no room" in words
        )
        sent = receiver.received[0].headers
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
            assert f"{name}: {sent[name]}" in words
        assert '"type" : "run.failed"' in words and '"topic" : "tea"' in words
        assert "Send" not in words

    def test_before_the_first_try_it_shows_what_will_be_sent(self, viewer: Client) -> None:
        delivery = make_stored()
        words = read_words(get_page(viewer, f"/webhooks/{delivery.pk}/"))
        assert "Not tried yet" in words and '"type" : "run.failed"' in words and "Headers" not in words

    def test_a_try_whose_sender_died_is_told_from_one_that_is_under_way(self, viewer: Client) -> None:
        delivery = make_stored(try_count=2, sending_until=timezone.now() + timedelta(seconds=30))
        add_try(delivery, 1, ended_at=None)
        add_try(delivery, 2, ended_at=None)
        words = read_words(get_page(viewer, f"/webhooks/{delivery.pk}/"))
        assert re.search(r"2 Being sent — .* 1 None Its sender ended before an answer was stored\.", words)

    def test_while_it_moves_the_page_follows(self, viewer: Client) -> None:
        delivery = make_stored()
        address = f"/webhooks/{delivery.pk}/"
        seen = re.search(r'hx-get="([^"]*)" hx-trigger="every 1s"', get_page(viewer, address))
        assert seen is not None
        assert viewer.get(seen[1], headers=HTMX).status_code == 204
        WebhookDelivery.objects.update(state="delivered", try_count=1, next_try_at=None)
        add_try(delivery, status=200)
        part = viewer.get(seen[1], headers=HTMX).content.decode()
        assert "Delivered" in part and "Run failed: Delivered after 1 try." in part
        assert "hx-trigger" not in part and "<html" not in part

    def test_a_page_on_which_nothing_will_move_soon_does_not_ask(self, viewer: Client) -> None:
        later = timezone.now() + timedelta(hours=1)
        for delivery in (make_stored(try_count=3, next_try_at=later), make_stored(state="failed", next_try_at=None)):
            assert "hx-trigger" not in get_page(viewer, f"/webhooks/{delivery.pk}/")

    def test_many_tries_take_as_many_queries_as_one(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(webhooks, "MOST_TRIES", 3)
        delivery = make_stored(try_count=1, body='{"type":"run.failed"}')
        add_try(delivery)
        address = f"/webhooks/{delivery.pk}/"
        few = count_queries(viewer, address)
        for number in range(2, 9):
            add_try(delivery, number)
        WebhookDelivery.objects.update(try_count=8)
        assert count_queries(viewer, address) == few == 5
        assert "5 earlier not shown." in read_words(get_page(viewer, address))

    @pytest.mark.parametrize("number", [0, 999, 10**30])
    def test_one_that_there_is_not_is_not_found(self, viewer: Client, number: int) -> None:
        assert viewer.get(f"/webhooks/{number}/").status_code == 404


class TestSendingAgain:
    def test_it_is_sent_at_once(self, operator: Client, django_capture_on_commit_callbacks: Any) -> None:
        delivery = make_stored(state="failed", try_count=8, next_try_at=None, ended_at=timezone.now())
        address = f"/webhooks/{delivery.pk}/"
        assert "Send again" in read_words(get_page(operator, address))
        with django_capture_on_commit_callbacks(execute=True):
            answer = operator.post(f"{address}send/", follow=True)
        assert answer.redirect_chain == [(address, 302)]
        words = read_words(answer.content.decode())
        assert "It is being sent again." in words and "Send now" in words
        delivery.refresh_from_db()
        assert (delivery.state, delivery.round, delivery.ended_at) == ("waiting", 0, None)
        assert list(WebhookDelivery.objects.due()) == [delivery] and list_messages() == [SEND_TASK]

    def test_one_that_is_under_way_is_not_sent_twice(
        self, operator: Client, django_capture_on_commit_callbacks: Any
    ) -> None:
        delivery = make_stored(try_count=1, sending_until=timezone.now() + timedelta(seconds=30))
        assert "Send" not in read_words(get_page(operator, f"/webhooks/{delivery.pk}/")).replace("Sender", "")
        with django_capture_on_commit_callbacks(execute=True):
            answer = operator.post(f"/webhooks/{delivery.pk}/send/", follow=True)
        assert "It is being sent at this moment." in read_words(answer.content.decode())
        assert list_messages() == []

    def test_it_takes_the_permission_to_change_runs(self, viewer: Client) -> None:
        delivery = make_stored(state="failed")
        assert viewer.post(f"/webhooks/{delivery.pk}/send/").status_code == 403
        assert viewer.get(f"/webhooks/{delivery.pk}/send/").status_code == 405
