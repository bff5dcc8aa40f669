"""The page that shows who is at work, and the notice that nobody is."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.models import Worker
from runs.models.run import in_future
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.reading import HTMX, get_page, read_words, run_address, sign_in
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
NOTICE = "No worker is running. Start one with manage.py run_worker : runs are ready and wait for it."


def read_poller(page: str) -> str:
    """Where an open page asks for what is new."""
    found = re.search(r'hx-get="(/workers/live\?seen=[0-9a-f.]+)"', page)
    assert found is not None
    return found[1]


class TestPage:
    def test_without_a_worker_it_says_how_to_start_one(self, viewer: Client) -> None:
        words = read_words(get_page(viewer, "/workers/"))
        assert "No worker is at work" in words
        assert "Start one with manage.py run_worker" in words
        assert NOTICE not in words

    def test_each_worker_has_a_row_with_its_state_in_words(self, viewer: Client) -> None:
        make_worker(host="alpha", pid=7, in_flight=12)
        make_worker(host="beta", pid=8, slots=100, in_flight=5, is_stopping=True)
        make_worker(host="gamma", pid=9, started_at=in_future(-63 * MINUTE), heartbeat_at=in_future(-3 * MINUTE))
        words = read_words(get_page(viewer, "/workers/"))
        assert "alpha Working 12 200 7 0.1.0 under 10 s under 10 s ago" in words
        assert "beta Stopping 5 100 8" in words
        assert "gamma Silent 0 200 9 0.1.0 1 h 3 min ago" in words
        assert "Workers 2 and 1 silent Runs in flight 17 of 300" in words

    def test_queued_runs_are_counted_by_what_they_wait_for(self, viewer: Client) -> None:
        version = make_version()
        make_run(version, available_at=in_future(-12 * MINUTE))
        make_run(version, available_at=in_future(MINUTE))
        make_run(version, waiting_since=in_future(-MINUTE), waiting_for="Waits for a plug-in.")
        words = read_words(get_page(viewer, "/workers/"))
        assert "Ready 1 Oldest ready 12 min Waiting for a time 1 Waiting for something 1" in words
        assert NOTICE in words

    def test_a_host_can_not_write_into_the_page(self, viewer: Client) -> None:
        make_worker(host="<script>alert(1)</script>")
        assert "<script>alert" not in get_page(viewer, "/workers/")

    def test_only_those_who_may_see_runs_find_it(self, client: Client) -> None:
        sign_in(client)
        assert client.get("/workers/").status_code == 403
        assert client.get("/workers/live?seen=x").status_code == 403

    def test_it_is_in_the_navigation_and_marked_there(self, viewer: Client) -> None:
        assert '<a href="/workers/">Workers</a>' in get_page(viewer, "/runs/")
        page = get_page(viewer, "/workers/")
        assert '<a href="/workers/" aria-current="page">Workers</a>' in page
        assert '<a href="/runs/">Runs</a>' in page


class TestLive:
    def test_nothing_new_is_no_content_and_costs_four_queries_of_ours(self, viewer: Client) -> None:
        make_worker(in_flight=3)
        address = read_poller(get_page(viewer, "/workers/"))
        with CaptureQueriesContext(connection) as queries:
            answer = viewer.get(address, headers=HTMX)
        assert (answer.status_code, answer.content) == (204, b"")
        assert sum('FROM "runs_' in one["sql"] and "session" not in one["sql"] for one in queries.captured_queries) == 4

    def test_only_the_parts_that_changed_are_sent(self, viewer: Client) -> None:
        make_worker(in_flight=3)
        address = read_poller(get_page(viewer, "/workers/"))
        make_run(available_at=in_future(MINUTE))
        update = viewer.get(address, headers=HTMX).content.decode()
        assert re.findall(r'id="workers-(\w+)" hx-swap-oob="innerHTML"', update) == ["figures"]
        assert InlineFinder(update).found == []
        assert viewer.get(read_poller(update), headers=HTMX).status_code == 204

    def test_the_notice_comes_when_the_last_worker_falls_silent(self, viewer: Client) -> None:
        make_run(available_at=in_future(-MINUTE))
        worker = make_worker()
        page = get_page(viewer, "/workers/")
        assert NOTICE not in read_words(page)
        Worker.objects.filter(pk=worker.pk).update(heartbeat_at=in_future(-MINUTE))
        update = viewer.get(read_poller(page), headers=HTMX).content.decode()
        assert NOTICE in read_words(update)

    @pytest.mark.parametrize("seen", ["", "x", "0123456789ab", "0123456789ab.0123456789ab"])
    def test_a_question_that_makes_no_sense_is_refused_with_the_right_form(self, viewer: Client, seen: str) -> None:
        answer = viewer.get(f"/workers/live?seen={seen}")
        assert answer.status_code == 400
        assert b"?seen=DIGEST.DIGEST.DIGEST" in answer.content


class TestNotice:
    @pytest.fixture
    def operator_pages(self, operator: Client) -> list[str]:
        version = make_version()
        run = make_run(version, available_at=in_future(-MINUTE))
        return ["/runs/", "/runs/new/", f"/runs/new/{version.flow.name}/", run_address(run), "/workers/"]

    def test_it_stands_where_people_wait_for_runs(self, operator: Client, operator_pages: list[str]) -> None:
        assert [page for page in operator_pages if NOTICE not in read_words(get_page(operator, page))] == []

    def test_it_is_gone_once_a_worker_is_alive(self, operator: Client, operator_pages: list[str]) -> None:
        make_worker()
        assert [page for page in operator_pages if NOTICE in read_words(get_page(operator, page))] == []

    def test_the_page_of_a_run_that_waits_is_told_without_a_reload(self, viewer: Client) -> None:
        run = make_run(available_at=in_future(-MINUTE))
        worker = make_worker()
        poller = f"/runs/{run.pk}/live?revision=0&seen=0.0"
        assert viewer.get(poller, headers=HTMX).status_code == 204
        worker.delete()
        update = viewer.get(poller, headers=HTMX).content.decode()
        assert NOTICE in read_words(update)
        assert "seen=0.0&amp;unattended" in update
        assert viewer.get(f"{poller}&unattended", headers=HTMX).status_code == 204
        make_worker()
        assert NOTICE not in read_words(viewer.get(f"{poller}&unattended", headers=HTMX).content.decode())
