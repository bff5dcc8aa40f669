"""Whatever page, API or command changes something, there is an entry in the name of who did it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.management import call_command
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runs.audit_log import actor
from runs.audit_log.actor import act_as_command
from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import ApiToken, AuditEntry, RateLimit, Run
from runs.observability.log_events import current_request
from runs.retention.tasks import purge_due
from runs.tokens import create_token, revoke_token
from tests.engine.builders import make_flow, make_step
from tests.runs.builders import make_run, make_version
from toolflow_site.openid_accounts import put_into_groups

pytestmark = pytest.mark.django_db

List = Callable[[], list[tuple[str, str, str, Any]]]
RIGHTS = {"is_active": True, "is_staff": False, "is_superuser": False}


@pytest.fixture
def ada(client: Client) -> User:
    user = User.objects.create_superuser("ada", password="correct horse")
    client.force_login(user)
    return user


def watch() -> List:
    """Give a function that lists the entries from now on: actor, action, object, details."""
    last = AuditEntry.objects.order_by("pk").values_list("pk", flat=True).last() or 0

    def list_entries() -> list[tuple[str, str, str, Any]]:
        rows = AuditEntry.objects.filter(pk__gt=last).order_by("pk")
        return [(row.actor_name, row.action, row.object_label, row.details) for row in rows]

    return list_entries


def test_flows_are_archived_made_live_and_exported(client: Client, ada: User, tmp_path: Path) -> None:
    flow = make_version().flow
    make_version(make_flow(make_step()).model_copy(update={"name": "another"}))
    entries = watch()
    for action in ("archive", "take-out", "versions/1/make-live"):
        client.post(f"/admin/flows/flow/{flow.pk}/{action}/")
    client.get(f"/admin/flows/flow/{flow.pk}/download/")
    client.get("/admin/flows/flow/download/")
    call_command("export_flow", flow.name, output=str(tmp_path / "flow.yaml"))
    assert entries() == [
        ("ada", "flow_archived", flow.title, {}),
        ("ada", "flow_taken_out", flow.title, {}),
        ("ada", "flow_made_live", flow.title, {"version": 1}),
        ("ada", "flow_exported", flow.title, {"version": 1}),
        ("ada", "flow_exported", "", {"flows": 2}),
        ("", "flow_exported", flow.title, {"version": 1}),
    ]


def test_users_and_their_permissions(client: Client, ada: User) -> None:
    group = Group.objects.create(name="Watchers")
    entries = watch()
    new = {"password1": "a long one, not guessed", "password2": "a long one, not guessed", "usable_password": "true"}
    client.post("/admin/auth/user/add/", {"username": "olga", **new})
    olga = User.objects.get(username="olga")
    changed = {"username": "olga", "is_active": "on", "is_staff": "on", "groups": [group.pk]}
    client.post(f"/admin/auth/user/{olga.pk}/change/", changed)
    client.post(f"/admin/auth/user/{olga.pk}/password/", new)
    olga.delete()
    assert entries() == [
        ("ada", "user_added", "olga", RIGHTS),
        ("ada", "user_changed", "olga", {**RIGHTS, "is_staff": True, "changed": ["is_staff"]}),
        ("ada", "rights_changed", "olga", {"added": ["Watchers"]}),
        ("ada", "password_changed", "olga", {}),
        ("", "user_deleted", "olga", {}),
    ]


class TestChangedUsers:
    @pytest.fixture
    def olga(self) -> User:
        return User.objects.create_user("olga", "olga@example.com", "correct horse")

    def test_passwords_are_never_stored(self, olga: User) -> None:
        entries = watch()
        olga.set_password("another one, not guessed")
        olga.email = "ada@example.com"
        olga.save()
        olga.password = "pbkdf2_sha256$1$salt$hash"
        olga.save(update_fields=["password", "is_active"])
        assert [(action, details.get("changed")) for _, action, _, details in entries()] == [
            ("password_changed", None),
            ("user_changed", ["email"]),
            ("user_changed", ["password"]),
        ]
        stored = str(list(AuditEntry.objects.values_list()))
        assert "not guessed" not in stored and "pbkdf2" not in stored

    def test_sign_ins_and_upgraded_hashes_are_no_changes(
        self, olga: User, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        olga = User.objects.get(pk=olga.pk)
        entries = watch()
        olga.last_login = timezone.now()
        with django_assert_num_queries(1):
            olga.save(update_fields=["last_login"])
        olga.save(update_fields=["password"])
        assert entries() == []


def test_permissions_of_a_group_by_name() -> None:
    group = Group.objects.create(name="Watchers")
    entries = watch()
    permissions = Permission.objects.filter(codename__in=["view_run", "add_run"])
    group.permissions.set(permissions)
    group.permissions.remove(permissions.get(codename="add_run"))
    group.permissions.clear()
    assert [(action, details) for _, action, _, details in entries()] == [
        ("rights_changed", {"added": ["add_run", "view_run"]}),
        ("rights_changed", {"removed": ["add_run"]}),
        ("rights_changed", {"cleared": []}),
    ]


def test_limits_with_their_values() -> None:
    entries = watch()
    limit = RateLimit.objects.create(model="gpt-5-mini", requests_per_minute=10)
    limit.requests_per_minute, limit.tokens_per_minute = None, 5000
    limit.save()
    limit.delete()
    assert [(action, details) for _, action, _, details in entries()] == [
        ("limit_added", {"model": "gpt-5-mini", "requests_per_minute": 10}),
        (
            "limit_changed",
            {"requests_per_minute": {"from": 10, "to": None}, "tokens_per_minute": {"from": None, "to": 5000}},
        ),
        ("limit_deleted", {}),
    ]


def test_tokens_without_their_secrets(client: Client, ada: User) -> None:
    entries = watch()
    row, secret = create_token(user=ada, name="nightly", scope="run", lifetime=timedelta(days=1))
    assert revoke_token(row) and not revoke_token(row)
    other, _ = create_token(user=ada, name="hourly", scope="read", lifetime=None)
    page = {"action": "revoke", "_selected_action": [row.pk, other.pk], "_revoke": "yes"}
    client.post("/admin/runs/apitoken/", page)
    assert [(actor, action, label) for actor, action, label, _ in entries()] == [
        ("", "token_made", "nightly"),
        ("", "token_revoked", "nightly"),
        ("", "token_made", "hourly"),
        ("ada", "token_revoked", "hourly"),
    ]
    stored = str(list(AuditEntry.objects.values_list()))
    assert not [part for part in (secret, row.digest, other.digest) if part in stored]
    assert ApiToken.objects.active(timezone.now()).count() == 0


def test_a_run_that_is_started_on_the_page_and_cancelled(client: Client, ada: User) -> None:
    flow = make_version().flow
    entries = watch()
    assert client.post(f"/runs/new/{flow.name}/", {"view": "json", "json": "{}"}).status_code == 302
    run = Run.objects.latest("pk")
    for _ in range(2):
        client.post(f"/runs/{run.pk}/cancel/")
    assert entries() == [
        ("ada", "run_started", str(run), {"flow": flow.name, "version": 1}),
        ("ada", "run_cancelled", str(run), {}),
    ]
    entry = AuditEntry.objects.get(action="run_started")
    assert entry.object_id == str(run.pk) and entry.request_id and entry.address == "127.0.0.1"


@pytest.mark.parametrize(("path", "expected"), [("cancel", "bulk_cancel"), ("run-again", "bulk_run_again")])
def test_what_is_done_to_many_runs_is_one_entry_with_their_number(
    client: Client, ada: User, path: str, expected: str
) -> None:
    version = make_version()
    runs = [make_run(version) for _ in range(4)]
    if path == "run-again":
        for run in runs:
            assert run.request_cancel()
    entries = watch()
    form = {"run": [run.pk for run in runs], "token": uuid4().hex, "version": "same"}
    for _ in range(2):
        assert client.post(f"/runs/bulk/{path}/", form).status_code == 302
    assert [(action, details) for _, action, _, details in entries()] == [(expected, {"runs": 4})]


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
