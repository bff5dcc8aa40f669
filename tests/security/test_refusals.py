"""Requests that are refused: a status, one clear sentence, and one line in the log."""

from __future__ import annotations

import io
import logging

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from tests.runs.pages.reading import read_words

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(User.objects.create_user("olga", is_staff=True))
    return client


@pytest.mark.parametrize("charset", ["hex", "idna", "rot13", "punycode", "utf-16", "nonsense", "zip"])
@pytest.mark.parametrize("address", ["/accounts/login/", "/admin/login/", "/runs/new/colour-theme/"])
def test_a_form_in_a_strange_encoding_is_refused(client: Client, address: str, charset: str) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="username"\r\n\r\nada\r\n--x--\r\n'
    answer = client.generic("POST", address, body, f"multipart/form-data; boundary=x; charset={charset}")
    assert answer.status_code == 400


def test_a_form_in_utf_8_is_taken(client: Client) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="username"\r\n\r\nada\r\n--x--\r\n'
    assert client.post("/accounts/login/", body, "multipart/form-data; boundary=x; charset=UTF-8").status_code == 200


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("/accounts/login/", {"text": "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)}),
        ("/runs/new/colour-theme/", {f"field{number}": "x" for number in range(10_001)}),
    ],
    ids=["bytes", "fields"],
)
def test_a_form_that_is_too_large_is_told_how_large_it_may_be(address: str, form: dict[str, str]) -> None:
    # What a form may have is checked by its first reader: the check against forged forms.
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada"))
    client.get("/tokens/")
    answer = client.post(address, form)
    assert answer.status_code == 413
    assert "A form may have 2.62144 MB, 10,000 fields and 100 files." in read_words(answer.content.decode())


@pytest.mark.parametrize(
    ("method", "address", "permission"),
    [
        ("get", "/admin/auth/user/", "auth.view_user"),
        ("get", "/admin/auth/user/add/", "auth.add_user"),
        ("get", "/admin/auth/group/1/change/", "auth.view_group"),
        ("post", "/admin/auth/group/1/change/", "auth.change_group"),
        ("get", "/admin/auth/user/1/password/", "auth.change_user"),
    ],
)
def test_the_admins_own_pages_name_the_missing_permission(
    staff: Client, method: str, address: str, permission: str
) -> None:
    answer = getattr(staff, method)(address)
    assert answer.status_code == 403
    assert f"lacks the permission “{permission}”" in read_words(answer.content.decode())


def test_a_refusal_is_one_line_in_the_log(staff: Client) -> None:
    (handler,) = [handler for handler in logging.getLogger().handlers if type(handler) is logging.StreamHandler]
    lines = io.StringIO()
    stream = handler.setStream(lines)
    try:
        staff.get("/admin/auth/user/")
    finally:
        handler.setStream(stream)
    (line,) = lines.getvalue().splitlines()
    assert "/admin/auth/user/" in line
