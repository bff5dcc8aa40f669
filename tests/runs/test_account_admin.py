"""Users in the admin: groups, staff status, and what only a superuser may change."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client

from runs.access_groups import create_groups
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db


@pytest.fixture
def administrator(client: Client) -> Client:
    """A browser in which a member of the group Administrator is signed in, who is no superuser."""
    create_groups(apps=apps, using="default")
    user = User.objects.create_user("anna", password="secret", is_staff=True)
    user.groups.add(Group.objects.get(name="Administrator"))
    client.force_login(user)
    return client


def send(client: Client, user: User, **fields: Any) -> list[str]:
    """Send the page of a user with these fields; gives the messages that follow."""
    values = {"username": user.username, "is_active": "on", **fields}
    page = client.post(f"/admin/auth/user/{user.pk}/change/", values, follow=True)
    assert page.status_code == 200
    return [f"{message.level_tag}: {message}" for message in page.context["messages"]]


def test_an_administrator_adds_a_user_and_puts_them_into_a_group(administrator: Client) -> None:
    password = {"password1": "correct horse battery", "password2": "correct horse battery"}
    answer = administrator.post("/admin/auth/user/add/", {"username": "vera", "usable_password": "true", **password})
    vera = User.objects.get(username="vera")
    assert answer["Location"] == f"/admin/auth/user/{vera.pk}/change/"
    get_page(administrator, answer["Location"])
    viewer = Group.objects.get(name="Viewer")
    send(administrator, vera, is_staff="on", groups=[viewer.pk])
    vera.refresh_from_db()
    assert vera.is_staff and list(vera.groups.all()) == [viewer]
    assert "Viewer" in read_words(get_page(administrator, "/admin/auth/user/"))


@pytest.mark.parametrize(("name", "password"), [("ed", "edededed"), ("vera", "VeraVera"), ("veravera", "veravera")])
def test_a_password_that_only_repeats_the_name_is_refused(administrator: Client, name: str, password: str) -> None:
    fields = {"username": name, "usable_password": "true", "password1": password, "password2": password}
    assert administrator.post("/admin/auth/user/add/", fields).status_code == 200
    assert not User.objects.filter(username=name).exists()


@pytest.mark.parametrize(
    ("group", "fields", "is_warned"),
    [("Operator", {}, True), ("Operator", {"is_staff": "on"}, False), ("", {}, False)],
)
def test_permissions_without_access_to_the_admin_get_a_warning(
    administrator: Client, group: str, fields: dict[str, str], is_warned: bool
) -> None:
    groups = [one.pk for one in Group.objects.filter(name=group)]
    levels = [
        message.split(":")[0]
        for message in send(administrator, User.objects.create_user("otto"), groups=groups, **fields)
    ]
    assert ("warning" in levels) is is_warned


def test_nobody_becomes_a_superuser_but_by_one(administrator: Client) -> None:
    anna = User.objects.get(username="anna")
    group = Group.objects.get(name="Administrator").pk
    send(administrator, anna, is_staff="on", is_superuser="on", groups=[group])
    anna.refresh_from_db()
    assert anna.is_staff and not anna.is_superuser
    root = User.objects.create_superuser("root", password="secret")
    administrator.force_login(root)
    send(administrator, anna, is_staff="on", is_superuser="on", groups=[group])
    anna.refresh_from_db()
    assert anna.is_superuser


@pytest.mark.parametrize("part", ["change", "password", "delete"])
def test_superusers_are_changed_by_superusers_only(administrator: Client, part: str) -> None:
    root = User.objects.create_superuser("root", password="secret")
    address = f"/admin/auth/user/{root.pk}/{part}/"
    assert administrator.post(address, {"post": "yes"}).status_code == 403
    assert administrator.get(address).status_code == (200 if part == "change" else 403)
    chosen = {"action": "delete_selected", "_selected_action": root.pk, "post": "yes"}
    administrator.post("/admin/auth/user/", chosen)
    root.refresh_from_db()
    assert root.check_password("secret")


def test_the_list_of_users_takes_as_many_queries_for_many_as_for_one(
    administrator: Client, django_assert_num_queries: Any
) -> None:
    administrator.get("/admin/auth/user/")
    for number in range(5):
        user = User.objects.create_user(f"user-{number}")
        user.groups.set(Group.objects.all())
    with django_assert_num_queries(8):
        administrator.get("/admin/auth/user/")


def test_a_group_has_a_page_with_what_it_may_do(administrator: Client) -> None:
    group = Group.objects.get(name="Viewer")
    page = read_words(get_page(administrator, f"/admin/auth/group/{group.pk}/change/"))
    assert "Run history | run | Can view run" in page
    values = {"name": "Viewer", "permissions": list(group.permissions.values_list("pk", flat=True)[1:])}
    administrator.post(f"/admin/auth/group/{group.pk}/change/", values)
    assert group.permissions.count() == len(values["permissions"])
