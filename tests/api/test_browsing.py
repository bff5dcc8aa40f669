"""What somebody sees who opens an address of the API in a browser."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.db import OperationalError
from django.http import HttpResponse
from django.test import Client

from runs.api import browsing
from runs.api.browsing import split_at_addresses
from tests.api.asking import V1, make_token, make_user, read_problem
from tests.runs.builders import make_run
from tests.runs.pages.reading import read_words
from tests.site.test_content_security import InlineFinder

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
ROOT = "http://testserver/"


@pytest.fixture
def window(client: Client, groups: None) -> Client:
    """Somebody's browser who may see everything."""
    client.force_login(make_user("ada", "Viewer"))
    client.raise_request_exception = False
    return client


def open_address(window: Client, path: str, accept: str = BROWSER, **headers: str) -> HttpResponse:
    answer: Any = window.get(V1 + path, headers={"Accept": accept, **headers})
    found: HttpResponse = answer
    return found


def read_page(answer: HttpResponse) -> str:
    """The page as text; it must hold nothing that the content security policy forbids."""
    assert answer["Content-Type"] == "text/html; charset=utf-8"
    assert "no-store" in answer["Cache-Control"]
    page = answer.content.decode()
    assert InlineFinder(page).found == []
    return page


def test_an_answer_is_a_page_with_its_status_its_headers_and_its_json(window: Client) -> None:
    answer = open_address(window, "flows?limit=1")
    page = read_page(answer)
    words = read_words(page)
    assert answer.status_code == 200
    assert "GET /api/v1/flows?limit=1" in words
    assert "200 OK" in words
    assert "Content-Type application/json" in words
    assert '"items": []' in unescape(page)
    assert """curl -H "Authorization: Bearer $TOOLFLOW_TOKEN" 'http://testserver/api/v1/flows?limit=1'""" in unescape(
        page
    )


def test_a_problem_is_a_page_with_the_same_status(window: Client) -> None:
    for path, status, detail in (
        ("nowhere", 404, "There is nothing here."),
        ("flows/nowhere", 404, "There is nothing here."),
        ("flows?colour=red", 400, "There is no parameter “colour” here"),
    ):
        answer = open_address(window, path)
        assert answer.status_code == status
        words = read_words(read_page(answer))
        assert detail in words
        assert "Content-Type application/problem+json" in words


def test_whoever_may_not_see_it_is_told_why(window: Client) -> None:
    window.force_login(make_user("otto"))
    answer = open_address(window, "flows")
    assert answer.status_code == 403
    assert "Your account lacks the permission “flows.view_flow”." in read_words(read_page(answer))


def test_a_stranger_is_led_to_the_sign_in_page_and_back(client: Client) -> None:
    answer = open_address(client, "flows?limit=1")
    assert answer.status_code == 401
    assert 'href="/accounts/login/?next=%2Fapi%2Fv1%2Fflows%3Flimit%3D1"' in read_page(answer)


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html;q=0.5", "text/plain, */*"])
def test_scripts_get_json_also_where_somebody_is_signed_in(window: Client, accept: str) -> None:
    answer = open_address(window, "flows", accept)
    assert answer["Content-Type"] == "application/json"
    assert answer.json()["items"] == []  # type: ignore[attr-defined]  # answers to test clients have it


def test_a_script_with_a_token_gets_json_whatever_it_says_it_likes(groups: None) -> None:
    token = make_token(make_user("ada", "Viewer"))
    answer = open_address(Client(), "flows", BROWSER, Authorization=f"Bearer {token}")
    assert answer["Content-Type"] == "application/json"


def test_only_reading_shows_pages(window: Client) -> None:
    answer: Any = window.post(f"{V1}flows", b"{}", content_type="application/json", headers={"Accept": BROWSER})
    assert read_problem(answer)["status"] == 403


def test_no_parameter_chooses_the_form_of_an_answer(window: Client) -> None:
    for form in ("json", "api", "page"):
        answer = open_address(window, f"nowhere?format={form}", "*/*")
        assert read_problem(answer)["status"] == 404


def test_a_fault_of_the_server_stays_json(window: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page needs the database for whoever is signed in; it may be what failed."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OperationalError

    monkeypatch.setattr("runs.api.flows.FlowListView.get", fail)
    assert read_problem(open_address(window, "flows"))["status"] == 503


def test_what_this_server_can_not_do_is_a_page(window: Client) -> None:
    answer = open_address(window, f"runs/{make_run().pk}/events")
    assert answer.status_code == 501
    assert "Only an ASGI server such as uvicorn streams events" in read_words(read_page(answer))


def test_an_answer_without_end_is_cut(window: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "MOST_CHARACTERS", 20)
    words = read_words(read_page(open_address(window, "flows")))
    assert "Only the beginning is shown." in words
    assert "previous" not in words.partition("Body")[2]


def test_addresses_of_this_installation_are_links_and_others_are_not() -> None:
    text = f'{{"next": "{ROOT}api/v1/runs?before=7&limit=1", "seen": "http://elsewhere/", "said": "at {ROOT} or so"}}'
    links = [piece.address for piece in split_at_addresses(text, ROOT) if piece.address]
    assert links == [f"{ROOT}api/v1/runs?before=7&limit=1"]
    assert "".join(piece.text for piece in split_at_addresses(text, ROOT)) == text
    header = f'<{ROOT}api/v1/runs?before=7>; rel="next"'
    assert [piece.address for piece in split_at_addresses(header, ROOT)] == ["", f"{ROOT}api/v1/runs?before=7", ""]


@pytest.mark.parametrize(
    "hostile",
    [
        f'{ROOT}"><script>alert(1)</script>',
        f"{ROOT}x\\u0022 onclick=",
        "javascript:alert(1)",
        "http://testserver.evil.example/",
        "http://testserver@evil.example/",
        "//evil.example/",
        "http://testserver",
    ],
)
def test_what_a_model_wrote_leads_nowhere_else(hostile: str) -> None:
    for piece in split_at_addresses(f'{{"text": "{hostile}"}}', ROOT):
        assert not piece.address or (piece.address.startswith(ROOT) and '"' not in piece.address)
