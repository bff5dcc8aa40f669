"""In whose name commands and the worker do what they do."""

from __future__ import annotations

import os
import pwd
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from runs.models import ApiToken, RateLimit, TrailEntry
from runs.retention.tasks import purge_due
from runs.tokens import make_token
from runs.trail import acting
from runs.trail.acting import act_as_command

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test starts this process for, it is forgotten."""
    monkeypatch.setattr(acting, "_process", "")


def test_a_token_that_the_worker_clears_away_was_deleted_by_toolflow() -> None:
    row, _ = make_token(user=User.objects.create_user("olga"), name="old", scope="read", lifetime=timedelta(days=1))
    ApiToken.objects.filter(pk=row.pk).update(expiry=timezone.now() - timedelta(days=100))
    purge_due()
    assert TrailEntry.objects.get(action="token_deleted").actor_name == "ToolFlow"


def name_actor() -> str:
    RateLimit.objects.create(model=f"model-{RateLimit.objects.count()}", calls_in_flight=1)
    return TrailEntry.objects.latest("pk").actor_name


def test_a_command_is_done_by_a_user_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    act_as_command("shell")
    assert name_actor() == f"Command line: {pwd.getpwuid(os.getuid()).pw_name}"
    act_as_command("shell", caller="olga")
    assert name_actor() == "Command line: olga"
    monkeypatch.setattr(os, "getuid", lambda: 3_000_000_000)
    act_as_command("shell")
    assert name_actor() == "Command line: user 3000000000"


def test_whoever_started_a_worker_did_not_do_its_work() -> None:
    act_as_command("run_worker", caller="olga")
    assert name_actor() == "ToolFlow"


@pytest.mark.parametrize(
    ("command", "label", "details"),
    [
        (("axes_reset",), "", {"counters": 2}),
        (("axes_reset_username", "olga"), "olga", {"counters": 1}),
        (("axes_reset_ip", "192.0.2.7"), "", {"counters": 1, "of_address": "192.0.2.7"}),
    ],
)
def test_lifted_lockouts_are_told_of(command: tuple[str, ...], label: str, details: Any, capsys: Any) -> None:
    User.objects.create_user("olga")
    for name, address in (("olga", "192.0.2.7"), ("nina", "192.0.2.8")):
        AccessAttempt.objects.create(username=name, ip_address=address, failures_since_start=5)
    act_as_command(command[0])
    call_command(*command)
    entry = TrailEntry.objects.get(action="lockout_lifted")
    assert (entry.object_label, entry.details) == (label, details)
    assert entry.actor_name.startswith("Command line: ")
