"""Who may see, add and change flows in the editor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import ADD_URL, EditorPage, fill_new_flow

pytestmark = pytest.mark.django_db

LIST = "/admin/flows/flow/"


@pytest.fixture
def url() -> str:
    """The address of a stored flow's page."""
    step = make_step(system_message="Be brief.", audits=[{"name": "One", "rule": "true"}])
    return f"{LIST}{load_flow(document=make_flow(step).to_document()).flow.pk}/change/"


@pytest.fixture
def sign_in() -> Callable[..., Client]:
    """Signs in somebody of the staff who has these permissions for flows alone."""

    def sign_in(*actions: str) -> Client:
        user = User.objects.create_user("vera", password="secret", is_staff=True)
        user.user_permissions.add(*Permission.objects.filter(codename__in=[f"{action}_flow" for action in actions]))
        client = Client()
        client.force_login(user)
        return client

    return sign_in


def test_who_may_only_see_flows_gets_a_page_without_fields(sign_in: Callable[..., Client], url: str) -> None:
    client = sign_in("view")
    content = client.get(url).content.decode()
    assert "Be brief." in content
    for field in ("<textarea", 'name="_save"', 'name="note"', 'name="revision"', "/archive/", "/delete/"):
        assert field not in content
    assert client.get(LIST).status_code == 200


def test_who_may_only_see_flows_saves_nothing(sign_in: Callable[..., Client], editor: Client, url: str) -> None:
    page = EditorPage(editor, url)
    page.fill("steps-0-", max_retries=0)
    client = sign_in("view")
    for fields in ({}, {**page.fields, "_save": ""}, {**page.fields, "_overwrite": "1"}, {"_saveasnew": "1"}):
        assert client.post(url, fields).status_code == 403
    assert client.post(ADD_URL, {**page.fields, "_save": ""}).status_code == 403
    assert client.get(ADD_URL).status_code == 403
    assert FlowVersion.objects.count() == 1


def test_who_may_not_see_flows_sees_none(sign_in: Callable[..., Client], url: str) -> None:
    client = sign_in()
    for address in (LIST, url, ADD_URL, url.replace("/change/", "/history/"), url.replace("/change/", "/delete/")):
        assert client.get(address).status_code == 403, address
        assert client.post(address, {}).status_code == 403, address


def test_strangers_are_sent_to_sign_in(client: Client, url: str) -> None:
    for answer in (client.get(url), client.post(url, {})):
        assert answer.status_code == 302
        assert "login" in answer["Location"]


def test_who_may_change_flows_sees_them_and_saves(sign_in: Callable[..., Client], url: str) -> None:
    client = sign_in("change")
    page = EditorPage(client, url)
    page.fill("steps-0-", max_retries=0)
    assert page.save()[0].startswith("Saved as version 2.")
    assert client.get(LIST).status_code == 200
    assert client.get(ADD_URL).status_code == 403
    assert client.get(url.replace("/change/", "/delete/")).status_code == 403


def test_who_may_add_but_not_change_flows_is_told_so_instead_of_getting_a_page_that_saves_nothing(
    sign_in: Callable[..., Client], url: str
) -> None:
    client = sign_in("add", "view")
    assert client.get(ADD_URL).status_code == 403
    assert client.post(ADD_URL, {}).status_code == 403
    assert "/flow/add/" not in client.get(LIST).content.decode()
    assert client.get(url).status_code == 200


def test_who_may_add_and_change_flows_adds_one(sign_in: Callable[..., Client]) -> None:
    page = fill_new_flow(sign_in("add", "change"))
    page.save()
    assert Flow.objects.get().name == "invoice-extraction"
