"""Which messages a run that has ended makes, once each, and with whose secrets they are signed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ
from django_q.signing import SignedPackage

from runs import rollup
from runs.models import AuditEntry, Run, SigningSecret, WebhookDelivery, WebhookEndpoint
from runs.rollup import count_ended_runs
from runs.webhooks.deliveries import create_deliveries
from runs.webhooks.messages import (
    RotatedRecentlyError,
    derive_secret,
    fetch_installation_secret,
    list_secrets,
    rotate_secret,
)
from runs.webhooks.tasks import send_due
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.webhooks.deliveries import come_due, make_delivery, make_ended_run, make_endpoint
from tests.runs.webhooks.receiver import Received, Receiver

pytestmark = pytest.mark.django_db

OWN, OF_FLOW, OF_ALL = (f"https://hooks.example.com/{name}" for name in ("run", "flow", "all"))


def list_urls() -> list[str]:
    """Where the ends of all runs are sent, by run."""
    return list(WebhookDelivery.objects.order_by("run", "url").values_list("url", flat=True))


def list_messages() -> list[str]:
    """The functions that the queue is asked to call."""
    return [SignedPackage.loads(row.payload)["func"] for row in OrmQ.objects.order_by("pk")]


@pytest.mark.parametrize("status", ["succeeded", "failed", "errored", "cancelled"])
def test_each_way_to_end_is_sent(status: str) -> None:
    run = make_ended_run(status=status, webhook_url=OWN)
    count_ended_runs()
    delivery = WebhookDelivery.objects.get()
    assert (delivery.run, delivery.event, delivery.url) == (run, f"run.{status}", OWN)


@pytest.mark.parametrize(
    ("fields", "urls"),
    [
        ({}, [OF_ALL, OF_FLOW]),
        ({"is_enabled": False}, []),
        ({"event_types": ["run.failed", "run.errored"]}, [OF_ALL, OF_FLOW]),
        ({"event_types": ["run.succeeded"]}, []),
    ],
)
def test_endpoints_get_what_they_ask_for(fields: dict[str, Any], urls: list[str]) -> None:
    version, other = make_version(make_page_flow(name="one")), make_version(make_page_flow(name="two"))
    make_endpoint(OF_ALL, **fields)
    make_endpoint(OF_FLOW, version, **fields)
    make_endpoint("https://hooks.example.com/other", other, **fields)
    make_ended_run(version)
    count_ended_runs()
    assert list_urls() == urls


def test_an_address_that_run_and_endpoints_share_gets_one_message_of_the_flow_s_endpoint() -> None:
    run = make_ended_run(webhook_url=OWN)
    make_endpoint(OWN)
    endpoint = make_endpoint(OWN, run)
    count_ended_runs()
    assert WebhookDelivery.objects.get().endpoint == endpoint


def test_nothing_is_sent_of_runs_that_go_on_or_ended_long_ago_and_once_of_others() -> None:
    version = make_version()
    make_run(version, webhook_url=OWN)
    make_ended_run(version, webhook_url=OWN, ended_at=timezone.now() - timedelta(days=4))
    recent = make_ended_run(version, webhook_url=OWN, ended_at=timezone.now() - timedelta(days=2))
    count_ended_runs()
    assert WebhookDelivery.objects.get().run == recent
    WebhookDelivery.objects.update(state="delivered")
    Run.objects.update(is_counted=False)
    count_ended_runs()
    assert WebhookDelivery.objects.get().state == "delivered"


def test_a_crash_before_the_run_is_marked_leaves_both_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_ended_run(webhook_url=OWN)

    def die(run_ids: Any) -> int:
        create_deliveries(run_ids)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(rollup, "create_deliveries", die)
        with pytest.raises(SystemExit):
            count_ended_runs()
    assert (list_urls(), Run.objects.get(pk=run.pk).is_counted) == ([], False)
    count_ended_runs()
    assert list_urls() == [OWN]


def test_runs_without_an_address_cost_one_query_together() -> None:
    version = make_version()
    make_endpoint(OF_FLOW, make_version(make_page_flow(name="other")))
    run_ids = [make_ended_run(version).pk for _ in range(20)]
    with CaptureQueriesContext(connection) as queries:
        create_deliveries(run_ids)
    assert len(queries) == 1


OLD, NEW = "an-old-key-0123456789-abcdefghijklmnopqrstuvwxyz", "a-new-key-zyxwvutsrqponmlkjihgfedcba-9876543210"


def send(receiver: Receiver, delivery: WebhookDelivery) -> Received:
    """Send that one; gives what arrived."""
    come_due(delivery)
    send_due()
    return receiver.find_last(delivery.message_id)


def let_days_pass(signer: SigningSecret, days: float) -> None:
    assert signer.secret_changed_at is not None
    signer.secret_changed_at -= timedelta(days=days)
    signer.save()


def run_command(*arguments: str) -> str:
    out = StringIO()
    call_command("webhook_secret", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


class TestWhoSigns:
    def test_an_endpoint_signs_alone_and_for_its_own_flow_only(self, receiver: Receiver) -> None:
        victim, used = make_version(make_page_flow(name="victim")), make_version(make_page_flow(name="used"))
        endpoint, other = make_endpoint(receiver.url(), victim), make_endpoint(receiver.url("/other"))
        make_ended_run(victim)
        count_ended_runs()
        received = send(receiver, WebhookDelivery.objects.get(endpoint=endpoint))
        assert received.is_signed_with(derive_secret(endpoint))
        assert not any(map(received.is_signed_with, [derive_secret(other), run_command()]))
        # A run of another flow that names its address.
        other.delete()
        assert not send(receiver, make_delivery(receiver.url(), used)).is_signed_with(derive_secret(endpoint))

    def test_an_address_that_run_and_endpoint_share_gets_one_message_with_both_signatures(
        self, receiver: Receiver
    ) -> None:
        version = make_version()
        endpoint = make_endpoint(receiver.url(), version)
        received = send(receiver, make_delivery(receiver.url(), version))
        assert len(receiver.received) == 1
        assert received.is_signed_with(run_command()) and received.is_signed_with(derive_secret(endpoint))

    @pytest.mark.parametrize("change", [{"url": "https://example.com/other"}, {"is_enabled": False}, None])
    def test_what_waits_goes_on_unless_its_endpoint_is_disabled_or_deleted(
        self, receiver: Receiver, change: dict[str, Any] | None
    ) -> None:
        version = make_version()
        endpoint = make_endpoint(receiver.url(), version)
        make_ended_run(version)
        count_ended_runs()
        if change is None:
            endpoint.delete()
        else:
            WebhookEndpoint.objects.update(**change)
        send_due()
        delivery = WebhookDelivery.objects.get()
        is_sent = "url" in (change or {})
        assert (delivery.state, len(receiver.received)) == (("delivered", 1) if is_sent else ("failed", 0))


SIGNERS = pytest.mark.parametrize(
    "make_signer", [fetch_installation_secret, lambda: make_endpoint("https://hooks.example.com/")]
)


@SIGNERS
def test_for_seven_days_either_secret_counts_and_then_the_new_one_alone(make_signer: Callable[[], Any]) -> None:
    signer = make_signer()
    before = derive_secret(signer)
    rotate_secret(signer)
    after = derive_secret(signer)
    # Receivers that read one signature only read the first.
    assert after != before and list_secrets(signer) == [after, before]
    let_days_pass(signer, 6.9)
    assert list_secrets(signer) == [after, before]
    with pytest.raises(RotatedRecentlyError):
        rotate_secret(signer)
    let_days_pass(signer, 0.2)
    assert list_secrets(signer) == [after]
    rotate_secret(signer)
    rotate_secret(signer, ends_previous=True)
    assert list_secrets(signer)[0] == derive_secret(signer) and after not in list_secrets(signer)
    assert AuditEntry.objects.filter(action="webhook_secret_changed").count() == 3


@pytest.mark.sql
@pytest.mark.django_db(transaction=True)
def test_of_several_rotations_in_the_same_moment_one_is_made() -> None:
    endpoint, gate = make_endpoint("https://hooks.example.com/"), threading.Barrier(4)
    before = derive_secret(endpoint)

    def begin(_: int) -> bool:
        try:
            connection.ensure_connection()
            own = WebhookEndpoint.objects.get()
            gate.wait(timeout=30)
            rotate_secret(own)
        except RotatedRecentlyError:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(begin, range(4))) == [False] * 3 + [True]
    assert before in list_secrets(WebhookEndpoint.objects.get())


def test_another_secret_key_counts_beside_the_old_one_and_a_rotation(receiver: Receiver, settings: Any) -> None:
    settings.SECRET_KEY = OLD
    signer = fetch_installation_secret()
    secrets = [derive_secret(signer)]
    rotate_secret(signer)
    secrets.append(derive_secret(signer))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    secrets.append(derive_secret(signer))
    delivery = make_delivery(receiver.url())
    received = send(receiver, delivery)
    assert len(set(secrets)) == 3 and all(received.is_signed_with(secret) for secret in secrets)
    settings.SECRET_KEY_FALLBACKS = []
    WebhookDelivery.objects.update(state="waiting")
    received = send(receiver, delivery)
    assert [received.is_signed_with(secret) for secret in secrets] == [False, False, True]


def test_the_command_prints_the_secret_of_the_installation_and_rotates_it() -> None:
    first = run_command()
    second = run_command("--change")
    with pytest.raises(CommandError, match="--again"):
        run_command("--change")
    third = run_command("--change", "--again")
    assert len({first, second, third}) == 3 and run_command() == third
    with pytest.raises(CommandError):
        run_command("--again")
