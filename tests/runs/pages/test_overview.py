"""The home page and the page of workers: what goes on, what failed, today beside the days before, who is at work."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.models import Run, RunStatus, Worker
from runs.models.run import in_future
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_runs, day_ago, stop_clock
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import (
    HTMX,
    get_page,
    read_plain,
    read_poller,
    read_table,
    read_words,
    run_address,
)
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
NOTICE = "No worker is running. Start one with manage.py run_worker : runs are ready and wait for it."


def start_run(**fields: object) -> Run:
    values = {"status": RunStatus.RUNNING, "lease_until": in_future(MINUTE), "started_at": timezone.now(), **fields}
    return make_run(make_version(make_page_flow()), **values)


def fail_run(status: str = RunStatus.FAILED, **fields: object) -> Run:
    return make_run(make_version(make_page_flow()), status=status, ended_at=timezone.now(), **fields)


def list_parts(update: str) -> list[str]:
    """The parts of the page that an update brings."""
    assert InlineFinder(update).found == []
    return re.findall(r'id="(?:overview|workers)-(\w+)" hx-swap-oob="innerHTML"', update)


class TestNow:
    def test_runs_under_way_are_shown_with_their_progress(self, viewer: Client) -> None:
        runs = [start_run(steps_passed=2, attempt_count=5) for _ in range(11)]
        page = get_page(viewer, "/")
        assert (
            f"Colour theme #{runs[-1].pk}, v{runs[-1].version.number} Running 2 of 3 steps passed, 5 attempts"
            in read_words(page)
        )
        assert re.findall(r'id="running-(\d+)"', page) == [str(run.pk) for run in reversed(runs[1:])]
        assert 'href="/runs/?status=running"' in page

    def test_what_failed_lately_says_why_and_leads_to_the_attempt(self, viewer: Client) -> None:
        blocking = {"blocking_step": 2, "blocking_attempt": 2}
        sentence = "Step 2 “Step 2” did not pass: <script>alert(1)</script>\u202e"
        long = fail_run(end_sentence=sentence, **blocking)
        runs = [fail_run(RunStatus.ERRORED if number % 3 == 0 else RunStatus.FAILED) for number in range(9)]
        shown = re.findall(r'id="failed-(\d+)"', get_page(viewer, "/"))
        assert shown == [str(run.pk) for run in reversed(runs[1:])]
        # By when they ended, not by when they began.
        for run in runs:
            Run.objects.filter(pk=run.pk).update(ended_at=timezone.now() - timedelta(days=30))
        page = get_page(viewer, "/")
        assert re.findall(r'id="failed-(\d+)"', page)[0] == str(long.pk)
        assert f'href="/runs/{long.pk}/#s2a2">Step 2 “Step 2”</a> did not pass: &lt;script&gt;' in page
        assert "<script>alert" not in page and "\u202e" not in page

    def test_places_and_the_queue(self, viewer: Client) -> None:
        make_run(available_at=in_future(-MINUTE))
        words = read_plain(viewer, "/")
        assert "No worker is running." in words and "Ready, waiting for a place 1" in words
        make_worker(slots=2)
        for taken in (0, 1, 2, 2):
            # Runs count before the next heartbeat of their worker says so.
            words = read_plain(viewer, "/")
            assert f"Places taken {taken} of 2" in words and "No worker is running." not in words
            start_run()
        Worker.objects.update(heartbeat_at=in_future(-MINUTE))
        assert "Places taken 0 of 0" in read_plain(viewer, "/")


class TestLive:
    @pytest.mark.parametrize(("address", "queries"), [("/", 8), ("/workers/", 4)])
    def test_nothing_new_is_no_content_and_costs_few_queries(self, viewer: Client, address: str, queries: int) -> None:
        run = start_run()
        make_worker(in_flight=3)
        poller = read_poller(get_page(viewer, address))
        Run.objects.filter(pk=run.pk).update(started_at=in_future(-MINUTE))
        with CaptureQueriesContext(connection) as found:
            answer = viewer.get(poller, headers=HTMX)
        assert (answer.status_code, answer.content) == (204, b"")
        ours = [one for one in found.captured_queries if 'FROM "runs_' in one["sql"] and "session" not in one["sql"]]
        assert len(ours) == queries

    def test_only_the_parts_that_changed_are_sent(self, viewer: Client) -> None:
        run = start_run()
        make_worker()
        poller, workers = (read_poller(get_page(viewer, address)) for address in ("/", "/workers/"))
        Run.objects.filter(pk=run.pk).update(steps_passed=1, revision=run.revision + 1)
        update = viewer.get(poller, headers=HTMX).content.decode()
        assert list_parts(update) == ["running"]
        fail_run()
        update = viewer.get(read_poller(update), headers=HTMX).content.decode()
        assert list_parts(update) == ["failed"]
        assert viewer.get(read_poller(update), headers=HTMX).status_code == 204
        make_run(available_at=in_future(MINUTE))
        update = viewer.get(workers, headers=HTMX).content.decode()
        assert list_parts(update) == ["figures"]
        assert viewer.get(read_poller(update), headers=HTMX).status_code == 204

    @pytest.mark.parametrize("address", ["/", "/workers/"])
    def test_it_tells_when_the_last_worker_falls_silent(self, viewer: Client, address: str) -> None:
        make_run(available_at=in_future(-MINUTE))
        make_worker()
        page = get_page(viewer, address)
        assert "No worker is running." not in read_words(page)
        Worker.objects.update(heartbeat_at=in_future(-MINUTE))
        assert "No worker is running." in read_words(viewer.get(read_poller(page), headers=HTMX).content.decode())

    @pytest.mark.parametrize("seen", ["", "x", "0123456789ab", ".".join(["0123456789ab"] * 5)])
    @pytest.mark.parametrize("address", ["/overview/live", "/workers/live"])
    def test_a_question_that_makes_no_sense_is_refused(self, viewer: Client, address: str, seen: str) -> None:
        assert viewer.get(f"{address}?seen={seen}").status_code == 400


class TestDays:
    def test_what_is_drawn_by_flow_and_day_is_also_a_table(self, viewer: Client) -> None:
        version = make_version(make_page_flow(title="<b>Tea</b>"))
        make_run(version)
        add_runs(version, day_ago(0), succeeded=1, cost="0.5")
        add_runs(version, day_ago(13), succeeded=1, cost="1.25", unpriced=1)
        add_runs(make_version(make_page_flow(name="other", title="Other")), day_ago(14), succeeded=12, unpriced=12)
        page = get_page(viewer, "/")
        table = read_table(page, "Cost or tokens by flow and day")
        first, last = day_ago(14), day_ago(0)
        assert table[0] == ["Flow", f"{first.day} {first:%b}", *table[0][2:15], f"{last.day} {last:%b}"]
        assert table[1:] == [
            ["<b>Tea</b>", "—", "≥ $1.25", *["—"] * 12, "$0.5000"],
            ["Other", "1 200 tokens", *["—"] * 14],
        ]
        assert "<b>Tea" not in page

    def test_today_is_compared_with_the_days_before_and_simulated_runs_are_kept_apart(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_clock(monkeypatch)
        version = make_version(make_page_flow())
        make_run(version)
        assert "No run ended today or in the 14 days before." in read_plain(viewer, "/")
        add_runs(version, day_ago(10), succeeded=5, is_simulated=True)
        assert "No baseline yet" in read_plain(viewer, "/")
        add_runs(version, day_ago(1), succeeded=5, is_simulated=True)
        assert "7-day median 5" in read_plain(viewer, "/")
        add_runs(version, day_ago(1), succeeded=3)
        assert "7-day median 3" in read_plain(viewer, "/")
        assert "7-day median 5" in read_plain(viewer, "/?runs=simulated")
        assert "message-warning" in get_page(viewer, "/?runs=x")


class TestFirstRun:
    def test_an_empty_installation_shows_the_way_that_its_reader_may_go(self, operator: Client) -> None:
        words = read_plain(operator, "/")
        assert "The way to the first run" in words
        assert "Your account may not add flows: ask a member of the group Editor." in words
        make_version()
        page = get_page(operator, "/")
        assert 'href="/flows/"' in page and 'href="/runs/new/"' in page
        client = Client()
        client.force_login(User.objects.create_superuser("grace"))
        assert 'href="/admin/flows/flow/add/"' in get_page(client, "/")

    def test_an_installation_whose_runs_retention_deleted_is_not_called_empty(self, viewer: Client) -> None:
        add_runs(make_version(make_page_flow()), day_ago(40), succeeded=7)
        assert "Nothing has run here yet" not in read_plain(viewer, "/")

    def test_who_may_not_see_runs_is_told_what_is_missing_and_whom_to_ask(self, client: Client) -> None:
        User.objects.create_superuser("grace")
        helper = User.objects.create_user("linus")
        helper.groups.add(Group.objects.get_or_create(name="Administrator")[0])
        User.objects.create_superuser("gone", is_active=False)
        client.force_login(User.objects.create_user("ada"))
        answer = client.get("/")
        assert answer.status_code == 403
        words = read_words(answer.content.decode())
        assert "“runs.view_run”" in words and "Ask grace or linus to add you to the group Viewer" in words
        assert "Sign in as somebody else" in words


class TestWorkers:
    def test_each_worker_has_a_row_with_its_state_in_words(self, viewer: Client) -> None:
        assert "Start one with manage.py run_worker" in read_words(get_page(viewer, "/workers/"))
        make_worker(host="<script>alert(1)</script>", pid=7, in_flight=12)
        make_worker(host="beta", pid=8, slots=100, in_flight=5, is_stopping=True)
        make_worker(host="gamma", pid=9, started_at=in_future(-63 * MINUTE), heartbeat_at=in_future(-3 * MINUTE))
        page = get_page(viewer, "/workers/")
        words = read_words(page)
        assert "alert(1)</script> Working 12 200 7 0.1.0 under 10 s under 10 s ago" in words
        assert "beta Stopping 5 100 8" in words
        assert "gamma Silent 0 200 9 0.1.0 1 h 3 min ago" in words
        assert "Workers 2 and 1 silent Runs in flight 17 of 300" in words
        assert "<script>alert" not in page

    def test_queued_runs_are_counted_by_what_they_wait_for(self, viewer: Client) -> None:
        version = make_version()
        make_run(version, available_at=in_future(-12 * MINUTE))
        make_run(version, available_at=in_future(MINUTE))
        make_run(version, waiting_since=in_future(-MINUTE), waiting_for="Waits for a plug-in.")
        words = read_words(get_page(viewer, "/workers/"))
        assert "Ready 1 Oldest ready 12 min Waiting for a time 1 Waiting for something 1" in words

    def test_where_people_wait_for_runs_they_are_told_that_nobody_works(self, operator: Client) -> None:
        version = make_version()
        run = make_run(version, available_at=in_future(-MINUTE))
        pages = ["/runs/", "/runs/new/", f"/runs/new/{version.flow.name}/", run_address(run), "/workers/"]

        def list_noticing() -> list[Any]:
            return [page for page in pages if NOTICE in read_words(get_page(operator, page))]

        assert list_noticing() == pages
        make_worker()
        assert list_noticing() == []
