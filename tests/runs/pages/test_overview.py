"""The home page: what goes on, what failed, today beside the 7-day median, and the way to the first run."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.models import Run, RunStatus, Worker
from runs.models.run import in_future
from runs.pages.recent_days import RecentDays, load_recent_days
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_runs, day_ago, stop_clock
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import HTMX, count_queries, get_page, read_table, read_words, sign_in
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 13, 9, 30, tzinfo=UTC)
TODAY = NOW.date()
MINUTE = timedelta(minutes=1)
THIN = "\N{NARROW NO-BREAK SPACE}"


def start_run(**fields: object) -> Run:
    version = make_version(make_page_flow())
    values = {"status": RunStatus.RUNNING, "lease_until": in_future(MINUTE), "started_at": timezone.now(), **fields}
    return make_run(version, **values)


def fail_run(status: str = RunStatus.FAILED, **fields: object) -> Run:
    return make_run(make_version(make_page_flow()), status=status, ended_at=timezone.now(), **fields)


def read_plain(client: Client, address: str = "/") -> str:
    return read_words(get_page(client, address)).replace(THIN, " ")


def read_poller(page: str) -> str:
    """Where an open page asks for what is new."""
    found = re.search(r'hx-get="(/overview/live\?seen=[0-9a-f.]+)"', page)
    assert found is not None
    return found[1]


class TestNow:
    def test_runs_under_way_are_shown_with_their_progress(self, viewer: Client) -> None:
        run = start_run(steps_passed=2, attempt_count=5)
        words = read_plain(viewer)
        assert f"Colour theme #{run.pk}, v1 Running 2 of 3 steps passed, 5 attempts" in words
        assert f'href="/runs/{run.pk}/"' in get_page(viewer, "/")

    def test_of_many_runs_the_newest_ten_are_shown_and_a_link_to_all(self, viewer: Client) -> None:
        runs = [start_run() for _ in range(11)]
        page = get_page(viewer, "/")
        assert f'id="running-{runs[-1].pk}"' in page
        assert f'id="running-{runs[0].pk}"' not in page
        assert 'href="/runs/?status=running">All that run</a>' in page

    def test_what_failed_says_why_and_leads_to_the_attempt(self, viewer: Client) -> None:
        failed = fail_run(
            end_sentence="Step 2 “Step 2” did not pass after 2 attempts.", blocking_step=2, blocking_attempt=2
        )
        errored = fail_run(RunStatus.ERRORED, end_sentence="The budget was used up.")
        words = read_plain(viewer)
        assert words.index(f"#{errored.pk}") < words.index(f"#{failed.pk}")
        assert "Errored The budget was used up." in words
        page = get_page(viewer, "/")
        assert f'href="/runs/{failed.pk}/#s2a2">Step 2 “Step 2”</a> did not pass after 2 attempts.' in page

    def test_a_run_that_took_long_and_failed_now_comes_first(self, viewer: Client) -> None:
        long = fail_run()
        for _ in range(12):
            Run.objects.filter(pk=fail_run().pk).update(ended_at=timezone.now() - timedelta(days=30))
        shown = re.findall(r'id="failed-(\d+)"', get_page(viewer, "/"))
        assert shown[0] == str(long.pk)

    def test_of_failed_and_errored_runs_the_newest_eight_are_shown(self, viewer: Client) -> None:
        runs = [fail_run(RunStatus.ERRORED if number % 3 == 0 else RunStatus.FAILED) for number in range(14)]
        shown = re.findall(r'id="failed-(\d+)"', get_page(viewer, "/"))
        assert shown == [str(run.pk) for run in reversed(runs[6:])]

    def test_runs_that_wait_for_nobody_are_warned_of(self, viewer: Client) -> None:
        make_run(available_at=in_future(-MINUTE))
        words = read_plain(viewer)
        assert "No worker is running." in words
        assert "Ready, waiting for a place 1" in words
        assert "Workers None all workers" in words
        make_worker(in_flight=3)
        words = read_plain(viewer)
        assert "No worker is running." not in words
        assert "Places taken 3 of 200" in words

    def test_places_are_taken_by_what_runs_before_the_next_heartbeat_says_so(self, viewer: Client) -> None:
        make_worker(slots=2)
        start_run()
        assert "Places taken 1 of 2" in read_plain(viewer)
        start_run()
        start_run()
        assert "Places taken 2 of 2" in read_plain(viewer)
        Worker.objects.update(heartbeat_at=in_future(-MINUTE))
        assert "Places taken 0 of 0" in read_plain(viewer)

    def test_what_a_model_wrote_is_inert(self, viewer: Client) -> None:
        fail_run(end_sentence="<script>alert(1)</script>\u202e", blocking_step=1, blocking_attempt=1)
        page = get_page(viewer, "/")
        assert "<script>alert" not in page
        assert "\u202e" not in page


class TestLive:
    def test_nothing_new_is_no_content_however_long_ago(self, viewer: Client) -> None:
        run = start_run()
        fail_run()
        make_worker()
        address = read_poller(get_page(viewer, "/"))
        Run.objects.filter(pk=run.pk).update(started_at=in_future(-MINUTE))
        answer = viewer.get(address, headers=HTMX)
        assert (answer.status_code, answer.content) == (204, b"")

    def test_only_the_parts_that_changed_are_sent(self, viewer: Client) -> None:
        run = start_run()
        make_worker()
        address = read_poller(get_page(viewer, "/"))
        Run.objects.filter(pk=run.pk).update(steps_passed=1, revision=run.revision + 1)
        update = viewer.get(address, headers=HTMX).content.decode()
        assert re.findall(r'id="overview-(\w+)" hx-swap-oob="innerHTML"', update) == ["running"]
        assert InlineFinder(update).found == []
        fail_run()
        update = viewer.get(read_poller(update), headers=HTMX).content.decode()
        assert re.findall(r'id="overview-(\w+)" hx-swap-oob="innerHTML"', update) == ["failed"]
        assert viewer.get(read_poller(update), headers=HTMX).status_code == 204

    def test_it_tells_when_the_last_worker_falls_silent(self, viewer: Client) -> None:
        make_run(available_at=in_future(-MINUTE))
        make_worker()
        address = read_poller(get_page(viewer, "/"))
        Worker.objects.update(heartbeat_at=in_future(-MINUTE))
        assert "No worker is running." in read_words(viewer.get(address, headers=HTMX).content.decode())

    @pytest.mark.parametrize("seen", ["", "x", "0123456789ab", ".".join(["0123456789ab"] * 5)])
    def test_a_question_that_makes_no_sense_is_refused_with_the_right_form(self, viewer: Client, seen: str) -> None:
        answer = viewer.get(f"/overview/live?seen={seen}")
        assert answer.status_code == 400
        assert b"?seen=DIGEST.DIGEST.DIGEST.DIGEST" in answer.content


class TestRecentDays:
    @pytest.fixture
    def recent(self, db: None) -> RecentDays:
        version = make_version(make_page_flow())
        other = make_version(make_page_flow(name="other", title="Other"))
        add_runs(version, TODAY, succeeded=3, failed=1, took=20, cost="0.5")
        add_runs(version, date(2026, 5, 12), succeeded=10, cost="1")
        add_runs(other, date(2026, 5, 12), succeeded=10, failed=20)
        found = load_recent_days(NOW)
        assert found is not None
        return found

    def test_flows_are_in_the_order_of_their_cost_with_tokens_where_no_price_is_known(self, recent: RecentDays) -> None:
        assert [(flow.name, flow.is_by_cost) for flow in recent.flows] == [("colour-theme", True), ("other", True)]
        add_runs(make_version(make_page_flow(name="unpriced")), TODAY, succeeded=1_000, unpriced=1_000)
        found = load_recent_days(NOW)
        assert found is not None
        assert [(flow.name, flow.is_by_cost) for flow in found.flows] == [
            ("colour-theme", True),
            ("unpriced", False),
            ("other", True),
        ]

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

    def test_many_flows_are_added_up_beyond_the_first_few(self) -> None:
        for number in range(12):
            add_runs(make_version(make_page_flow(name=f"flow-{number}")), TODAY, succeeded=1, cost=str(number + 1))
        found = load_recent_days(NOW)
        assert found is not None
        assert [flow.name for flow in found.flows] == [*(f"flow-{number}" for number in range(11, 3, -1)), ""]
        assert (found.flows[-1].title, found.flows[-1].sums.cost) == ("4 other flows", 10)

    def test_simulated_runs_are_kept_apart(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        stop_clock(monkeypatch)
        version = make_version(make_page_flow())
        make_run(version)
        add_runs(version, day_ago(1), succeeded=5, is_simulated=True)
        assert "simulated runs" in (words := read_plain(viewer))
        assert "7-day median 5" in words
        add_runs(version, day_ago(1), succeeded=3)
        assert "7-day median 3" in (words := read_plain(viewer))
        assert "Real Simulated" in words
        assert "7-day median 5" in read_plain(viewer, "/?runs=simulated")
        assert "“runs” can be real or simulated." in read_plain(viewer, "/?runs=x")


class TestFirstRun:
    def test_an_empty_installation_shows_the_way_that_its_reader_may_go(self, operator: Client) -> None:
        words = read_plain(operator)
        assert "The way to the first run" in words
        assert "Your account may not add flows: ask a member of the group Editor." in words
        assert "There is no flow to run yet." in words
        make_version()
        page = get_page(operator, "/")
        assert 'href="/flows/"' in page
        assert 'href="/runs/new/"' in page

    def test_an_installation_whose_runs_retention_deleted_is_not_called_empty(self, operator: Client) -> None:
        add_runs(make_version(make_page_flow()), day_ago(40), succeeded=7)
        words = read_plain(operator)
        assert "Nothing has run here yet" not in words
        assert "No run has failed." in words and "Queue" in get_page(operator, "/")

    def test_a_viewer_is_told_who_may_start_runs(self, viewer: Client) -> None:
        make_version()
        assert "Your account may not start runs: ask a member of the group Operator." in read_plain(viewer)

    def test_an_editor_is_led_to_the_editor(self, client: Client) -> None:
        client.force_login(User.objects.create_superuser("ada"))
        assert 'href="/admin/flows/flow/add/"' in get_page(client, "/")


class TestAccess:
    def test_strangers_sign_in_first(self, client: Client) -> None:
        assert client.get("/")["Location"] == "/accounts/login/?next=/"

    def test_who_may_not_see_runs_is_told_what_is_missing_and_whom_to_ask(self, client: Client) -> None:
        User.objects.create_superuser("grace")
        helper = User.objects.create_user("linus")
        helper.groups.add(Group.objects.get_or_create(name="Administrator")[0])
        User.objects.create_superuser("gone", is_active=False)
        User.objects.create_user("ada", password="secret")
        answer = client.post("/accounts/login/", {"username": "ada", "password": "secret", "next": "/"}, follow=True)
        assert answer.status_code == 403
        words = read_words(answer.content.decode())
        assert "You are signed in as ada, but you may not see runs: your account lacks “runs.view_run”." in words
        assert "Ask grace or linus to add you to the group Viewer" in words
        assert "gone" not in words
        assert "Sign in as somebody else" in words

    def test_parts_are_for_those_who_may_see_runs(self, client: Client) -> None:
        sign_in(client)
        assert client.get("/overview/live?seen=x").status_code == 403


class TestQueries:
    def test_their_number_does_not_depend_on_size(self, viewer: Client) -> None:
        add_runs(make_version(make_page_flow()), day_ago(1), succeeded=1)
        start_run()
        few = count_queries(viewer, "/")
        for number in range(4):
            version = make_version(make_page_flow(name=f"flow-{number}"))
            for day in range(10):
                add_runs(version, day_ago(day), succeeded=1)
            start_run()
            fail_run()
            fail_run(RunStatus.ERRORED)
            make_worker()
        # Session, user and two for permissions; whether there are runs; workers, three for the queue, running, failed,
        # errored, and how many run; two for days.
        assert count_queries(viewer, "/") == few == 14

    def test_what_is_new_costs_eight_queries_of_runs(self, viewer: Client) -> None:
        start_run()
        address = read_poller(get_page(viewer, "/"))
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(address, headers=HTMX).status_code == 204
        assert sum('FROM "runs_' in one["sql"] and "session" not in one["sql"] for one in queries.captured_queries) == 8
