"""In whose name commands and the worker do what they do."""

from __future__ import annotations

import os
import pwd
from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.management import call_command
from django.test import RequestFactory
from django.utils import timezone

from runs.audit_log import actor
from runs.audit_log.actor import act_as_command
from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import ApiToken, AuditEntry, RateLimit
from runs.observability.log_events import current_request
from runs.retention.tasks import purge_due
from runs.tokens import create_token
from toolflow_site.openid_accounts import put_into_groups

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the command that a test starts."""
    monkeypatch.setattr(actor, "_process_name", "")


def test_a_token_that_the_worker_clears_away_was_deleted_by_toolflow() -> None:
    row, _ = create_token(user=User.objects.create_user("olga"), name="old", scope="read", lifetime=timedelta(days=1))
    ApiToken.objects.filter(pk=row.pk).update(expiry=timezone.now() - timedelta(days=100))
    purge_due()
    assert AuditEntry.objects.get(action="token_deleted").actor_name == "ToolFlow"


def name_actor() -> str:
    RateLimit.objects.create(model=f"model-{RateLimit.objects.count()}", calls_in_flight=1)
    return AuditEntry.objects.latest("pk").actor_name


def test_a_command_is_done_by_a_user_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    act_as_command("shell")
    assert name_actor() == f"Command line: {pwd.getpwuid(os.getuid()).pw_name}"
    act_as_command("shell", caller="olga")
    assert name_actor() == "Command line: olga"
    monkeypatch.setattr(os, "getuid", lambda: 3_000_000_000)
    act_as_command("shell")
    assert name_actor() == "Command line: user 3000000000"
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
def test_lifted_lockouts_have_an_entry(command: tuple[str, ...], label: str, details: Any, capsys: Any) -> None:
    User.objects.create_user("olga")
    for name, address in (("olga", "192.0.2.7"), ("nina", "192.0.2.8")):
        AccessAttempt.objects.create(username=name, ip_address=address, failures_since_start=5)
    act_as_command(command[0])
    call_command(*command)
    entry = AuditEntry.objects.get(action="lockout_lifted")
    assert (entry.object_label, entry.details) == (label, details)
    assert entry.actor_name.startswith("Command line: ")


@pytest.mark.parametrize("signed_in", ["", "ada"])
def test_groups_that_follow_from_a_provider_are_given_by_it(rf: RequestFactory, settings: Any, signed_in: str) -> None:
    settings.TOOLFLOW_OIDC_GROUPS = {"support": "Watchers"}
    group = Group.objects.create(name="Watchers")
    group.permissions.add(Permission.objects.get(codename="change_flow"))
    olga = User.objects.create_user("olga")
    request = rf.get("/")
    request.user = User.objects.create_user(signed_in) if signed_in else AnonymousUser()
    start = AuditEntry.objects.latest("pk").pk

    token = current_request.set(request)
    put_into_groups(olga, {"Watchers"})
    log_audit_event(action=AuditAction.SIGNED_OUT)
    current_request.reset(token)
    stored = AuditEntry.objects.filter(pk__gt=start).order_by("pk").values_list("action", "actor_name", "actor")
    assert list(stored) == [
        ("rights_changed", "Sign-in provider", None),
        ("user_changed", "Sign-in provider", None),
        ("signed_out", signed_in, request.user.pk),
    ]
