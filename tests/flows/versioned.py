"""Flows with a past, and their pages as words."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client

from flows.models import Flow, FlowVersion
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import PageReader
from tests.flows.loading import load_flow


def store_version(note: str = "", by: User | None = None, title: str = "Invoices", **fields: Any) -> FlowVersion:
    """The next version of the flow “example”: its one step has these fields."""
    document = make_flow(make_step(**fields), title=title).to_document()
    return load_flow(document=document, by=by, note=note)


def store_three_versions() -> Flow:
    """A flow whose step may be tried again 3, 1 and 2 times; the first version is live."""
    store_version("As it began")
    store_version("Fewer tries", max_retries=1)
    return store_version(max_retries=2).flow


def sign_in(client: Client, *permissions: str) -> User:
    """Sign in a user who may use the admin, and has these permissions on flows."""
    user = User.objects.create_user("vera", password="secret", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return user


def read_words(response: HttpResponse) -> str:
    """The text of a page, in one line."""
    return " ".join(PageReader(response.content.decode()).text.split())
