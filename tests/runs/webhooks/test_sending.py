"""Deliveries as receivers meet them, and senders that crash, stop and share the work."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone
from standardwebhooks import WebhookVerificationError

from runs.models import Run, WebhookDelivery, WebhookTry
from runs.rollup import count_ended_runs
from runs.webhooks import messages, posting, sending
from runs.webhooks.deliveries import send_again
from runs.webhooks.posting import Answer
from runs.webhooks.sending import (
    LEASE,
    MAX_PER_HOST,
    MAX_TRIES,
    RETRY_DELAYS,
    choose_next,
    claim_due,
    store_answer,
)  # fmt: skip
from runs.webhooks.tasks import hold_sender, send_due
from tests.runs.builders import make_version
from tests.runs.webhooks.deliveries import come_due, make_delivery, make_ended_run, make_endpoint
from tests.runs.webhooks.receiver import Receiver, Reply

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def fail_all_tries(delivery: WebhookDelivery) -> list[float]:
    """Try until it is given up; gives the seconds between the tries."""
    waits: list[float] = []
    while True:
        send_due()
        delivery.refresh_from_db()
        if delivery.state != "waiting":
            return waits
        assert delivery.next_try_at is not None
        waits.append((delivery.next_try_at - timezone.now()).total_seconds())
        come_due(delivery)


class TestWhatArrives:
    def test_a_receiver_reads_what_happened_and_trusts_the_signature(self, receiver: Receiver) -> None:
        text = "Grüner Tee 🍵" + "x" * 3_000_000
        receiver.reply(Reply(202, body=b"queued"))
        delivery = make_delivery(
            receiver.url("/hooks/toolflow?key=1"),
            end_sentence="Step 1 “Tea” failed ☕",
            labels=["nightly"],
            input={"topic": text},
        )
        assert send_due() == "Tried to deliver 1 webhooks."
        (received,) = receiver.received
        message, headers, run = received.verify(), received.headers, Run.objects.get()
        assert (received.path, message["type"]) == ("/hooks/toolflow?key=1", "run.failed")
        assert run.ended_at is not None and message["timestamp"].endswith("Z")
        assert abs(datetime.fromisoformat(message["timestamp"]) - run.ended_at) < timedelta(milliseconds=1)
        document = message["data"]
        assert (document["id"], document["flow"], document["status"]) == (run.pk, "example", "failed")
        assert document["input"] == {"topic": text} and document["labels"] == ["nightly"]
        assert document["end_sentence"] == "Step 1 “Tea” failed ☕"
        assert "usage" in document and "steps" not in document
        assert headers["content-type"] == "application/json" and headers["user-agent"].startswith("ToolFlow/")
        assert headers["webhook-id"] == delivery.message_id and headers["webhook-id"].startswith("msg_")
        assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60
        # It is stored as it was sent.
        delivery.refresh_from_db()
        assert (delivery.state, delivery.try_count, delivery.last_status) == ("delivered", 1, 202)
        assert delivery.next_try_at is None and delivery.sending_until is None and delivery.ended_at is not None
        one = delivery.tries.get()
        assert (one.status, one.problem, one.response) == (202, "", "queued")
        assert (delivery.body.encode(), one.signature) == (received.body, headers["webhook-signature"])
        with pytest.raises(WebhookVerificationError):
            replace(received, body=received.body.replace(b"failed", b"passed")).verify()

    def test_no_receiver_learns_the_address_of_another(self, receiver: Receiver) -> None:
        version = make_version()
        make_endpoint(receiver.url("/of-flow?key=1"), version)
        make_ended_run(version, webhook_url=receiver.url("/of-run?key=2"))
        count_ended_runs()
        send_due()
        assert sorted(one.path for one in receiver.received) == ["/of-flow?key=1", "/of-run?key=2"]
        assert not any(b"key=" in one.body for one in receiver.received)


class TestRetries:
    def test_it_is_tried_under_the_same_id_until_a_receiver_takes_it(self, receiver: Receiver) -> None:
        receiver.reply(500, 404, 200)
        delivery = make_delivery(receiver.url())
        send_due()
        # Not before its time.
        assert send_due() == "No webhook is due." and len(receiver.received) == 1
        come_due(delivery)
        fail_all_tries(delivery)
        assert delivery.state == "delivered"
        assert list(delivery.tries.values_list("status", flat=True)) == [500, 404, 200]
        assert {one.headers["webhook-id"] for one in receiver.received} == {delivery.message_id}
        assert all(one.verify()["type"] == "run.failed" for one in receiver.received)

    def test_it_is_given_up_after_about_a_day_and_has_all_retries_when_it_is_sent_again(
        self, receiver: Receiver
    ) -> None:
        receiver.reply(503)
        delivery = make_delivery(receiver.url())
        waits = fail_all_tries(delivery)
        assert len(receiver.received) == MAX_TRIES == 8
        assert (delivery.state, delivery.next_try_at) == ("failed", None)
        for wait, delay in zip(waits, RETRY_DELAYS, strict=True):
            assert 0.8 * delay - 5 <= wait <= 1.2 * delay + 5
        assert send_again(delivery)
        receiver.reply(500, 200)
        assert len(fail_all_tries(delivery)) == 1
        assert (delivery.state, delivery.try_count) == ("delivered", MAX_TRIES + 2)

    def test_a_receiver_that_is_gone_or_refused_is_left_alone(self, receiver: Receiver) -> None:
        version = make_version()
        receiver.reply(410)
        gone, refused = make_delivery(receiver.url(), version), make_delivery("http://127.0.0.1:9000/", version)
        assert fail_all_tries(gone) == fail_all_tries(refused) == []
        assert (gone.state, gone.last_status, gone.try_count) == ("failed", 410, 1)
        assert (refused.state, refused.last_status, refused.try_count) == ("failed", None, 1)
        assert "TOOLFLOW_WEBHOOK_ALLOW" in refused.tries.get().problem

    def test_a_receiver_says_when_to_come_back_within_a_day(self, receiver: Receiver) -> None:
        receiver.reply(Reply(503, {"retry-after": "1000"}), Reply(503, {"retry-after": "9999999"}), 200)
        first, second = fail_all_tries(make_delivery(receiver.url()))
        assert 970 < first <= 1_000 and 86_000 < second <= 86_400
        assert (choose_next(Answer(status=503, problem="no", retry_after=0), number=3)[1] or 0) >= 96

    def test_what_can_not_be_written_keeps_no_other_waiting(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        version = make_version()
        bad, good = (make_delivery(receiver.url(), version) for _ in range(2))
        build = messages.build_body

        def build_or_fail(delivery: WebhookDelivery) -> str:
            if delivery.pk == bad.pk:
                raise TypeError("no JSON")
            return build(delivery)

        monkeypatch.setattr(sending, "build_body", build_or_fail)
        send_due()
        for one in (bad, good):
            one.refresh_from_db()
        assert (bad.state, good.state) == ("failed", "delivered")
        assert bad.tries.get().problem and "no JSON" in caplog.text


class TestCrashes:
    def test_what_was_sent_and_not_stored_is_sent_again_under_the_same_id(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        delivery = make_delivery(receiver.url())

        def die(*args: Any) -> None:
            raise SystemExit

        with monkeypatch.context() as patch:
            patch.setattr(sending, "store_answer", die)
            with pytest.raises(SystemExit):
                send_due()
        # As long as the lease lasts it may be another one's.
        assert send_due() == "No webhook is due." and len(receiver.received) == 1
        assert not send_again(delivery)
        come_due(delivery)
        send_due()
        first, second = receiver.received
        assert first.headers["webhook-id"] == second.headers["webhook-id"] and first.body == second.body
        delivery.refresh_from_db()
        assert (delivery.state, delivery.try_count) == ("delivered", 2)
        assert delivery.tries.get(number=1).ended_at is None

    def test_the_lease_ends_by_itself_and_a_late_answer_changes_nothing_of_a_later_try(self) -> None:
        delivery = make_delivery("https://hooks.example.com/")
        (late,) = claim_due(free=5, hosts=Counter())
        delivery.refresh_from_db()
        assert delivery.sending_until is not None and delivery.is_being_sent
        assert abs(delivery.sending_until - timezone.now() - LEASE) < timedelta(seconds=10)
        assert LEASE.total_seconds() >= 2 * (posting.TIMEOUT + posting.BODY_TIMEOUT)
        WebhookDelivery.objects.update(sending_until=timezone.now() - timedelta(seconds=1))
        (_,) = claim_due(free=5, hosts=Counter())
        assert store_answer(late, Answer(status=500, problem="The receiver answered 500.")) is False
        delivery.refresh_from_db()
        assert (delivery.state, delivery.last_status) == ("waiting", None) and delivery.is_being_sent
        assert delivery.tries.get(number=1).status == 500


class TestTogether:
    def test_a_host_gets_few_at_a_time_and_all_in_the_end(self, receiver: Receiver) -> None:
        version = make_version()
        gate = threading.Barrier(MAX_PER_HOST)
        receiver.reply(Reply(before=lambda: gate.wait(20)))
        count = MAX_PER_HOST * 3
        for _ in range(count):
            make_delivery(receiver.url(), version)
        send_due()
        assert receiver.most_at_a_time == MAX_PER_HOST
        assert WebhookDelivery.objects.filter(state="delivered").count() == count

    def test_a_second_sender_on_the_host_leaves_it_to_the_first(self, receiver: Receiver) -> None:
        make_delivery(receiver.url())
        with hold_sender():
            assert send_due() == "Another process is already sending."
        assert receiver.received == []


@pytest.mark.django_db(transaction=True)
def test_two_senders_at_once_share_the_work(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two hosts, since one has a lock."""
    monkeypatch.setattr(sending, "MAX_PER_HOST", 20)
    version = make_version()
    count = 40
    for _ in range(count):
        make_delivery(receiver.url(), version)
    begin = threading.Barrier(2)

    def send() -> int:
        try:
            begin.wait(20)
            return sending.send_all()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        made = [future.result() for future in [pool.submit(send) for _ in range(2)]]
    assert sum(made) == count == len(receiver.received) == WebhookTry.objects.count()
    assert len({one.headers["webhook-id"] for one in receiver.received}) == count
    assert not WebhookDelivery.objects.exclude(state="delivered").exists()
