"""Which messages a run that has ended makes, once each, and who is woken to send them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ
from django_q.signing import SignedPackage

from runs import rollup
from runs.models import Run, WebhookDelivery
from runs.rollup import Rollup, count_ended_runs
from runs.webhooks.deliveries import create_deliveries
from runs.webhooks.tasks import SEND_TASK
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.webhooks.deliveries import make_ended_run, make_endpoint

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


@pytest.mark.parametrize(("urls", "messages"), [((OWN, OWN, ""), [SEND_TASK]), (("",), [])])
def test_a_worker_is_woken_once_for_all_that_ended_together(
    django_capture_on_commit_callbacks: Any, urls: list[str], messages: list[str]
) -> None:
    version = make_version()
    for url in urls:
        make_ended_run(version, webhook_url=url)
    with django_capture_on_commit_callbacks(execute=True):
        count_ended_runs()
    assert list_messages() == messages


def test_a_broker_that_is_away_keeps_no_run_from_being_counted(
    django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr("runs.webhooks.tasks.async_task", fail)
    make_ended_run(webhook_url=OWN)
    with django_capture_on_commit_callbacks(execute=True):
        assert count_ended_runs() == 1


@pytest.mark.parametrize(("seconds", "messages"), [(30, []), (-2, [SEND_TASK])])
def test_a_drain_wakes_a_sender_for_a_retry_that_is_due(
    django_capture_on_commit_callbacks: Any, seconds: int, messages: list[str]
) -> None:
    make_ended_run(webhook_url=OWN)
    count_ended_runs()
    WebhookDelivery.objects.update(next_try_at=timezone.now() + timedelta(seconds=seconds))
    drain = Rollup()
    with django_capture_on_commit_callbacks(execute=True):
        # The second time comes too early to look again.
        drain.advance(is_busy=False)
        drain.advance(is_busy=False)
    assert list_messages() == messages
