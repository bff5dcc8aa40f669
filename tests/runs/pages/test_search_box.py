"""The search box: what it finds, for whom, as a fragment and as a page."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import HTMX, count_queries, get_page

pytestmark = pytest.mark.django_db


def list_hits(client: Client, q: str) -> list[str]:
    page = get_page(client, f"/search/?q={q}", headers=HTMX)
    assert "<html" not in page
    return [unescape(url) for url in re.findall(r'role="option"[^>]*href="([^"]+)"', page)]


def test_it_finds_runs_flows_pages_and_guides_and_offers_to_search(viewer: Client) -> None:
    run = make_stored_run()
    assert f"/runs/{run.pk}/" in list_hits(viewer, f"%23{run.pk}")
    assert list_hits(viewer, "COLOUR")[0] == "/flows/colour-theme/"
    assert list_hits(viewer, "worker")[0] == "/workers/"
    assert "/guides/expressions/" in list_hits(viewer, "expressions")
    assert "/runs/?q=late+%26+paid" in list_hits(viewer, "late %26 paid")
    assert "/runs/" in list_hits(viewer, "")


def test_without_a_script_a_number_leads_to_its_run_and_words_to_a_page_of_results(viewer: Client) -> None:
    run = make_stored_run()
    assert viewer.get(f"/search/?q={run.pk}")["Location"] == f"/runs/{run.pk}/"
    page = get_page(viewer, "/search/?q=%3Cb%3E%00%E2%80%AE")
    assert 'action="/search/"' in page and "<b>" not in page.partition("<main")[2] and "\u202e</bdi>" not in page


def test_it_shows_only_what_the_user_may_open(client: Client) -> None:
    run = make_stored_run()
    client.force_login(User.objects.create_user("nobody"))
    found = [url for q in ("", "colour", str(run.pk), "admin", "log") for url in list_hits(client, q)]
    assert {url.split("/")[1] for url in found} <= {"tokens", "account", "guides", "api"}
    assert client.get(f"/search/?q={run.pk}").status_code == 200


def test_the_number_of_queries_and_hits_is_bounded(viewer: Client) -> None:
    make_version(make_page_flow(name="flow-0"))
    few = count_queries(viewer, "/search/?q=flow")
    for number in range(1, 12):
        make_version(make_page_flow(name=f"flow-{number}"))
    assert count_queries(viewer, "/search/?q=flow") == few
    assert len([url for url in list_hits(viewer, "flow-") if url.startswith("/flows/flow-")]) == 6
