"""Deliveries as receivers meet them: signed, tried again, and sent once more when somebody asks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from standardwebhooks import WebhookVerificationError

from runs.models import Run, WebhookDelivery
from runs.rollup import count_ended_runs
from runs.webhooks import messages, sending
from runs.webhooks.posting import Answer, parse_retry_after
from runs.webhooks.sending import MAX_TRIES, RETRY_DELAYS, choose_next, claim_due
from runs.webhooks.tasks import send_due
from tests.runs.builders import make_version
from tests.runs.webhooks.deliveries import come_due, make_delivery, make_ended_run, make_endpoint
from tests.runs.webhooks.receiver import Receiver, Reply

pytestmark = pytest.mark.django_db


def read_tries(delivery: WebhookDelivery) -> list[tuple[int | None, str]]:
    """Status and problem of each try."""
    return list(delivery.tries.values_list("status", "problem"))


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
        delivery = make_delivery(
            receiver.url("/hooks/toolflow?key=1"),
            end_reason="step_failed",
            end_sentence="Step 1 “Tea” failed ☕",
            labels=["nightly"],
            input={"topic": "Grüner Tee 🍵"},
        )
        assert send_due() == "Tried to deliver 1 webhooks."
        (received,) = receiver.received
        message = received.verify()
        run = Run.objects.get()
        assert received.path == "/hooks/toolflow?key=1"
        assert message["type"] == "run.failed"
        assert run.ended_at is not None
        assert abs(datetime.fromisoformat(message["timestamp"]) - run.ended_at) < timedelta(milliseconds=1)
        assert message["timestamp"].endswith("Z")
        document = message["data"]
        assert (document["id"], document["flow"], document["status"]) == (run.pk, "example", "failed")
        assert document["input"] == {"topic": "Grüner Tee 🍵"} and document["labels"] == ["nightly"]
        assert document["end_sentence"] == "Step 1 “Tea” failed ☕"
        assert "usage" in document and "steps" not in document
        headers = received.headers
        assert headers["content-type"] == "application/json" and headers["user-agent"].startswith("ToolFlow/")
        assert headers["webhook-id"] == delivery.message_id and headers["webhook-id"].startswith("msg_")
        assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60

    def test_no_receiver_learns_the_address_of_another(self, receiver: Receiver) -> None:
        version = make_version()
        make_endpoint(receiver.url("/of-flow?key=1"), version)
        make_ended_run(version, webhook_url=receiver.url("/of-run?key=2"))
        count_ended_runs()
        send_due()
        assert sorted(one.path for one in receiver.received) == ["/of-flow?key=1", "/of-run?key=2"]
        assert not any(b"key=" in one.body for one in receiver.received)

    def test_it_is_stored_as_it_was_sent(self, receiver: Receiver) -> None:
        receiver.reply(Reply(202, body=b"queued"))
        delivery = make_delivery(receiver.url())
        send_due()
        delivery.refresh_from_db()
        assert (delivery.state, delivery.try_count, delivery.last_status) == ("delivered", 1, 202)
        assert delivery.next_try_at is None and delivery.sending_until is None and delivery.ended_at is not None
        assert delivery.body.encode() == receiver.received[0].body
        one = delivery.tries.get()
        assert (one.status, one.problem, one.response) == (202, "", "queued")
        assert one.signature == receiver.received[0].headers["webhook-signature"]
        assert one.duration is not None

    def test_what_somebody_changed_on_the_way_is_not_trusted(self, receiver: Receiver) -> None:
        make_delivery(receiver.url())
        send_due()
        (received,) = receiver.received
        changed = replace(received, body=received.body.replace(b"failed", b"passed"))
        with pytest.raises(WebhookVerificationError):
            changed.verify()

    def test_a_large_input_arrives(self, receiver: Receiver) -> None:
        make_delivery(receiver.url(), input={"text": "x" * 3_000_000})
        send_due()
        assert len(receiver.received[0].verify()["data"]["input"]["text"]) == 3_000_000


class TestRetries:
    def test_it_is_tried_again_under_the_same_id_until_somebody_takes_it(self, receiver: Receiver) -> None:
        receiver.reply(500, 404, 200)
        delivery = make_delivery(receiver.url())
        assert [round(wait, -1) for wait in fail_all_tries(delivery)][1:] in ([30.0], [20.0], [40.0])
        assert delivery.state == "delivered"
        assert read_tries(delivery) == [
            (500, "The receiver answered 500 Internal Server Error."),
            (404, "The receiver answered 404 Not Found."),
            (200, ""),
        ]
        assert {one.headers["webhook-id"] for one in receiver.received} == {delivery.message_id}
        assert all(one.verify()["type"] == "run.failed" for one in receiver.received)

    def test_it_is_not_tried_before_its_time(self, receiver: Receiver) -> None:
        receiver.reply(500)
        make_delivery(receiver.url())
        send_due()
        assert send_due() == "No webhook is due."
        assert len(receiver.received) == 1

    def test_after_the_last_try_it_has_failed(self, receiver: Receiver) -> None:
        receiver.reply(503)
        delivery = make_delivery(receiver.url())
        waits = fail_all_tries(delivery)
        assert len(receiver.received) == MAX_TRIES == 8
        assert (delivery.state, delivery.next_try_at) == ("failed", None)
        for wait, delay in zip(waits, RETRY_DELAYS, strict=True):
            assert 0.8 * delay - 5 <= wait <= 1.2 * delay + 5

    def test_a_receiver_that_is_gone_is_left_alone(self, receiver: Receiver) -> None:
        receiver.reply(410)
        delivery = make_delivery(receiver.url())
        assert fail_all_tries(delivery) == []
        assert (delivery.state, delivery.last_status, delivery.try_count) == ("failed", 410, 1)

    def test_what_is_refused_is_not_tried_again(self, settings: Any) -> None:
        delivery = make_delivery("http://127.0.0.1:9000/")
        assert fail_all_tries(delivery) == []
        assert (delivery.state, delivery.last_status) == ("failed", None)
        ((status, problem),) = read_tries(delivery)
        assert status is None and "TOOLFLOW_WEBHOOK_ALLOW names what else webhooks may reach" in problem

    @pytest.mark.parametrize(("status", "expected"), [(429, 1_000.0), (503, 1_000.0), (500, 1_000.0)])
    def test_a_receiver_says_when_to_come_back(self, receiver: Receiver, status: int, expected: float) -> None:
        receiver.reply(Reply(status, {"retry-after": "1000"}), 200)
        (wait,) = fail_all_tries(make_delivery(receiver.url()))
        assert expected - 30 < wait <= expected

    def test_how_retry_after_is_read(self) -> None:
        now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
        assert parse_retry_after("120", now) == 120
        assert parse_retry_after("Sat, 21 Nov 2026 12:05:00 GMT", now) == 300
        assert parse_retry_after("Sat, 21 Nov 2026 11:00:00 GMT", now) == 0
        for text in ("", "soon", "-5", "1e9", "9" * 30, "²", "Sat, 99 Nov 2026 12:05:00 GMT"):
            assert parse_retry_after(text, now) is None

    def test_no_receiver_is_waited_for_longer_than_a_day(self) -> None:
        assert choose_next(Answer(status=503, problem="no", retry_after=10_000_000), number=1) == ("waiting", 86_400)
        assert (choose_next(Answer(status=503, problem="no", retry_after=0), number=3)[1] or 0) >= 96

    def test_what_can_not_be_written_keeps_nobody_up(
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
        assert read_tries(bad) == [(None, "ToolFlow failed to write it; the log says why.")]
        assert "no JSON" in caplog.text


class TestSendingAgain:
    def test_a_failed_one_is_sent_at_once_and_has_all_its_retries_again(self, receiver: Receiver) -> None:
        receiver.reply(500)
        delivery = make_delivery(receiver.url())
        fail_all_tries(delivery)
        assert delivery.send_again()
        receiver.reply(500, 200)
        assert len(fail_all_tries(delivery)) == 1
        assert (delivery.state, delivery.try_count) == ("delivered", MAX_TRIES + 2)

    def test_one_that_was_delivered_is_sent_under_the_same_id(self, receiver: Receiver) -> None:
        delivery = make_delivery(receiver.url())
        send_due()
        delivery.refresh_from_db()
        assert delivery.send_again()
        send_due()
        first, second = receiver.received
        assert first.headers["webhook-id"] == second.headers["webhook-id"] and first.body == second.body

    def test_one_that_is_under_way_is_not(self, receiver: Receiver) -> None:
        asked: list[bool] = []
        delivery = make_delivery(receiver.url())
        claim_due(free=1, hosts=Counter())
        asked.append(delivery.send_again())
        assert asked == [False]
        assert send_due() == "No webhook is due."
