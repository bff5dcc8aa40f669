"""Another secret for one flow or one user: receivers change over in peace, and nobody else notices."""

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
from django.utils.html import escape

from flows.models import WebhookSecretChange
from flows.webhook_secret import WebhookSigner
from runs.models import TrailEntry, WebhookDelivery
from runs.tally import tally_ended_runs
from runs.webhooks.secrets import change_secret
from runs.webhooks.tasks import send_due
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import read_words
from tests.runs.webhooks.deliveries import make_delivery, make_ended_run, set_flow_address
from tests.runs.webhooks.receiver import Received, Receiver

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

OLD, NEW = "an-old-key-0123456789-abcdefghijklmnopqrstuvwxyz", "a-new-key-zyxwvutsrqponmlkjihgfedcba-9876543210"


@pytest.fixture
def ada() -> User:
    return User.objects.create_superuser("ada")


@pytest.fixture
def website(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def read_secret(owner: Any) -> str:
    signer = WebhookSigner.of_user(owner.pk) if isinstance(owner, User) else WebhookSigner.of_flow(owner.pk)
    return signer.secret


def read_number(website: Client, page: str) -> str:
    """What the form of the page carries, by which it tells what it was shown with."""
    found = re.search(r'name="number" value="(\d+)"', website.get(page).content.decode())
    assert found
    return found[1]


def change(website: Client, page: str) -> None:
    """Open the page, and press its button."""
    assert website.post(page, {"number": read_number(website, page)}).status_code == 302


def let_days_pass(days: float) -> None:
    for row in WebhookSecretChange.objects.all():
        row.changed_at -= timedelta(days=days)
        row.save()


def tell(receiver: Receiver, ada: User, *, of_flow: bool) -> Received:
    """What a receiver is told of one more run of the flow, or of ada."""
    version = make_version(make_page_flow(name="letters"))
    set_flow_address(version, receiver.url() if of_flow else "")
    run = make_ended_run(version, started_by=ada, webhook_url="" if of_flow else receiver.url())
    tally_ended_runs()
    send_due()
    return receiver.find_last(WebhookDelivery.objects.get(run=run).message_id)


@pytest.mark.parametrize("of_flow", [True, False])
def test_for_seven_days_either_secret_will_do_and_then_the_new_one_alone(
    receiver: Receiver, ada: User, website: Client, of_flow: bool
) -> None:
    flow = make_version(make_page_flow(name="letters")).flow
    owner, page = (flow, "/flows/letters/webhook-secret/") if of_flow else (ada, "/account/webhook-secret/")
    before = read_secret(owner)
    change(website, page)
    after = read_secret(owner)
    assert after != before
    received = tell(receiver, ada, of_flow=of_flow)
    assert received.is_signed_with(after) and received.is_signed_with(before)
    # New receivers take the first signature, those that take one only.
    assert received.headers["webhook-signature"].count("v1,") == 2
    let_days_pass(6.9)
    assert tell(receiver, ada, of_flow=of_flow).is_signed_with(before)
    let_days_pass(0.2)
    received = tell(receiver, ada, of_flow=of_flow)
    assert received.is_signed_with(after) and not received.is_signed_with(before)
    assert read_secret(owner) == after


def test_others_keep_theirs(ada: User, website: Client) -> None:
    flows = [make_version(make_page_flow(name=name)).flow for name in ("letters", "invoices")]
    others = [User.objects.create_user("olga"), flows[1]]
    before = [read_secret(owner) for owner in (*others, ada)]
    change(website, "/flows/letters/webhook-secret/")
    assert [read_secret(owner) for owner in (*others, ada)] == before
    change(website, "/account/webhook-secret/")
    assert [read_secret(owner) for owner in others] == before[:2] and read_secret(ada) != before[2]


def test_a_second_change_ends_the_one_before_the_last_at_once(receiver: Receiver, ada: User, website: Client) -> None:
    secrets = [read_secret(ada)]
    for _ in range(2):
        change(website, "/account/webhook-secret/")
        secrets.append(read_secret(ada))
    assert len(set(secrets)) == 3
    received = tell(receiver, ada, of_flow=False)
    assert [received.is_signed_with(secret) for secret in secrets] == [False, True, True]


@pytest.mark.parametrize("changed_before", [False, True])
@pytest.mark.parametrize("of_flow", [True, False])
def test_a_form_that_is_sent_twice_makes_one_change(
    receiver: Receiver, ada: User, website: Client, of_flow: bool, changed_before: bool
) -> None:
    flow = make_version(make_page_flow(name="letters")).flow
    owner, page = (flow, "/flows/letters/webhook-secret/") if of_flow else (ada, "/account/webhook-secret/")
    if changed_before:
        change(website, page)
        let_days_pass(8)
    before, form = read_secret(owner), {"number": read_number(website, page)}
    entries = TrailEntry.objects.filter(action="webhook_secret_changed")
    count = entries.count()
    words = [read_words(website.post(page, form, follow=True).content.decode()) for _ in range(2)]
    assert ["changed meanwhile" in said for said in words] == [False, True]
    assert entries.count() == count + 1
    received = tell(receiver, ada, of_flow=of_flow)
    assert received.is_signed_with(before) and received.is_signed_with(read_secret(owner))


@pytest.mark.parametrize("number", [None, "", "1", "-1", "00", "one", "9" * 30])
def test_a_form_that_was_shown_with_something_else_changes_nothing(
    ada: User, website: Client, number: str | None
) -> None:
    answer = website.post("/account/webhook-secret/", {} if number is None else {"number": number}, follow=True)
    assert "changed meanwhile" in read_words(answer.content.decode())
    assert not WebhookSecretChange.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [0, 1])
def test_of_those_who_change_it_in_the_same_moment_one_does(number: int) -> None:
    owner = User.objects.create_user("olga")
    if number:
        assert change_secret(owner, number=0)
    before, gate = read_secret(owner), threading.Barrier(5)

    def begin(_: int) -> bool:
        try:
            connection.ensure_connection()
            gate.wait(timeout=30)
            return change_secret(owner, number=number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(begin, range(5))) == [False] * 4 + [True]
    assert before in WebhookSigner.of_user(owner.pk).read_secrets().earlier
    assert WebhookSecretChange.objects.get().number == number + 1
    assert TrailEntry.objects.filter(action="webhook_secret_changed").count() == number + 1


def test_a_change_and_another_secret_key_at_the_same_time(
    receiver: Receiver, ada: User, website: Client, settings: Any
) -> None:
    settings.SECRET_KEY = OLD
    website.force_login(ada)
    secrets = [read_secret(ada)]
    change(website, "/account/webhook-secret/")
    secrets.append(read_secret(ada))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    secrets.append(read_secret(ada))
    received = tell(receiver, ada, of_flow=False)
    assert len(set(secrets)) == 3 and all(received.is_signed_with(secret) for secret in secrets)


def test_a_retry_is_signed_with_what_counts_by_then(receiver: Receiver, ada: User, website: Client) -> None:
    delivery = make_delivery(receiver.url(), started_by=ada)
    change(website, "/account/webhook-secret/")
    WebhookDelivery.objects.filter(pk=delivery.pk).update(next_try_at=Now())
    send_due()
    assert receiver.find_last(delivery.message_id).is_signed_with(read_secret(ada))


def test_the_pages_ask_first_and_say_until_when_the_one_before_counts(ada: User, website: Client) -> None:
    flow = make_version(make_page_flow(name="letters")).flow
    for question, shown in (
        ("/flows/letters/webhook-secret/", f"/admin/flows/flow/{flow.pk}/change/"),
        ("/account/webhook-secret/", "/account/"),
    ):
        page = website.get(shown).content.decode()
        assert f'href="{question}"' in page and "signed with the one of before" not in page
        asked = read_words(website.get(question).content.decode())
        assert "Change the secret of" in asked and "for 7 days" in asked and "changed lately" not in asked
        assert not WebhookSecretChange.objects.exists()
        answer = website.post(question, {"number": "0"}, follow=True)
        assert answer.redirect_chain == [(shown, 302)]
        words = read_words(answer.content.decode())
        assert "The secret is another one. That of before counts for 7 days more." in words
        assert "Messages are signed with the one of before, too, until" in words
        asked = read_words(website.get(question).content.decode())
        assert "It was changed lately already" in asked and "another change ends it at once" in asked
        let_days_pass(8)
        assert "signed with the one of before" not in website.get(shown).content.decode()
        WebhookSecretChange.objects.all().delete()


def run_command(*arguments: str) -> tuple[str, str]:
    out, errors = StringIO(), StringIO()
    call_command("webhook_secret", *arguments, stdout=out, stderr=errors)
    return out.getvalue().strip(), errors.getvalue().strip()


@pytest.mark.parametrize("arguments", [("--flow", "letters"), ("--user", "ada"), ("--nobody",)])
def test_the_command_changes_it_too(ada: User, arguments: tuple[str, ...]) -> None:
    make_version(make_page_flow(name="letters"))
    before, said = run_command(*arguments)
    assert said == ""
    after, said = run_command(*arguments, "--change")
    assert after != before and after.startswith("whsec_")
    assert said.startswith("Messages are signed with the one of before, too, until 20")
    assert run_command(*arguments)[0] == after
    let_days_pass(8)
    assert run_command(*arguments) == (after, "")


def test_the_command_ends_what_still_counts_only_if_that_is_said(ada: User) -> None:
    first, _ = run_command("--user", "ada")
    second, _ = run_command("--user", "ada", "--change")
    with pytest.raises(CommandError, match=r"the secret of before counts until 20.* Add --again if that is meant"):
        run_command("--user", "ada", "--change")
    secrets = WebhookSigner.of_user(ada.pk).read_secrets()
    assert (secrets.current, secrets.earlier) == (second, [first])
    third, _ = run_command("--user", "ada", "--change", "--again")
    secrets = WebhookSigner.of_user(ada.pk).read_secrets()
    assert (secrets.current, secrets.earlier) == (third, [second])
    let_days_pass(8)
    assert run_command("--user", "ada", "--change")[0] != third
    with pytest.raises(CommandError, match="goes with “--change” only"):
        run_command("--user", "ada", "--again")


def test_the_trail_tells_who_did_it_and_holds_no_secret(ada: User, website: Client) -> None:
    make_version(make_page_flow(name="letters", title="Letters"))
    change(website, "/flows/letters/webhook-secret/")
    change(website, "/account/webhook-secret/")
    run_command("--nobody", "--change")
    entries = TrailEntry.objects.filter(action="webhook_secret_changed").order_by("pk")
    assert [(one.actor_name, one.object_kind, one.object_label) for one in entries] == [
        ("ada", "flow", "Letters"),
        ("ada", "user", "ada"),
        (entries[2].actor_name, "", "runs that nobody started"),
    ]
    assert "whsec_" not in str(list(entries.values_list()))


def test_what_is_no_flow_s_is_not_found(website: Client) -> None:
    assert website.get("/flows/nowhere/webhook-secret/").status_code == 404
    assert website.post("/flows/nowhere/webhook-secret/").status_code == 404


def test_the_api_gives_the_one_of_now(ada: User, website: Client) -> None:
    before = read_secret(ada)
    change(website, "/account/webhook-secret/")
    told = website.get("/api/v1/webhook-secret").json()["secret"]
    assert told == read_secret(ada) != before
    assert escape(told) in website.get("/account/").content.decode()
