"""Who may open which page, and what those see who may not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from runs.models import RunStatus
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_words, run_address, sign_in
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db


class TestAccess:
    ADDRESSES = (
        "/runs/",
        "/runs/1/",
        "/runs/1.json",
        "/runs/1/live?revision=0&seen=0.0",
        "/runs/1/steps/1/attempts/1.json",
        "/runs/1/steps/1/attempts/1/request/",
        "/runs/new/",
        "/runs/new/colour-theme/",
        "/runs/1/cancel/",
    )

    @pytest.mark.parametrize("address", ADDRESSES)
    def test_strangers_are_asked_to_sign_in_and_then_see_the_page_they_asked_for(
        self, client: Client, address: str
    ) -> None:
        answer = client.get(address)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/accounts/login/?next=/runs/")

    @pytest.mark.parametrize("address", ADDRESSES)
    def test_users_without_the_permission_are_told_which_one_they_lack(self, client: Client, address: str) -> None:
        answer = sign_in(client).get(address)
        assert answer.status_code == 403
        assert re.search(r"your account lacks “runs\.(view|add|change)_run”", answer.content.decode())

    @pytest.mark.parametrize("address", [address for address in ADDRESSES if address not in ("/runs/", "/runs/new/")])
    def test_what_does_not_exist_is_not_found(self, admin_client: Client, address: str) -> None:
        answer = admin_client.get(address)
        assert answer.status_code == 404
        assert "There is nothing here" in answer.content.decode()

    @pytest.mark.parametrize("address", [address for address in ADDRESSES if "/1" in address])
    def test_a_number_that_no_run_can_have_is_not_found(self, admin_client: Client, address: str) -> None:
        for number in (2**63, 10**20, int("9" * 400)):
            assert admin_client.get(address.replace("/1", f"/{number}")).status_code == 404

    def test_a_live_update_of_a_session_that_expired_leads_to_the_sign_in_page_and_back(self, client: Client) -> None:
        headers = {**HTMX, "HX-Current-URL": "http://testserver/runs/7/?hide=low"}
        answer = client.get("/runs/7/live?revision=1&seen=0.0", headers=headers)
        assert answer["HX-Redirect"] == "/accounts/login/?next=/runs/7/%3Fhide%3Dlow"

    def test_who_may_only_see_runs_is_offered_nothing_else(self, viewer: Client) -> None:
        run = make_stored_run(status=RunStatus.RUNNING)
        assert "Cancel" not in read_words(get_page(viewer, run_address(run)))
        assert "Run a flow" not in read_words(get_page(viewer, "/runs/"))

    def test_pages_that_show_change_nothing(self, admin_client: Client) -> None:
        run = make_retried_run()
        assert admin_client.post(run_address(run)).status_code == 405
        assert admin_client.post("/runs/").status_code == 405

    def test_signing_out_takes_a_post_and_leads_to_the_sign_in_page(self, viewer: Client) -> None:
        assert viewer.get("/accounts/logout/").status_code == 405
        assert viewer.post("/accounts/logout/")["Location"] == "/accounts/login/"
        assert "Sign in" in read_words(get_page(viewer, "/accounts/login/"))

    def test_a_wrong_password_gets_a_sentence(self, client: Client) -> None:
        answer = client.post("/accounts/login/", {"username": "nobody", "password": "wrong"})
        assert "Please enter a correct username and password" in read_words(answer.content.decode())


class TestErrorPages:
    @pytest.mark.parametrize(
        ("template", "words"),
        [
            ("400.html", "This request can’t be read"),
            ("403.html", "You may not do this"),
            ("403_csrf.html", "This form has expired"),
            ("404.html", "There is nothing here"),
            ("405.html", "There is nothing to see here"),
            ("500.html", "ToolFlow failed"),
        ],
    )
    def test_error_pages_need_no_request_and_no_database(
        self, template: str, words: str, django_db_blocker: Any
    ) -> None:
        from django.template.loader import get_template

        with django_db_blocker.block():
            page = get_template(template).render()
        assert words in read_words(page)
        assert InlineFinder(page).found == []

    def test_a_form_that_expired_gets_our_own_page(self) -> None:
        answer = Client(enforce_csrf_checks=True).post("/accounts/login/", {"username": "x"})
        assert answer.status_code == 403
        assert "This form has expired" in answer.content.decode()
