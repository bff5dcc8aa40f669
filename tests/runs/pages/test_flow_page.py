"""The page of a flow: what was counted of its runs, in figures, charts and tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.models import Flow, FlowVersion
from runs.models import DailyRuns
from runs.pages.flow_page import load_flow_page
from runs.pages.periods import format_day
from runs.rollup import count_ended_runs
from runs.statistics.figures import MAX_AUDITS
from tests.runs.builders import make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_models, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.reading import count_queries, get_page, read_words

pytestmark = pytest.mark.django_db

ADDRESS = "/flows/colour-theme/"
THIN = "\N{NARROW NO-BREAK SPACE}"


@pytest.fixture
def version(db: None) -> FlowVersion:
    return make_version(make_page_flow())


def read_plain(client: Client, address: str = ADDRESS) -> str:
    """What a reader sees, with plain spaces in numbers."""
    return read_words(get_page(client, address)).replace(THIN, " ")


def fill(version: FlowVersion) -> None:
    """One row of everything, three days ago."""
    day = day_ago(3)
    add_runs(version, day, succeeded=6, failed=2, errored=1, cancelled=1, first_time=3, cost="0.9")
    add_steps(version, day, begun=10, passed=8, first_passed=5, attempts=16, retries=5, total_tokens=1_600)
    add_audit(version, day, "Hex colours", fired=412, retried=100, fixed=71, retry_tokens=9_000, retry_cost="4.1")
    add_issues(version, day, "hex_format", "critical", audit="Hex colours", issues=500, runs=300)


class TestFigures:
    def test_runs_that_ended_are_shown_once_they_are_counted(self, viewer: Client) -> None:
        make_retried_run(ended_at=timezone.now() - timedelta(days=1))
        assert "Nothing was counted in these 30 days" in read_plain(viewer)
        count_ended_runs()
        words = read_plain(viewer)
        assert "Runs 1 1 succeeded Pass rate 100 % First-attempt pass rate 0 % without any retry" in words
        assert "Hex colours 1. Step 1 1 time 100 % of 1 retried 600" in words
        assert "hex_format Critical Hex colours 1 1" in words

    def test_rates_and_means_of_the_period(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        words = read_plain(viewer)
        assert "Runs 10 6 succeeded" in words
        assert "Pass rate 67 % 2 failed, 1 errored" in words
        assert "First-attempt pass rate 33 %" in words
        assert "Attempts per step 1.50" in words
        assert re.search(r"Duration (9\.\d|10\.\d) s p50, (9\.\d|10\.\d) s p95", words)
        assert "Tokens per run 100 167 per accepted output" in words
        assert "Cost per run $0.0900 $0.1500 per accepted output" in words

    def test_an_audit_says_how_often_it_fired_what_was_fixed_and_what_that_cost(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        fill(version)
        assert "Hex colours 1. Step 1 412 times 71 % of 100 retried 9 000 $4.10" in read_plain(viewer)

    def test_an_audit_stands_under_the_step_that_it_fired_in_though_another_was_put_before_it(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        newer = make_version(make_page_flow())
        for one, names in ((version, ("Draft", "Colours")), (newer, ("Plan", "Draft", "Colours"))):
            add_runs(one, day_ago(3), succeeded=1)
            for step, name in enumerate(names, start=1):
                add_steps(one, day_ago(3), step=step, begun=1, attempts=1, name=name)
        for day in (3, 2):
            add_audit(version, day_ago(day), "Hex format", step=2, fired=200, retried=2, fixed=1, retry_cost="0.5")
        add_audit(newer, day_ago(2), "Hex format", step=3, fired=7)
        add_audit(newer, day_ago(2), "Too long", step=2, fired=5)
        words = read_plain(viewer)
        assert "Hex format 2. Colours 400 times 50 % of 4 retried 0 $1.00" in words
        assert "Hex format 3. Colours 7 times" in words
        assert "Too long 2. Draft 5 times" in words
        assert "Hex format 2. Draft" not in words

    def test_shares_of_the_retry_bill_are_of_the_money_where_all_of_it_is_known(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        row = add_runs(version, day_ago(3), succeeded=10, cost="3", wasted_retry_tokens=1_000)
        DailyRuns.objects.filter(pk=row.pk).update(wasted_retry_cost=Decimal(1), cost=Decimal(4), total_tokens=2_000)
        words = read_plain(viewer)
        assert "First attempts 75 % 1 000 $3.00" in words and "Retries that did not 25 % 1 000 $1.00" in words
        assert "Shares are of the cost. A retry led to a pass" in words
        DailyRuns.objects.filter(pk=row.pk).update(unpriced=1)
        words = read_plain(viewer)
        assert "First attempts 50 % 1 000 ≥ $3.00" in words
        assert "Shares are of tokens, since some prices are unknown. A retry led to a pass" in words

    def test_audits_can_be_put_in_the_order_of_their_cost(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        add_audit(version, day_ago(2), "Dear", fired=3, retried=3, retry_cost="9")
        assert (words := read_plain(viewer)).index("Hex colours") < words.index("Dear 1. Step 1")
        page = get_page(viewer, f"{ADDRESS}?sort=cost")
        assert page.index(">Dear</a>") < page.index(">Hex colours</a>")
        assert 'aria-sort="descending"><a href="/flows/colour-theme/?sort=cost#audits">Cost of its retries' in page

    def test_of_very_many_audits_it_is_said_that_there_are_others(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        for number in range(MAX_AUDITS - 1):
            add_audit(version, day_ago(3), f"Audit {number}", fired=1)
        words = read_plain(viewer)
        assert "there are others" not in words
        add_audit(version, day_ago(3), "One more", fired=1)
        words = read_plain(viewer)
        assert f"These are the {MAX_AUDITS} audits that fired most often; there are others." in words
        assert "Hex colours" in words
        assert len(re.findall(r"/runs/\?flow=colour-theme&amp;audit=", get_page(viewer, ADDRESS))) == MAX_AUDITS
        words = read_plain(viewer, f"{ADDRESS}?sort=cost")
        assert f"These are the {MAX_AUDITS} audits that cost most in retries; there are others." in words

    def test_money_that_is_unknown_is_no_zero(self, viewer: Client, version: FlowVersion) -> None:
        row = add_runs(version, day_ago(3), succeeded=2, unpriced=4)
        words = read_plain(viewer)
        assert "Cost per run — — per accepted output" in words
        assert "Tokens by day" in words
        DailyRuns.objects.filter(pk=row.pk).update(cost=Decimal(1), first_cost=Decimal(1))
        words = read_plain(viewer)
        assert "Cost per run ≥ $0.5000 ≥ $0.5000 per accepted output" in words
        assert "First attempts 100 % 200 ≥ $1.00 Retries that led to a pass 0 % 0 $0.00" in words

    def test_only_the_days_of_the_period_count(self, version: FlowVersion) -> None:
        now = datetime(2026, 5, 31, 0, 30, tzinfo=UTC)
        for day, runs in (("2026-05-31", 1), ("2026-05-02", 10), ("2026-05-01", 100), ("2026-06-01", 1_000)):
            add_runs(version, datetime.fromisoformat(day).date(), succeeded=runs)
        for period, runs in (("7d", 1), ("30d", 11), ("90d", 111), ("12m", 111)):
            summary = load_flow_page(version.flow, {"period": period}, now).summary
            assert summary is not None
            assert summary.runs.runs == runs

    def test_simulated_runs_are_kept_apart(self, viewer: Client, version: FlowVersion) -> None:
        add_runs(version, day_ago(3), succeeded=5, is_simulated=True)
        words = read_plain(viewer)
        assert "All runs of this period are simulated" in words
        assert "Runs 5 5 succeeded" in words
        assert "Cost per run — —" in words
        add_runs(version, day_ago(2), succeeded=3)
        assert "Runs 3 3 succeeded" in (words := read_plain(viewer))
        assert "Real Simulated" in words
        assert "Runs 5 5 succeeded" in read_plain(viewer, f"{ADDRESS}?runs=simulated")


class TestCharts:
    def test_durations_are_shown_by_day_with_the_versions_and_a_table(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        newer = make_version(make_page_flow())
        add_runs(version, day_ago(2), succeeded=94, took=2)
        add_runs(newer, day_ago(2), succeeded=6, took=60)
        add_steps(version, day_ago(2), begun=1, passed=1, attempts=1)
        chart = get_page(viewer, f"{ADDRESS}?period=7d").split('<section class="card day-card" id="durations"')[1]
        chart = chart.split("</section>")[0]
        words = read_words(chart)
        assert "Duration by day p50 p95" in words
        cells = re.findall(r'<td class="number">([^<]+)</td>', chart)
        assert len(cells) == 2
        assert re.fullmatch(r"(1\.9|2\.\d) s", cells[0])
        assert re.fullmatch(r"5\d\.\d s|1 min 0\d s", cells[1])
        assert words.count("nothing ran") >= 6
        assert "; v2 since" in chart
        assert 'id="durations"' not in get_page(viewer, f"{ADDRESS}?model=gpt-5-mini")


class TestVersionsAndModels:
    def test_versions_are_compared_and_chosen(self, viewer: Client, version: FlowVersion) -> None:
        newer = make_version(make_page_flow())
        add_runs(version, day_ago(3), succeeded=1, failed=3)
        add_runs(newer, day_ago(2), succeeded=2, took=30)
        words = read_plain(viewer)
        assert "v2 live 2 100 %" in words
        assert "v1 4 25 %" in words
        assert "Runs 4 1 succeeded" in read_plain(viewer, f"{ADDRESS}?version=1")

    def test_a_version_is_marked_on_the_day_on_which_its_first_run_ended(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        newer = make_version(make_page_flow())
        add_runs(version, day_ago(4), succeeded=1)
        for day in (1, 2):
            add_runs(newer, day_ago(day), succeeded=1)
        page = get_page(viewer, f"{ADDRESS}?period=7d")
        assert page.count("<title>v1 since") == page.count("<title>v2 since") == 4
        assert f"v2 since {format_day(day_ago(2))}" in page

    def test_a_version_that_never_ran_is_not_marked(self, viewer: Client, version: FlowVersion) -> None:
        newer, newest = make_version(make_page_flow()), make_version(make_page_flow())
        add_runs(version, day_ago(3), succeeded=1)
        add_runs(newer, day_ago(2), succeeded=1, is_simulated=True)
        assert newest.number == 3
        page = get_page(viewer, f"{ADDRESS}?period=7d")
        assert "v1 since" in page
        assert "v2 since" not in page and "v3 since" not in page
        assert "v2 since" in get_page(viewer, f"{ADDRESS}?period=7d&runs=simulated")

    def test_models_are_compared_by_attempts_and_chosen(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        add_steps(version, day_ago(3), model="gpt-5", begun=2, passed=3, first_passed=1, attempts=4, total_tokens=800)
        words = read_plain(viewer)
        assert "gpt-5-mini 16 50 % 50 % 2.00 1 600 100" in words
        assert "gpt-5 4 75 % 50 % 1.33 800 200" in words
        words = read_plain(viewer, f"{ADDRESS}?model=gpt-5")
        assert "Attempts 4 by gpt-5 Attempts that passed 75 % 3 passed" in words
        assert "Tokens per attempt 200 267 per passed attempt" in words
        assert "the retry bill is kept for runs as a whole, not by model. Show all models" in words

    def test_a_model_can_not_write_into_the_page(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        add_steps(version, day_ago(3), model="<script>alert(1)</script>\u202e", attempts=1)
        add_issues(version, day_ago(3), "<b>\u202ex", audit="<i>", issues=1, runs=1)
        page = get_page(viewer, ADDRESS)
        assert "<script>alert" not in page
        assert "<b>" not in page
        assert "\u202e" not in read_words(page)


class TestWords:
    def test_an_accepted_output_is_nothing_but_a_run_that_succeeded(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        words = read_plain(viewer)
        # Two figures, the tables of versions and of models twice, and the note below.
        assert words.lower().count("accepted output") == 8
        assert "An accepted output is that of a run that succeeded" in words
        assert "Cost Per passed step" in words
        assert "Cost Per passed attempt" in words

    def test_audits_say_why_the_runs_behind_their_links_may_be_others(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        fill(version)
        created = "by the day on which they were created, in your time zone."
        words = read_plain(viewer)
        assert f"A link leads to the runs in which the audit fired in any step, {created}" in words
        assert f"A link leads to runs {created}" in words
        assert "Days are those of UTC" in words


class TestLinks:
    def test_audits_and_issues_lead_to_the_runs_they_were_raised_in(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        add_audit(version, day_ago(3), "", code="schema", fired=1)
        since = day_ago(29).isoformat()
        page = get_page(viewer, ADDRESS).replace("&amp;", "&")
        assert f'href="/runs/?flow=colour-theme&audit=Hex+colours&from={since}"' in page
        assert f'href="/runs/?flow=colour-theme&code=hex_format&from={since}"' in page
        assert f'href="/runs/?flow=colour-theme&code=schema&from={since}"' in page
        assert f'href="/runs/?flow=colour-theme&status=failed%2Cerrored&from={since}"' in page
        assert 'href="/runs/?flow=colour-theme"' in page

    def test_what_is_offered_is_what_one_may_do(self, client: Client, version: FlowVersion) -> None:
        fill(version)
        user = User.objects.create_user("ada", is_staff=True)
        client.force_login(user)
        definition = f'href="/admin/flows/flow/{version.flow_id}/change/"'
        run = 'href="/runs/new/colour-theme/"'
        for codenames, offered in (
            (["view_run"], []),
            (["view_run", "add_run"], [run]),
            (["view_run", "add_run", "view_flow"], [definition, run]),
        ):
            user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
            page = get_page(client, ADDRESS)
            assert [link for link in (definition, run) if link in page] == offered

    def test_choices_are_kept_while_another_is_made(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        page = get_page(viewer, f"{ADDRESS}?period=90d&version=1&sort=cost").replace("&amp;", "&")
        assert 'href="/flows/colour-theme/?period=7d&version=1&sort=cost"' in page
        assert 'href="/flows/colour-theme/?version=1&sort=cost"' in page
        assert '<option value="1" selected>' in page


class TestEdges:
    def test_a_flow_that_never_ran_says_how_to_run_it(self, operator: Client, version: FlowVersion) -> None:
        words = read_plain(operator)
        assert "This flow has not run yet" in words
        assert "manage.py run_flow colour-theme" in words
        assert 'href="/runs/new/colour-theme/"' in get_page(operator, ADDRESS)

    def test_an_archived_flow_is_shown_with_a_mark_and_not_offered(
        self, operator: Client, version: FlowVersion
    ) -> None:
        fill(version)
        Flow.objects.update(is_archived=True)
        page = get_page(operator, ADDRESS)
        assert "Colour theme Archived" in read_words(page)
        assert "/runs/new/colour-theme/" not in page

    def test_a_flow_that_does_not_exist_is_not_found(self, viewer: Client) -> None:
        assert viewer.get("/flows/nothing/").status_code == 404

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            ("period=1y", "“1y” is no period; it can be 7d, 30d, 90d or 12m. The last 30 days are shown."),
            ("version=9", "There is no version “9” of this flow; all versions are shown."),
            ("version=%F0%9F%92%A5", "There is no version “💥” of this flow"),
            ("version=99999999999999999999", "There is no version"),
            ("model=nobody", "No attempt by a model “nobody” was counted in this period; all models are shown."),
            ("runs=x", "“x” is no choice for “runs”; it can be real or simulated."),
            ("measure=%00", "is no choice for “measure”"),
            ("sort=%E2%80%AEx", "is no choice for “sort”"),
            ("measure=cost&runs=real", "No cost is known of these runs; their tokens are shown."),
            (
                "verison=9",
                "There is no choice “verison”; the choices are period, version, model, runs, measure, sort.",
            ),
            ("a=1&b=2&c=3&d=4&" + "e" * 99, "There is no choice “a” or “b” or “c”; the choices are"),
        ],
    )
    def test_what_makes_no_sense_is_named_and_left_out(
        self, viewer: Client, version: FlowVersion, query: str, sentence: str
    ) -> None:
        add_runs(version, day_ago(3), succeeded=7)
        add_steps(version, day_ago(3), begun=7, passed=7, attempts=7)
        words = read_plain(viewer, f"{ADDRESS}?{query}")
        assert sentence in words
        assert "Runs 7 7 succeeded" in words

    def test_a_version_that_did_not_run_lately_leaves_a_way_back(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        make_version(make_page_flow())
        words = read_plain(viewer, f"{ADDRESS}?version=2")
        assert "No run of version 2 ended in them." in words
        assert "All runs" in words


class TestQueries:
    def test_their_number_does_not_depend_on_what_was_counted(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        few = count_queries(viewer, ADDRESS)
        for number in range(2, 6):
            newer = make_version(make_page_flow())
            for day in range(30):
                add_runs(newer, day_ago(day), succeeded=number)
                add_models(newer, day_ago(day), f"model-{number}", runs=number)
                for step in (1, 2, 3):
                    add_steps(newer, day_ago(day), step=step, begun=1, model=f"model-{number}")
                    add_audit(newer, day_ago(day), f"Audit {number}", step=step, fired=1)
                add_issues(newer, day_ago(day), f"code_{number}", issues=1)
        # Session, user and two for permissions; flow, versions, kinds, steps, runs, first days, audits and issues.
        assert count_queries(viewer, f"{ADDRESS}?period=12m") == few == 11

    def test_none_reads_runs_or_history(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        with CaptureQueriesContext(connection) as queries:
            get_page(viewer, ADDRESS)
        told = " ".join(query["sql"] for query in queries.captured_queries)
        for table in ("runs_run", "runs_step", "runs_attempt", "runs_issue", "runs_tokenusage"):
            assert f'FROM "{table}"' not in told
