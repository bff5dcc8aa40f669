"""Senders crash, stop and share the work, and nothing is lost or sent by two."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.utils import timezone
from django_q.models import OrmQ

from runs.models import WebhookDelivery, WebhookTry
from runs.queue import draining, force_quit
from runs.webhooks import posting, sending
from runs.webhooks.posting import Answer
from runs.webhooks.sending import MAX_AT_A_TIME, MAX_PER_HOST, claim_due, store_answer
from runs.webhooks.tasks import hold_sender, send_due
from tests.engine.builders import make_flow, make_step
from tests.runs.builders import make_version
from tests.runs.webhooks.deliveries import come_due, make_delivery
from tests.runs.webhooks.receiver import Receiver, Reply

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


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
        assert len(receiver.received) == 1
        # As long as the lease lasts it may be another one's.
        assert send_due() == "No webhook is due."
        come_due(delivery)
        send_due()
        first, second = receiver.received
        assert first.headers["webhook-id"] == second.headers["webhook-id"] and first.body == second.body
        delivery.refresh_from_db()
        assert (delivery.state, delivery.try_count) == ("delivered", 2)
        assert delivery.tries.get(number=1).ended_at is None

    def test_the_lease_ends_by_itself(self, receiver: Receiver) -> None:
        delivery = make_delivery(receiver.url())
        (first,) = claim_due(free=5, hosts=Counter())
        delivery.refresh_from_db()
        assert delivery.sending_until is not None and delivery.is_being_sent
        assert timedelta(seconds=50) < delivery.sending_until - timezone.now() < timedelta(seconds=70)
        WebhookDelivery.objects.update(sending_until=timezone.now() - timedelta(seconds=1))
        (second,) = claim_due(free=5, hosts=Counter())
        assert (first.number, second.number) == (1, 2)

    def test_an_answer_that_comes_after_the_lease_changes_nothing_of_a_later_try(self, receiver: Receiver) -> None:
        delivery = make_delivery(receiver.url())
        (late,) = claim_due(free=1, hosts=Counter())
        come_due(delivery)
        (_,) = claim_due(free=1, hosts=Counter())
        assert store_answer(late, Answer(status=500, problem="The receiver answered 500.")) is False
        delivery.refresh_from_db()
        assert (delivery.state, delivery.last_status) == ("waiting", None) and delivery.is_being_sent
        assert delivery.tries.get(number=1).status == 500

    def test_a_database_error_leaves_it_to_the_next_sender(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(delivery: WebhookDelivery) -> str:
            raise OperationalError("away")

        make_delivery(receiver.url())
        monkeypatch.setattr(sending, "build_body", fail)
        with pytest.raises(OperationalError):
            send_due()
        with hold_sender() as is_held:
            assert is_held


class TestWhenTheWorkerStops:
    @pytest.fixture(autouse=True)
    def _flags(self) -> Iterator[None]:
        yield
        draining.clear()
        force_quit.clear()

    def test_nothing_new_is_sent_and_nobody_is_woken(self, receiver: Receiver) -> None:
        delivery = make_delivery(receiver.url())
        woken = OrmQ.objects.count()
        draining.set()
        assert send_due() == "Tried to deliver 0 webhooks."
        assert not receiver.received and OrmQ.objects.count() == woken
        draining.clear()
        send_due()
        delivery.refresh_from_db()
        assert delivery.state == "delivered"

    def test_what_is_under_way_may_end_and_what_else_is_due_waits(self, receiver: Receiver) -> None:
        version = make_version()
        receiver.reply(Reply(before=draining.set))
        for _ in range(MAX_PER_HOST + 2):
            make_delivery(receiver.url(), version)
        send_due()
        assert WebhookDelivery.objects.filter(state="delivered").count() == MAX_PER_HOST
        assert WebhookDelivery.objects.due().count() == 2

    def test_a_second_signal_breaks_off_what_hangs_which_is_made_again_later(self, receiver: Receiver) -> None:
        is_over = threading.Event()

        def hang() -> None:
            draining.set()
            force_quit.set()
            is_over.wait(20)

        receiver.reply(Reply(before=hang), 200)
        delivery = make_delivery(receiver.url())
        send_due()
        is_over.set()
        delivery.refresh_from_db()
        assert (delivery.state, delivery.last_status, delivery.is_being_sent) == ("waiting", None, True)
        draining.clear()
        force_quit.clear()
        come_due(delivery)
        send_due()
        delivery.refresh_from_db()
        assert delivery.state == "delivered"


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

    def test_one_that_hangs_keeps_no_other_host_waiting(self, receiver: Receiver, settings: Any) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = [f"127.0.0.1:{receiver.port}", f"localhost:{receiver.port}"]
        version = make_version()
        is_over = threading.Event()
        hanging = Reply(before=lambda: is_over.wait(20))
        for _ in range(MAX_PER_HOST * 2):
            make_delivery(receiver.url(), version)
        make_delivery(receiver.url(host="localhost"), version)
        receiver.reply(*[hanging] * MAX_PER_HOST, Reply(before=is_over.set))
        send_due()
        hosts = [one.headers["host"].partition(":")[0] for one in receiver.received]
        # The fifth that arrives lets the others go on; without room for another host nothing ever would.
        assert "localhost" in hosts[: MAX_PER_HOST + 1]

    def test_the_queue_of_a_full_host_is_passed_over(self) -> None:
        version = make_version()
        for host in ["full.example.com"] * 3 + ["free.example.com"]:
            make_delivery(f"https://{host}/", version)
        claimed = claim_due(free=MAX_AT_A_TIME, hosts=Counter({"full.example.com": 3}))
        assert sorted(one.host for one in claimed) == ["free.example.com", "full.example.com"]
        assert claim_due(free=MAX_AT_A_TIME, hosts=Counter({"full.example.com": 4})) == []

    def test_a_second_sender_on_the_host_leaves_it_to_the_first(self, receiver: Receiver) -> None:
        make_delivery(receiver.url())
        with hold_sender():
            assert send_due() == "Another process sends already."
        send_due()
        assert len(receiver.received) == 1

    def test_what_came_while_the_last_answer_was_waited_for_gets_a_message(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
    ) -> None:
        monkeypatch.setattr(sending, "MAX_SECONDS", 0)
        make_delivery(receiver.url())
        with django_capture_on_commit_callbacks(execute=True):
            assert send_due() == "Tried to deliver 0 webhooks."
        assert OrmQ.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_senders_at_once_share_the_work(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two hosts, since one has a lock."""
    monkeypatch.setattr(sending, "MAX_PER_HOST", 20)
    version = make_version(make_flow(make_step()))
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
    assert sum(made) == count == len(receiver.received)
    assert len({one.headers["webhook-id"] for one in receiver.received}) == count
    assert WebhookTry.objects.count() == count
    assert not WebhookDelivery.objects.exclude(state="delivered").exists()
    assert connection.in_atomic_block is False


def test_a_try_may_take_no_longer_than_its_lease() -> None:
    assert sending.LEASE.total_seconds() >= 2 * (posting.TIMEOUT + posting.BODY_TIMEOUT)
