"""Another secret for one flow or the installation: for seven days receivers may have either."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.models.functions import Now
from django.test import Client

from flows.models import Flow, WebhookSecretChange
from runs.models import TrailEntry, WebhookDelivery
from runs.rollup import count_ended_runs
from runs.webhooks.secrets import change_secret, find_signer
from runs.webhooks.tasks import send_due
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import read_words
from tests.runs.webhooks.deliveries import make_delivery, make_ended_run, set_flow_address
from tests.runs.webhooks.receiver import Received, Receiver

pytestmark = pytest.mark.django_db

PAGE = "/flows/letters/webhook-secret/"
OLD, NEW = "an-old-key-0123456789-abcdefghijklmnopqrstuvwxyz", "a-new-key-zyxwvutsrqponmlkjihgfedcba-9876543210"


@pytest.fixture
def website() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


@pytest.fixture
def letters() -> Flow:
    flow: Flow = make_version(make_page_flow(name="letters", title="Letters")).flow
    return flow


def read_secret(flow: Flow | None) -> str:
    return find_signer(flow).secret


def change(flow: Flow | None) -> None:
    assert change_secret(flow, number=find_signer(flow).read_secrets().number)


def let_days_pass(days: float) -> None:
    for row in WebhookSecretChange.objects.all():
        row.changed_at -= timedelta(days=days)
        row.save()


def notify(receiver: Receiver, flow: Flow | None) -> Received:
    """What the address of a flow gets when a run ends; or for None the address given with a run."""
    version = make_version(make_page_flow(name="letters"))
    set_flow_address(version, receiver.url() if flow else "")
    run = make_ended_run(version, webhook_url="" if flow else receiver.url())
    count_ended_runs()
    send_due()
    return receiver.find_last(WebhookDelivery.objects.get(run=run).message_id)


@pytest.mark.parametrize("of_flow", [True, False])
def test_for_seven_days_either_secret_will_do_and_then_the_new_one_alone(
    receiver: Receiver, letters: Flow, of_flow: bool
) -> None:
    owner, other = (letters, None) if of_flow else (None, letters)
    before, kept = read_secret(owner), read_secret(other)
    change(owner)
    after = read_secret(owner)
    assert after != before and read_secret(other) == kept
    received = notify(receiver, owner)
    assert received.is_signed_with(after) and received.is_signed_with(before)
    # New receivers take the first signature, those that take one only.
    assert received.headers["webhook-signature"].count("v1,") == 2
    let_days_pass(6.9)
    assert notify(receiver, owner).is_signed_with(before)
    let_days_pass(0.2)
    received = notify(receiver, owner)
    assert received.is_signed_with(after) and not received.is_signed_with(before)
    assert read_secret(owner) == after


def test_a_second_change_ends_the_one_before_the_last_at_once(receiver: Receiver) -> None:
    secrets = [read_secret(None)]
    for _ in range(2):
        change(None)
        secrets.append(read_secret(None))
    received = notify(receiver, None)
    assert [received.is_signed_with(secret) for secret in secrets] == [False, True, True]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [0, 1])
def test_of_several_changes_in_the_same_moment_one_is_made(letters: Flow, number: int) -> None:
    if number:
        assert change_secret(letters, number=0)
    before, gate = read_secret(letters), threading.Barrier(5)

    def begin(_: int) -> bool:
        try:
            connection.ensure_connection()
            gate.wait(timeout=30)
            return change_secret(letters, number=number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(begin, range(5))) == [False] * 4 + [True]
    assert before in find_signer(letters).read_secrets().earlier
    assert WebhookSecretChange.objects.get().number == number + 1
    assert TrailEntry.objects.filter(action="webhook_secret_changed").count() == number + 1


def test_a_change_and_another_secret_key_at_the_same_time(receiver: Receiver, settings: Any) -> None:
    settings.SECRET_KEY = OLD
    secrets = [read_secret(None)]
    change(None)
    secrets.append(read_secret(None))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    secrets.append(read_secret(None))
    received = notify(receiver, None)
    assert len(set(secrets)) == 3 and all(received.is_signed_with(secret) for secret in secrets)


def test_a_retry_is_signed_with_what_counts_by_then(receiver: Receiver) -> None:
    delivery = make_delivery(receiver.url())
    change(None)
    WebhookDelivery.objects.filter(pk=delivery.pk).update(next_try_at=Now())
    send_due()
    assert receiver.find_last(delivery.message_id).is_signed_with(read_secret(None))


def test_the_page_of_a_flow_asks_first_and_says_until_when_the_previous_one_counts(
    letters: Flow, website: Client
) -> None:
    editor = f"/admin/flows/flow/{letters.pk}/change/"
    page = website.get(editor).content.decode()
    assert f'href="{PAGE}"' in page and "signed with the previous one" not in page
    asked = read_words(website.get(PAGE).content.decode())
    assert "Change the secret of Letters’s webhook?" in asked and "for 7 days" in asked
    assert not WebhookSecretChange.objects.exists()
    answer = website.post(PAGE, {"number": "0"}, follow=True)
    assert answer.redirect_chain == [(editor, 302)]
    words = read_words(answer.content.decode())
    assert "The secret is changed. The previous one counts for 7 days more." in words
    assert "Messages are signed with the previous one, too, until" in words
    assert "It was changed recently." in read_words(website.get(PAGE).content.decode())


@pytest.mark.parametrize("changed_before", [False, True])
def test_a_form_that_is_sent_twice_makes_one_change(
    receiver: Receiver, letters: Flow, website: Client, changed_before: bool
) -> None:
    if changed_before:
        change(letters)
        let_days_pass(8)
    before = read_secret(letters)
    found = re.search(r'name="number" value="(\d+)"', website.get(PAGE).content.decode())
    assert found
    entries = TrailEntry.objects.filter(action="webhook_secret_changed")
    count = entries.count()
    words = [read_words(website.post(PAGE, {"number": found[1]}, follow=True).content.decode()) for _ in range(2)]
    assert ["changed meanwhile" in said for said in words] == [False, True]
    assert entries.count() == count + 1
    received = notify(receiver, letters)
    assert received.is_signed_with(before) and received.is_signed_with(read_secret(letters))


def test_the_page_of_an_unknown_flow_is_not_found(website: Client) -> None:
    assert website.get("/flows/nowhere/webhook-secret/").status_code == 404
    assert website.post("/flows/nowhere/webhook-secret/").status_code == 404


def run_command(*arguments: str) -> tuple[str, str]:
    out, errors = StringIO(), StringIO()
    call_command("webhook_secret", *arguments, stdout=out, stderr=errors)
    return out.getvalue().strip(), errors.getvalue().strip()


@pytest.mark.parametrize("arguments", [("--flow", "letters"), ()])
def test_the_command_ends_what_still_counts_only_if_that_is_said(letters: Flow, arguments: tuple[str, ...]) -> None:
    first, said = run_command(*arguments)
    assert said == ""
    second, said = run_command(*arguments, "--change")
    assert said.startswith("Messages are signed with the previous one, too, until 20")
    with pytest.raises(CommandError, match=r"the previous secret counts until 20.* Add --again if that is meant"):
        run_command(*arguments, "--change")
    third, _ = run_command(*arguments, "--change", "--again")
    secrets = find_signer(letters if arguments else None).read_secrets()
    assert (secrets.current, secrets.earlier) == (third, [second]) and len({first, second, third}) == 3
    let_days_pass(8)
    assert run_command(*arguments) == (third, "")
    assert run_command(*arguments, "--change")[0] != third
    with pytest.raises(CommandError, match="goes with “--change” only"):
        run_command(*arguments, "--again")


def test_the_trail_holds_who_did_it_and_no_secret(letters: Flow, website: Client) -> None:
    website.post(PAGE, {"number": "0"})
    run_command("--change")
    by_page, by_command = TrailEntry.objects.filter(action="webhook_secret_changed").order_by("pk")
    assert (by_page.actor_name, by_page.object_kind, by_page.object_label) == ("ada", "flow", "Letters")
    assert (by_command.object_kind, by_command.object_label) == ("", "addresses given with runs")
    assert "whsec_" not in str(list(TrailEntry.objects.values_list()))
