"""Flows, users, groups, limits and tokens leave a trail, whoever changes them."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from flows.models import Flow
from runs.models import ApiToken, RateLimit, TrailEntry
from runs.tokens import make_token, revoke_token
from tests.engine.builders import make_flow, make_step
from tests.runs.builders import make_version
from tests.runs.pages.reading import read_words

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client) -> User:
    user = User.objects.create_superuser("ada", password="correct horse")
    client.force_login(user)
    TrailEntry.objects.all()
    return user


def tell(*, since: int = 0) -> list[tuple[str, str, str, Any]]:
    """All entries after that one, oldest first: who, what, to what, with what."""
    rows = TrailEntry.objects.filter(pk__gt=since).order_by("pk")
    return [(row.actor_name, row.action, row.object_label, row.details) for row in rows]


def last() -> int:
    entry = TrailEntry.objects.first()
    return entry.pk if entry else 0


def test_a_version_is_told_of_when_it_is_published_and_when_it_goes_live(client: Client, ada: User) -> None:
    flow = make_version().flow
    before = last()
    client.post(f"/admin/flows/flow/{flow.pk}/archive/")
    client.post(f"/admin/flows/flow/{flow.pk}/take-out/")
    client.post(f"/admin/flows/flow/{flow.pk}/versions/1/make-live/")
    assert tell(since=before) == [
        ("ada", "flow_archived", flow.title, {}),
        ("ada", "flow_taken_out", flow.title, {}),
        ("ada", "flow_made_live", flow.title, {"version": 1}),
    ]


def test_a_flow_that_a_command_loads_is_told_of_without_a_person() -> None:
    call_command("import_flow", "flows/examples/colour-theme.yaml", verbosity=0)
    actions = {action for _, action, _, _ in tell()}
    assert {"flow_added", "flow_published", "flow_made_live"} <= actions
    # Its title comes after its row.
    assert TrailEntry.objects.get(action="flow_added").object_label
    assert {row.actor_name for row in TrailEntry.objects.all()} == {""}


def test_a_flow_that_is_deleted_is_told_of_once(ada: User) -> None:
    flow = make_version().flow
    before = last()
    Flow.objects.filter(pk=flow.pk).update(live_version=None)
    flow.refresh_from_db()
    flow.delete()
    assert [action for _, action, _, _ in tell(since=before)] == ["flow_deleted"]


def test_users_and_what_they_may_do_are_told_of(client: Client, ada: User) -> None:
    group = Group.objects.create(name="Watchers")
    before = last()
    page = {
        "username": "olga",
        "usable_password": "true",
        "password1": "a long one, not guessed",
        "password2": "a long one, not guessed",
    }
    assert client.post("/admin/auth/user/add/", page).status_code == 302
    olga = User.objects.get(username="olga")
    changed = {"username": "olga", "is_active": "on", "is_staff": "on", "groups": [group.pk]}
    assert client.post(f"/admin/auth/user/{olga.pk}/change/", changed).status_code == 302
    new = {"password1": "another one, not guessed", "password2": "another one, not guessed", "usable_password": "true"}
    assert client.post(f"/admin/auth/user/{olga.pk}/password/", new).status_code == 302
    olga.delete()
    rights = {"is_active": True, "is_staff": False, "is_superuser": False}
    assert tell(since=before) == [
        ("ada", "user_added", "olga", rights),
        ("ada", "user_changed", "olga", {**rights, "is_staff": True, "changed": ["is_staff"]}),
        ("ada", "rights_changed", "olga", {"added": ["Watchers"]}),
        ("ada", "password_changed", "olga", {}),
        ("", "user_deleted", "olga", {}),
    ]


class TestChangedUsers:
    @pytest.fixture
    def olga(self) -> User:
        return User.objects.create_user("olga", "olga@example.com", "correct horse", is_staff=True)

    def test_what_somebody_signs_in_by_is_told_as_it_was_and_as_it_is(self, olga: User) -> None:
        before = last()
        olga.email, olga.username, olga.last_name = "ada@example.com", "olga2", "Ott"
        olga.save()
        ((_, action, _, details),) = tell(since=before)
        rights = {"is_active": True, "is_staff": True, "is_superuser": False}
        assert (action, details) == (
            "user_changed",
            {
                **rights,
                "changed": ["username", "email", "last_name"],
                "username": {"from": "olga", "to": "olga2"},
                "email": {"from": "olga@example.com", "to": "ada@example.com"},
            },
        )

    def test_an_address_that_comes_with_a_new_password_is_told_too_and_the_password_never(self, olga: User) -> None:
        before = last()
        olga.email = "ada@example.com"
        olga.set_password("another one, not guessed")
        olga.save()
        password, changed = tell(since=before)
        assert password[1:] == ("password_changed", "olga", {})
        assert changed[1] == "user_changed" and changed[3]["changed"] == ["email"]
        olga.password = "pbkdf2_sha256$1$salt$hash"
        olga.save(update_fields=["password", "is_active"])
        assert tell(since=before)[2][3]["changed"] == ["password"]
        stored = str(list(TrailEntry.objects.values_list()))
        assert "not guessed" not in stored and "pbkdf2" not in stored

    def test_only_what_is_saved_has_changed(self, olga: User) -> None:
        before = last()
        olga.email, olga.is_staff = "ada@example.com", False
        olga.save(update_fields=["is_staff"])
        assert tell(since=before)[0][3]["changed"] == ["is_staff"]

    def test_to_sign_in_is_no_change_and_compares_nothing(
        self, olga: User, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        olga.last_login = timezone.now()
        with django_assert_num_queries(1):
            olga.save(update_fields=["last_login"])


def test_settings_that_delete_runs_are_told_as_they_were_and_as_they_are(client: Client, ada: User) -> None:
    flow = make_version().flow
    before = last()
    for values in ({"keep_days": 30, "max_runs_in_flight": 4711}, {"keep_days": 1}):
        answer = client.patch(f"/api/v1/flows/{flow.name}/settings", values, content_type="application/json")
        assert answer.status_code == 200, answer.content
    assert tell(since=before) == [
        (
            "ada",
            "flow_changed",
            flow.title,
            {"settings": ["max_runs_in_flight", "keep_days"], "keep_days": {"from": None, "to": 30}},
        ),
        ("ada", "flow_changed", flow.title, {"settings": ["keep_days"], "keep_days": {"from": 30, "to": 1}}),
    ]
    assert "4711" not in str(list(TrailEntry.objects.values_list("details")))
    assert "settings keep_days keep days 30 → 1" in read_words(client.get("/trail/").content.decode())


def test_permissions_of_a_group_are_told_of_by_name() -> None:
    group = Group.objects.create(name="Watchers")
    before = last()
    permissions = Permission.objects.filter(codename__in=["view_run", "add_run"])
    group.permissions.set(permissions)
    group.permissions.remove(permissions.get(codename="add_run"))
    group.permissions.clear()
    assert [(action, details) for _, action, _, details in tell(since=before)] == [
        ("rights_changed", {"added": ["add_run", "view_run"]}),
        ("rights_changed", {"removed": ["add_run"]}),
        ("rights_changed", {"cleared": []}),
    ]


def test_limits_are_told_of() -> None:
    limit = RateLimit.objects.create(model="gpt-5-mini", requests_per_minute=10)
    limit.save()
    limit.delete()
    assert [action for _, action, _, _ in tell()] == ["limit_added", "limit_changed", "limit_deleted"]


def test_tokens_are_told_of_and_nothing_of_their_secret(client: Client, ada: User) -> None:
    row, secret = make_token(user=ada, name="nightly", scope="run", lifetime=timedelta(days=1))
    before = last()
    assert revoke_token(row)
    assert not revoke_token(row)
    assert tell(since=before) == [("", "token_revoked", "nightly", {"of": "ada", "scope": "run"})]
    other, _ = make_token(user=ada, name="hourly", scope="read", lifetime=None)
    before = last()
    page = {"action": "revoke", "_selected_action": [row.pk, other.pk], "_revoke": "yes"}
    client.post("/admin/runs/apitoken/", page)
    assert tell(since=before) == [("ada", "token_revoked", "hourly", {"of": "ada", "scope": "read"})]
    stored = str(list(TrailEntry.objects.values_list()))
    assert not [part for part in (secret, row.digest, other.digest) if part in stored]
    assert ApiToken.objects.active(timezone.now()).count() == 0


def test_a_password_that_is_only_hashed_anew_is_no_change(client: Client) -> None:
    user = User.objects.create_user("olga", password="correct horse")
    User.objects.filter(pk=user.pk).update(password="pbkdf2_sha256$1$salt$hash")
    before = last()
    user.refresh_from_db()
    user.save(update_fields=["password"])
    assert tell(since=before) == []


def test_a_limit_that_is_changed_tells_what_it_was() -> None:
    limit = RateLimit.objects.create(model="gpt-5-mini", requests_per_minute=10)
    limit.requests_per_minute, limit.tokens_per_minute = None, 5000
    limit.save()
    (_, _, _, added), (_, _, _, changed) = tell()
    assert added == {"model": "gpt-5-mini", "requests_per_minute": 10}
    assert changed == {
        "requests_per_minute": {"from": 10, "to": None},
        "tokens_per_minute": {"from": None, "to": 5000},
    }


class TestExportedFlows:
    def test_each_way_that_a_flow_leaves_is_told_of(self, client: Client, ada: User, tmp_path: Path) -> None:
        flow = make_version().flow
        before = last()
        assert client.get(f"/admin/flows/flow/{flow.pk}/download/").status_code == 200
        call_command("export_flow", flow.name, output=str(tmp_path / "flow.yaml"))
        told = (flow.title, {"version": 1})
        assert tell(since=before) == [("ada", "flow_exported", *told), ("", "flow_exported", *told)]

    def test_many_at_once_are_one_entry(self, client: Client, ada: User, tmp_path: Path) -> None:
        make_version()
        make_version(make_flow(make_step()).model_copy(update={"name": "another"}))
        before = last()
        assert client.get("/admin/flows/flow/download/").status_code == 200
        call_command("export_flow", all=str(tmp_path), stdout=StringIO())
        told = ("", {"flows": 2})
        assert tell(since=before) == [("ada", "flow_exported", *told), ("", "flow_exported", *told)]

    def test_what_fails_is_none(self, client: Client, ada: User) -> None:
        before = last()
        client.get("/admin/flows/flow/download/")
        assert tell(since=before) == []
