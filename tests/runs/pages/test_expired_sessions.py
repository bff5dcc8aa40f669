"""Sending a form after the session has ended: nothing is done, and the way leads back to the page with the form."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.models import SavedView
from runs.pages.access import NOTHING_DONE
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_words

pytestmark = pytest.mark.django_db

FORMS = (
    ("/runs/views/add/", "/runs/?status=failed"),
    ("/runs/views/7/delete/", "/runs/?status=failed"),
    ("/webhooks/7/send/", "/webhooks/7/"),
    ("/runs/bulk/7/stop/", "/runs/bulk/7/"),
    ("/runs/bulk/cancel/", "/runs/bulk/cancel/?scope=chosen&run=3&run=4"),
    ("/runs/bulk/run-again/", "/runs/bulk/run-again/?scope=all&filters=flow%3Dtea"),
    ("/runs/new/colour-theme/", "/runs/new/colour-theme/?from=7"),
    ("/runs/7/cancel/", "/runs/7/cancel/"),
    ("/account/", "/account/"),
    ("/account/sessions/end/", "/account/"),
)
"""Where forms are sent, and the pages they stand on."""


def send(client: Client, address: str, sender: str = "", **headers: str) -> Any:
    return client.post(address, headers={**({"Referer": sender} if sender else {}), **headers})


def lead_to(page: str) -> str:
    return f"/accounts/login/?next={quote(page)}"


@pytest.mark.parametrize(("address", "page"), FORMS)
def test_it_leads_back_to_the_page_with_the_form(client: Client, address: str, page: str) -> None:
    answer = send(client, address, f"http://testserver{page}")
    assert answer["Location"] == lead_to(page)
    assert NOTHING_DONE in read_words(get_page(client, answer["Location"]))


@pytest.mark.parametrize(("address", "page"), FORMS)
@pytest.mark.parametrize(
    "sender", ["", "https://evil.example/runs/", "//evil.example/", "javascript:alert(1)", "http://testserver.evil/x"]
)
def test_without_a_page_of_ours_it_leads_to_the_list(client: Client, address: str, page: str, sender: str) -> None:
    assert send(client, address, sender)["Location"] == lead_to("/runs/")


@pytest.mark.parametrize(("address", "page"), FORMS)
def test_nobody_ends_on_an_address_that_takes_only_forms(admin_client: Client, address: str, page: str) -> None:
    answer = send(Client(), address, f"http://testserver{page}")
    wanted = answer["Location"].partition("next=")[2]
    assert admin_client.get(unquote(wanted)).status_code != 405


def test_what_was_chosen_is_there_again_after_signing_in(client: Client) -> None:
    run = make_run()
    User.objects.create_superuser("grace", password="secret")
    page = f"/runs/bulk/cancel/?scope=chosen&run={run.pk}"
    asked = send(client, "/runs/bulk/cancel/", f"http://testserver{page}")
    answer = client.post(asked["Location"], {"username": "grace", "password": "secret", "next": page}, follow=True)
    assert "Cancel 1 run?" in read_words(answer.content.decode())
    run.refresh_from_db()
    assert not run.cancel_requested and run.status == "queued"


def test_nothing_is_done(client: Client) -> None:
    make_stored_run()
    client.post("/runs/views/add/", {"name": "Mine", "query": "status=failed"})
    assert not SavedView.objects.exists()


def test_a_part_that_sends_leads_back_to_its_page_too(client: Client) -> None:
    answer = send(client, "/webhooks/7/send/", **HTMX, **{"HX-Current-URL": "http://testserver/webhooks/7/"})
    assert answer["HX-Redirect"] == lead_to("/webhooks/7/")
    assert NOTHING_DONE in read_words(get_page(client, answer["HX-Redirect"]))


def test_opening_a_page_says_nothing_of_forms(client: Client) -> None:
    answer = client.get("/runs/?status=failed", headers={"Referer": "http://testserver/workers/"})
    assert answer["Location"] == lead_to("/runs/?status=failed")
    assert NOTHING_DONE not in read_words(get_page(client, answer["Location"]))


class TestRefusedMethods:
    @pytest.mark.parametrize(
        "address", ["/runs/views/add/", "/runs/views/7/delete/", "/webhooks/7/send/", "/runs/bulk/7/stop/"]
    )
    def test_opening_what_only_takes_forms_gets_a_page(self, viewer: Client, address: str) -> None:
        answer = viewer.get(address)
        assert (answer.status_code, answer["Allow"]) == (405, "POST")
        assert answer["Content-Type"] == "text/html; charset=utf-8"
        words = read_words(answer.content.decode())
        assert "This address only takes what a form sends. Opening it did nothing." in words and "All runs" in words

    def test_sending_to_what_only_shows_gets_one_too(self, viewer: Client) -> None:
        answer = viewer.post(f"/runs/{make_retried_run().pk}/")
        assert answer.status_code == 405
        assert "What was sent to it was left alone: nothing was done." in read_words(answer.content.decode())

    def test_scripts_get_a_problem_document(self, admin_client: Client) -> None:
        answer = admin_client.post("/api/v1/statistics/overview")
        assert answer.status_code == 405
        assert answer["Content-Type"].startswith("application/problem+json")
