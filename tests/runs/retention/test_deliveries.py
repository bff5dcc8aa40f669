"""What receivers are sent of a run that loses its outputs, or goes, while the message is on its way."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from runs.models import Run, WebhookDelivery, WebhookTry
from runs.retention.policy import Part, PurgeTask
from runs.retention.purging import Purged, purge
from runs.webhooks.posting import Answer
from runs.webhooks.sending import claim_due, store_answer
from runs.webhooks.tasks import send_due
from tests.runs.builders import make_version
from tests.runs.webhooks.deliveries import come_due, make_delivery
from tests.runs.webhooks.receiver import Receiver, receiver
from tests.waiting import wait_until

__all__ = ["receiver"]

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

PRIVATE = "a private word"


def take_away(run: Run, part: Part) -> Purged:
    """Purge the runs of the flow that ended no later than ``run``."""
    assert run.ended_at is not None
    *_, purged = purge(PurgeTask(run.flow, part, run.ended_at + timedelta(microseconds=1)))
    return purged


def make_private_delivery(url: str) -> WebhookDelivery:
    return make_delivery(url, input={"topic": PRIVATE})


class TestOutputs:
    def test_a_message_that_waits_loses_them_and_is_sent_with_what_is_left(self, receiver: Receiver) -> None:
        receiver.reply(500, 200)
        delivery = make_private_delivery(receiver.url())
        send_due()
        delivery.refresh_from_db()
        assert PRIVATE in delivery.body
        assert take_away(delivery.run, Part.OUTPUTS).runs == 1
        delivery.refresh_from_db()
        assert (delivery.state, delivery.body) == ("waiting", "")
        come_due(delivery)
        send_due()
        first, second = (received.verify() for received in receiver.received)
        assert first["data"]["input"] == {"topic": PRIVATE}
        assert second["data"]["input"] is None and second["data"]["outputs_removed_at"]
        assert (second["type"], second["data"]["id"]) == (first["type"], first["data"]["id"])
        delivery.refresh_from_db()
        assert (delivery.state, delivery.body) == ("delivered", "")

    def test_what_is_on_its_way_or_was_answered_does_not_bring_them_back_and_others_keep_theirs(self) -> None:
        version = make_version()
        under_way, answered, other = (
            make_delivery("https://hooks.example.com/", version, input={"topic": PRIVATE}) for _ in range(3)
        )
        answer = Answer(status=500, body=f"I don’t like {PRIVATE}.", problem="It answered 500.")
        tries = {one.delivery.pk: one for one in claim_due(free=3, hosts=Counter())}
        assert all(PRIVATE in one.delivery.body for one in tries.values())
        store_answer(tries[answered.pk], answer)
        store_answer(tries[other.pk], answer)
        Run.objects.filter(pk=other.run_id).update(ended_at=timezone.now() + timedelta(minutes=1))
        assert answered.run is not None
        take_away(answered.run, Part.OUTPUTS)
        assert store_answer(tries[under_way.pk], answer)
        for delivery, is_empty in ((under_way, True), (answered, True), (other, False)):
            delivery.refresh_from_db()
            assert (delivery.state, PRIVATE in delivery.body) == ("waiting", not is_empty)
            assert (delivery.tries.get().response == "") is is_empty


@pytest.mark.django_db(transaction=True)
def test_a_run_goes_also_if_a_try_begins_just_then() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time: nothing comes in between.")
    delivery = make_private_delivery("https://hooks.example.com/")
    results: list[Purged] = []

    def purge_meanwhile() -> None:
        try:
            results.append(take_away(delivery.run, Part.RUNS))
        finally:
            connection.close()

    def is_waiting() -> bool:
        with connection.cursor() as cursor:
            # Within a transaction it is else always what it was at first.
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return bool(cursor.fetchone()[0])

    with transaction.atomic():
        # As the sender does it: the delivery is held while the try is added.
        assert WebhookDelivery.objects.select_for_update().get() == delivery
        thread = threading.Thread(target=purge_meanwhile)
        thread.start()
        wait_until(is_waiting, within=60, what="the purge waits for the delivery")
        WebhookTry.objects.create(delivery=delivery, number=1)
    thread.join()
    assert [purged.runs for purged in results] == [1]
    assert not Run.objects.exists() and not WebhookDelivery.objects.exists()
