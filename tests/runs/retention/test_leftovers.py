"""What piles up beside runs goes after a while, and not before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from django.utils.module_loading import import_string

from runs.models import IdempotentRequest, OriginalInput, WebhookDelivery
from runs.retention.leftovers import clear, list_leftovers
from tests.runs.builders import make_run

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def clear_all() -> dict[str, int]:
    now = timezone.now()
    found = {leftover.name: sum(clear(leftover, now=now)) for leftover in list_leftovers()}
    return {name: count for name, count in found.items() if count}


def test_deliveries_go_a_month_after_they_ended_and_never_while_they_wait() -> None:
    run, now = make_run(), timezone.now()
    for days, state in ((31, "delivered"), (31, "failed"), (29, "delivered"), (31, "waiting")):
        WebhookDelivery.objects.create(
            run=run,
            event="run.succeeded",
            url=f"https://{days}-{state}.example/",
            host="a",
            state=state,
            ended_at=now - timedelta(days=days) if state != "waiting" else None,
        )
    assert clear_all() == {"webhook deliveries": 2}
    assert WebhookDelivery.objects.count() == 2


def test_answers_to_idempotent_requests_go_after_a_day() -> None:
    user = User.objects.create(username="automator")
    old, new = (IdempotentRequest.objects.create(user=user, key=key, fingerprint="x") for key in ("old", "new"))
    IdempotentRequest.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=25))
    assert clear_all() == {"answers kept for Idempotency-Keys": 1}
    assert IdempotentRequest.objects.get() == new


def test_an_input_as_it_was_before_redaction_goes_within_hours_also_if_nothing_can_be_made_of_the_run() -> None:
    now = timezone.now()
    ended = [
        make_run(status="succeeded", ended_at=now - timedelta(minutes=minutes), is_input_redacted=True)
        for minutes in (61, 59)
    ]
    waiting = make_run(created_at=now - timedelta(days=1), is_input_redacted=True)
    for run in (*ended, waiting):
        OriginalInput.objects.create(run=run, input={"name": "Ann"})
    assert clear_all() == {"inputs of ended runs as they were before redaction": 1}
    assert {row.run_id for row in OriginalInput.objects.all()} == {ended[1].pk, waiting.pk}


def test_failures_to_sign_in_go_once_they_lock_out_nobody() -> None:
    for hours in (23, 25):
        attempt = AccessAttempt.objects.create(username="olga", ip_address=f"192.0.2.{hours}", failures_since_start=9)
        AccessAttempt.objects.filter(pk=attempt.pk).update(attempt_time=timezone.now() - timedelta(hours=hours))
    assert clear_all() == {"failures to sign in": 1}
    assert AccessAttempt.objects.get().ip_address == "192.0.2.23"


def test_sign_ins_that_expired_go() -> None:
    store: type[SessionStore] = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    user = User.objects.create_user("olga")
    for seconds in (-60, 60):
        session = store()
        session[SESSION_KEY] = str(user.pk)
        session.set_expiry(seconds)
        session.save()
    assert clear_all() == {"expired sign-ins": 1}
