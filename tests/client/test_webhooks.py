"""Webhooks from a terminal: what receivers were told, and telling them again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from flows.webhook_secret import WebhookSigner
from runs.models import WebhookDelivery, WebhookTry
from tests.api.long_work import ADDRESS, make_delivery
from tests.client.conftest import Terminal
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.any_database


def make_lost() -> WebhookDelivery:
    """A delivery that was given up."""
    now = timezone.now()
    run = make_run(make_version(), status="failed", ended_at=now)
    delivery = make_delivery(run, state="failed", try_count=1, last_status=500, next_try_at=None, ended_at=now)
    WebhookTry.objects.create(
        delivery=delivery, number=1, started_at=now - timedelta(seconds=2), ended_at=now, status=500, problem="No luck."
    )
    return delivery


def test_deliveries_are_listed_by_status(terminal: Terminal) -> None:
    lost = make_lost()
    make_delivery(lost.run, url="https://example.com/other")
    header, row = terminal.run("webhooks", "list", "--status", "failed").out.splitlines()
    assert header.split() == ["DELIVERY", "RUN", "FLOW", "EVENT", "STATUS", "TRIES", "ANSWER", "CREATED", "TO"]
    assert row.split()[:7] == [str(lost.pk), str(lost.run_id), "example", "run.failed", "failed", "1", "500"]
    assert len(terminal.run("webhooks", "list", "--run", str(lost.run_id), "--json").json) == 2
    assert terminal.run("webhooks", "list", "--flow", "nowhere").status == 3


def test_one_is_shown_with_its_tries_and_what_is_sent(terminal: Terminal) -> None:
    lost = make_lost()
    shown = terminal.run("webhooks", "show", str(lost.pk), "--payload").out
    assert f"Delivery {lost.pk} to {ADDRESS}: failed" in shown
    assert "No luck." in shown and '"type": "run.failed"' in shown
    missing = terminal.run("webhooks", "show", "4711")
    assert (missing.status, missing.err) == (3, "toolflow: There is no delivery 4711.\n")


def test_it_is_sent_again(terminal: Terminal) -> None:
    lost = make_lost()
    done = terminal.run("webhooks", "resend", str(lost.pk))
    assert (done.status, done.out) == (0, f"Delivery {lost.pk} is about to be sent to {ADDRESS}.\n")
    lost.refresh_from_db()
    assert lost.is_waiting


def test_one_that_there_is_not_keeps_no_other_from_being_sent_again(terminal: Terminal) -> None:
    lost = make_lost()
    done = terminal.run("webhooks", "resend", "4711", str(lost.pk), "--json")
    assert (done.status, [one["id"] for one in done.json]) == (1, [lost.pk])
    assert done.err.splitlines() == [
        "toolflow: delivery 4711: There is no delivery 4711.",
        f"Delivery {lost.pk} is about to be sent to {ADDRESS}.",
    ]


def test_the_secret_of_a_receiver_is_printed_alone(terminal: Terminal) -> None:
    flow = make_version().flow
    own = WebhookSigner.of_user(User.objects.get(username="editor").pk).secret
    done = terminal.run("webhooks", "secret")
    assert (done.status, done.out, done.err) == (0, f"{own}\n", "")
    assert terminal.run("webhooks", "secret", "--flow", "example").out == f"{WebhookSigner.of_flow(flow.pk).secret}\n"
    assert terminal.run("webhooks", "secret", "--flow", "nowhere").err == "toolflow: There is no flow “nowhere”.\n"


@pytest.mark.parametrize("of_flow", [True, False])
def test_a_secret_is_changed_and_once_more_only_if_that_is_said(terminal: Terminal, of_flow: bool) -> None:
    flow, user = make_version().flow, User.objects.get(username="editor")
    signer = WebhookSigner.of_flow(flow.pk) if of_flow else WebhookSigner.of_user(user.pk)
    command = ("webhooks", "secret", *(("--flow", "example") if of_flow else ()))
    secrets = [signer.secret]
    done = terminal.run(*command, "--change")
    secrets.append(signer.secret)
    assert (done.status, done.out) == (0, f"{secrets[1]}\n") and secrets[1] != secrets[0]
    assert done.err.startswith("Messages are signed with the one of before, too, until 20")
    refused = terminal.run(*command, "--change")
    assert (refused.status, refused.out) == (3, "")
    assert "changed lately already" in refused.err and "say “again” if that is meant" in refused.err
    assert signer.read_secrets().earlier == [secrets[0]]
    shown = terminal.run(*command, "--change", "--again", "--json").json
    assert shown["secret"] == signer.secret and signer.read_secrets().earlier == [secrets[1]]
    refused = terminal.run(*command, "--again")
    assert (refused.status, refused.err) == (3, "toolflow: --again is for another change; it takes --change.\n")


def test_who_may_not_is_told_what_is_missing(make_terminal: Callable[..., Terminal]) -> None:
    done = make_terminal("Viewer").run("webhooks", "resend", str(make_lost().pk))
    assert (done.status, done.err) == (3, "toolflow: Your account lacks the permission “runs.change_run”.\n")
