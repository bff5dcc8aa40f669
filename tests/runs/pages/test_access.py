"""What is not there, what a form sent too late does, and pages of errors.

Who may open which address is in ``tests/site/test_permissions.py``, forged forms in ``tests/security``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from runs.models import SavedView
from runs.pages.access import NOTHING_DONE
from tests.runs.pages.reading import get_page, read_words
from tests.site.test_content_security import InlineFinder
from toolflow_site.errors import build_error_page

pytestmark = pytest.mark.django_db

FORMS = (
    ("/runs/views/add/", "/runs/?status=failed"),
    ("/webhooks/7/send/", "/webhooks/7/"),
    ("/runs/bulk/cancel/", "/runs/bulk/cancel/?scope=chosen&run=3&run=4"),
    ("/runs/new/colour-theme/", "/runs/new/colour-theme/?from=7"),
    ("/account/sessions/end/", "/account/"),
)
"""Where forms are sent, and the pages they are on."""


@pytest.mark.parametrize(
    "address",
    [
        "/runs/{}/",
        "/runs/{}.json",
        "/runs/{}/live?revision=0&seen=0.0",
        "/runs/{0}/steps/1/attempts/1.json",
        "/runs/{}/steps/1/attempts/1/",
        "/runs/{0}/steps/1/attempts/1/request/",
        "/runs/{}/cancel/",
        "/runs/bulk/{}/",
        "/runs/bulk/{}/live?seen=1",
        "/webhooks/{}/",
        "/runs/new/flow-{}/",
        "/flows/flow-{}/",
    ],
)
def test_what_does_not_exist_is_not_found(admin_client: Client, address: str) -> None:
    for number in (1, 2**63, int("9" * 400)):
        assert admin_client.get(address.format(number)).status_code == 404, number


def send(client: Client, address: str, **headers: str) -> Any:
    """The answer to a form that is sent after the session has ended."""
    return client.post(address, {"name": "Mine", "query": "status=failed"}, headers=headers)


def lead_to(page: str) -> str:
    return f"/accounts/login/?next={quote(page)}"


@pytest.mark.parametrize(("address", "page"), FORMS)
def test_a_form_of_an_ended_session_does_nothing_and_leads_back_to_its_page(
    client: Client, address: str, page: str
) -> None:
    answer = send(client, address, Referer=f"http://testserver{page}")
    assert answer["Location"] == lead_to(page)
    assert NOTHING_DONE in read_words(get_page(client, answer["Location"]))
    assert not SavedView.objects.exists()
    for sender in ("", "https://evil.example/runs/", "//evil.example/", "javascript:x", "http://testserver.evil/x"):
        assert send(client, address, Referer=sender)["Location"] == lead_to("/runs/")


@pytest.mark.parametrize("status", [400, 403, 404, 405, 413, 500])
def test_error_pages_need_no_request_and_no_database(status: int, django_db_blocker: Any) -> None:
    with django_db_blocker.block():
        page = build_error_page(HTTPStatus(status), "It is <b>so</b>.").content.decode()
    assert "<b>" not in page and page.count("<h1>") == 1
    assert "<h1" in page and InlineFinder(page).found == []
