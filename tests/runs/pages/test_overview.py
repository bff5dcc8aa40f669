"""The home page and the page of workers: health, failures by cause, what runs now, the queue."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.engine.history import Issue
from flows.engine.spec import AuditSpec
from flows.models import Flow
from runs.models import AuditEntry, EndReason, Run, RunStatus
from runs.models.run import in_future
from runs.pages import samples
from runs.pages.overview import MAX_CAUSES, MAX_RUNNING
from runs.seeding import fetch_sample_flows, storing
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_runs, day_ago, stop_clock
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import (
    HTMX,
    count_queries,
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
NO_WORKER = 'class="message message-warning unattended"'


def start_run(**fields: object) -> Run:
    values = {"status": RunStatus.RUNNING, "lease_until": in_future(MINUTE), "started_at": timezone.now(), **fields}
    return make_run(make_version(make_page_flow()), **values)


def fail_run(audit: str = "", issues: tuple[Issue, ...] = (), **fields: object) -> Run:
    """A run that an issue of ``audit`` blocks, in the first attempt of its second step."""
    if audit:
        issues = (make_issue("low", audit="Tone"), make_issue("critical", audit=audit))
    attempts = (make_attempt(1, 1), make_attempt(2, 1, "failed", issues=issues))
    values = {"blocking_step": 2, "blocking_attempt": 1, "end_reason": "step_failed", "ended_at": timezone.now()}
    return make_stored_run(*attempts, **{"status": RunStatus.FAILED, **values, **fields})


def list_causes(page: str) -> list[tuple[str, str]]:
    """The causes of failures, each with the address that it leads to."""
    found = re.findall(r'id="cause-\d+" href="([^"]+)".*?<bdi[^>]*>(.*?)</bdi>', page, re.DOTALL)
    return [(title, url) for url, title in found]


def list_parts(update: str) -> list[str]:
    """The parts of the page that an update brings."""
    assert InlineFinder(update).found == []
    return re.findall(r'id="(?:overview|workers)-(\w+)" hx-swap-oob="innerHTML"', update)


class TestNow:
    def test_failures_are_grouped_by_cause_and_lead_to_what_blocked_the_newest(self, viewer: Client) -> None:
        runs = [fail_run("Length") for _ in range(3)]
        other = fail_run("<b>Style</b>")
        refused = make_stored_run(
            status=RunStatus.ERRORED,
            end_reason="call_refused",
            ended_at=timezone.now(),
            end_sentence="<i>No\u202e key",
            blocking_step=1,
        )
        page = get_page(viewer, "/")
        attempt = "/runs/{}/steps/2/attempts/1/#i"
        (most, most_url), *rest = list_causes(page)
        assert (most, most_url[:-1]) == ("Length", attempt.format(runs[-1].pk))
        assert re.findall(r"cause-count\">(.*?)<", page) == ["3 runs", "1 run", "1 run"]
        by_title = dict(rest)
        assert by_title["&lt;b&gt;Style&lt;/b&gt;"].startswith(attempt.format(other.pk))
        assert by_title["The call failed for good"] == run_address(refused)
        assert "&lt;i&gt;No" in page and "\u202e" not in page
        assert 'href="/issues/?flow=colour-theme&amp;audit=Length&amp;step=2&amp;period=90d"' in page

    def test_a_run_that_errored_has_no_issue_as_its_cause(self, viewer: Client) -> None:
        fail_run("Length", status=RunStatus.ERRORED, end_reason="budget_exceeded")
        assert [title for title, _ in list_causes(get_page(viewer, "/"))] == [EndReason.BUDGET_EXCEEDED.label]

    def test_an_audit_that_only_warns_is_no_cause(self, viewer: Client) -> None:
        audits = (
            AuditSpec(name="Tone", rule="false", severity="high", fail_at="never"),
            AuditSpec(name="Length", rule="false", severity="low"),
        )
        version = make_version(make_page_flow(make_step(1), make_step(2, audits=audits)))
        issues = (make_issue("high", audit="Tone"), make_issue("low", audit="Length"))
        run = fail_run(version=version, issues=issues)
        assert list_causes(get_page(viewer, "/")) == [("Length", f"/runs/{run.pk}/steps/2/attempts/1/#i1")]

    def test_only_the_most_frequent_causes_are_shown_at_the_same_price(self, viewer: Client) -> None:
        fail_run("Audit 0")
        few = count_queries(viewer, "/")
        for number in range(MAX_CAUSES + 2):
            fail_run(f"Audit {number}")
        assert len(list_causes(get_page(viewer, "/"))) == MAX_CAUSES
        assert count_queries(viewer, "/") == few

    def test_runs_under_way_are_shown_with_their_progress(self, viewer: Client) -> None:
        runs = [start_run(steps_passed=2, attempt_count=5) for _ in range(MAX_RUNNING + 1)]
        page = get_page(viewer, "/")
        assert f"#{runs[-1].pk}, v{runs[-1].version.number} Running 2 of 3 steps passed, 5 attempts" in read_words(page)
        assert re.findall(r'id="running-(\d+)"', page) == [str(run.pk) for run in reversed(runs[1:])]


class TestLive:
    @pytest.mark.parametrize(("address", "queries"), [("/", 8), ("/workers/", 4)])
    def test_nothing_new_is_no_content_and_costs_few_queries(self, viewer: Client, address: str, queries: int) -> None:
        run = start_run()
        fail_run("Length")
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
        assert list_parts(update) == ["failures"]
        assert viewer.get(read_poller(update), headers=HTMX).status_code == 204
        make_run(available_at=in_future(MINUTE))
        update = viewer.get(workers, headers=HTMX).content.decode()
        assert list_parts(update) == ["figures"]
        assert viewer.get(read_poller(update), headers=HTMX).status_code == 204

    @pytest.mark.parametrize("seen", ["", "x", "0123456789ab", ".".join(["0123456789ab"] * 5)])
    @pytest.mark.parametrize("address", ["/overview/live", "/workers/live"])
    def test_a_poll_without_digests_is_refused(self, viewer: Client, address: str, seen: str) -> None:
        assert viewer.get(f"{address}?seen={seen}").status_code == 400


class TestHealth:
    def test_flows_are_a_table_by_day(self, viewer: Client) -> None:
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
        assert "No run ended today" in read_plain(viewer, "/")
        add_runs(version, day_ago(10), succeeded=5, is_simulated=True)
        words = read_plain(viewer, "/")
        assert "No baseline yet" in words and "7-day median —" not in words and "Cost $" not in words
        add_runs(version, day_ago(1), succeeded=3, failed=1)
        words = read_plain(viewer, "/")
        assert "Pass rate — 7-day median 75 %" in words and "Runs 0 7-day median 4" in words
        add_runs(version, day_ago(1), succeeded=5, is_simulated=True)
        assert "Runs 0 7-day median 5" in read_plain(viewer, "/?runs=simulated")


class TestFirstRun:
    def test_an_empty_installation_offers_what_its_reader_may_do(self, operator: Client) -> None:
        page = get_page(operator, "/")
        assert 'href="/runs/new/"' not in page and "group Editor" in page
        make_version()
        page = get_page(operator, "/")
        assert 'href="/flows/"' in page and 'href="/runs/new/"' in page and "1 flow ready" in page
        client = Client()
        client.force_login(User.objects.create_superuser("grace"))
        assert 'href="/admin/flows/flow/add/"' in get_page(client, "/")

    def test_a_user_who_may_not_see_runs_reads_which_permission_is_missing_and_whom_to_ask(
        self, client: Client
    ) -> None:
        User.objects.create_superuser("grace")
        helper = User.objects.create_user("linus")
        helper.groups.add(Group.objects.get_or_create(name="Administrator")[0])
        User.objects.create_superuser("gone", is_active=False)
        client.force_login(User.objects.create_user("ada"))
        answer = client.get("/")
        words = read_words(answer.content.decode())
        assert answer.status_code == 403
        assert "“runs.view_run”" in words and "Ask grace or linus to add you to the group Viewer" in words


class TestSamples:
    @pytest.fixture
    def editor(self, client: Client) -> Client:
        user = User.objects.create_user("ada")
        user.groups.add(Group.objects.get(name="Editor"))
        client.force_login(user)
        return client

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storing, "COURSES", 1)
        monkeypatch.setattr(samples, "RUNS", 20)
        monkeypatch.setattr(samples, "PLANTED_RUNS", 10)

    def test_an_empty_installation_is_filled_and_emptied_by_one_button_each(self, editor: Client) -> None:
        make_version()
        assert 'action="/overview/samples/"' in get_page(editor, "/")
        page = editor.post("/overview/samples/", follow=True).content.decode()
        assert 'id="health-title"' in page and 'id="samples-remove"' in page
        assert Run.objects.count() == 30 and fetch_sample_flows().count() == 4
        assert all(run.is_counted and run.is_simulated for run in Run.objects.all())
        assert "simulated runs" in page and f"{samples.RUNS + samples.PLANTED_RUNS} sample runs" in page
        page = editor.post("/overview/samples/remove/", follow=True).content.decode()
        assert 'id="samples-add"' in page and not Run.objects.exists()
        assert [flow.title for flow in Flow.objects.all()] == ["Example"]
        actions = AuditEntry.objects.order_by("-pk").values_list("action", "object_label", "details")
        assert actions[0] == ("samples_removed", "", {"runs": 30})
        assert actions[1] == ("samples_added", "", {"runs": 30})
        assert actions[2] == ("flow_made_live", "Example", {"version": 1})

    def test_removing_asks_first_and_names_what_of_ones_own_goes_with_it(self, editor: Client) -> None:
        editor.post("/overview/samples/")
        flow = fetch_sample_flows()[0]
        version = flow.versions.all()[0]
        own = make_version(version.flow_spec.model_copy(update={"description": "Mine"}))
        make_run(own, status=RunStatus.SUCCEEDED, ended_at=timezone.now())
        assert own.flow == flow
        page = get_page(editor, "/overview/samples/remove/")
        assert "30 sample runs, with 1 run and 1 version of your own" in page and Run.objects.count() == 31
        page = editor.post("/overview/samples/remove/", follow=True).content.decode()
        assert "1 run and 1 version of your own" in page and not Run.objects.exists()

    def test_real_runs_are_never_mixed_with_samples(self, editor: Client) -> None:
        start_run()
        assert "samples-remove" not in get_page(editor, "/")
        editor.post("/overview/samples/")
        editor.post("/overview/samples/remove/")
        assert Run.objects.count() == 1 and not fetch_sample_flows().exists()

    def test_what_takes_longer_than_a_request_is_left_to_the_command(
        self, editor: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        editor.post("/overview/samples/")
        monkeypatch.setattr(samples, "MAX_REMOVED", 29)
        assert "seed_history --remove" in editor.post("/overview/samples/remove/", follow=True).content.decode()
        assert Run.objects.count() == 30


class TestWorkers:
    def test_each_worker_has_a_row_with_its_state_in_words(self, viewer: Client) -> None:
        assert "No workers online" in read_words(get_page(viewer, "/workers/"))
        make_worker(host="<script>alert(1)</script>", pid=7, in_flight=12)
        make_worker(host="beta", pid=8, slots=100, in_flight=5, is_stopping=True)
        make_worker(host="gamma", pid=9, started_at=in_future(-63 * MINUTE), heartbeat_at=in_future(-3 * MINUTE))
        page = get_page(viewer, "/workers/")
        words = read_words(page)
        assert "alert(1)</script> Working 12 200 7 0.1.0 under 10 s under 10 s ago" in words
        assert "beta Stopping 5 100 8" in words
        assert "gamma Silent 0 200 9 0.1.0 1 h 3 min ago" in words
        assert "Workers online 2 1 silent Running 17 / 300" in words
        assert "<script>alert" not in page

    def test_pages_where_users_wait_for_runs_say_that_no_worker_is_online(self, operator: Client) -> None:
        version = make_version()
        run = make_run(version, available_at=in_future(-MINUTE))
        pages = ["/runs/", "/runs/new/", f"/runs/new/{version.flow.name}/", run_address(run), "/workers/"]
        assert [page for page in pages if NO_WORKER in get_page(operator, page)] == pages
        make_worker()
        assert [page for page in pages if NO_WORKER in get_page(operator, page)] == []
