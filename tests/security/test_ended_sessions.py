"""Browsers that are signed in, when an account is closed or an administrator ends its sessions."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client

from runs.access_groups import create_groups
from runs.models import TrailEntry

pytestmark = pytest.mark.django_db


def open_browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    assert client.get("/account/").status_code == 200
    return client


def test_an_account_that_is_opened_again_lets_no_old_browser_in() -> None:
    olga = User.objects.create_user("olga")
    browser, other = open_browser(olga), open_browser(User.objects.create_user("nina"))
    olga.is_active = False
    olga.save()
    olga.is_active = True
    olga.save()
    assert browser.get("/account/").status_code == 302
    assert other.get("/account/").status_code == 200
    assert TrailEntry.objects.get(action="sessions_ended").details == {"sessions": 1}


def end_all(admin: User, *users: User) -> None:
    client = Client()
    client.force_login(admin)
    form = {"action": "end_all_sessions", "_selected_action": [user.pk for user in users]}
    assert client.post("/admin/auth/user/", form).status_code == 302


def test_an_administrator_ends_all_sessions_of_an_account() -> None:
    olga = User.objects.create_user("olga")
    browsers = [open_browser(olga), open_browser(olga)]
    end_all(User.objects.create_superuser("root"), olga)
    assert [browser.get("/account/").status_code for browser in browsers] == [302, 302]
    entry = TrailEntry.objects.get(action="sessions_ended")
    assert (entry.actor_name, entry.object_label, entry.details) == ("root", "olga", {"sessions": 2})


def test_but_not_those_of_a_superuser() -> None:
    create_groups(apps=apps, using="default")
    root = User.objects.create_superuser("root")
    browser = open_browser(root)
    administrator = User.objects.create_user("ada", is_staff=True)
    administrator.groups.add(Group.objects.get(name="Administrator"))
    end_all(administrator, root)
    assert browser.get("/account/").status_code == 200
