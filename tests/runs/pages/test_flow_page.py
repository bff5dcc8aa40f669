"""The list of flows and the page of one: what was counted of their runs, in figures, charts and tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from flows.models import Flow, FlowVersion
from runs.models import DailyRuns, RunStatus
from runs.pages import flow_list
from runs.pages.flow_page import load_flow_page
from runs.pages.periods import format_day
from runs.rollup import count_ended_runs
from runs.statistics.figures import MAX_AUDITS
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_models, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.reading import get_page, read_plain, read_table, read_words

pytestmark = pytest.mark.django_db

ADDRESS = "/flows/colour-theme/"


@pytest.fixture
def version(db: None) -> FlowVersion:
    return make_version(make_page_flow())


def fill(version: FlowVersion) -> None:
    """One row of everything, three days ago."""
    day = day_ago(3)
    add_runs(version, day, succeeded=6, failed=2, errored=1, cancelled=1, first_time=3, cost="0.9")
    add_steps(version, day, begun=10, passed=8, first_passed=5, attempts=16, retries=5, total_tokens=1_600)
    add_audit(version, day, "Hex colours", fired=412, retried=100, fixed=71, retry_tokens=9_000, retry_cost="4.1")
    add_issues(version, day, "hex_format", "critical", audit="Hex colours", issues=500, runs=300)


class TestList:
    def test_each_flow_has_a_row_with_its_last_run_and_what_it_did_in_thirty_days(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        add_runs(version, day_ago(3), succeeded=3, failed=1, first_time=2, cost="1.5")
        add_runs(version, day_ago(40), failed=100)
        run = make_run(version, status=RunStatus.FAILED, ended_at=timezone.now())
        Flow.objects.create(name="draft", title="Draft")
        words = read_plain(viewer, "/flows/")
        assert f"Colour theme colour-theme v1 Failed #{run.pk}, " in words and "4 75 % 50 % $1.50" in words
        assert "Draft draft None Never None 0 — — —" in words
        page = get_page(viewer, "/flows/")
        assert f'href="{ADDRESS}"' in page and f'href="/runs/{run.pk}/"' in page

    def test_what_is_drawn_by_day_is_also_a_table_and_the_archive_comes_last(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        make_version(make_page_flow(name="idle", title="Idle"))
        add_runs(version, day_ago(2), succeeded=1_200)
        add_runs(version, day_ago(0), failed=1)
        Flow.objects.filter(pk=version.flow_id).update(is_archived=True)
        head, *rows = read_table(get_page(viewer, "/flows/"), "Runs by flow and day")
        last = day_ago(0)
        assert len(head) == 31 and head[-1] == f"{last.day} {last:%b}"
        assert rows == [["Colour theme", *["—"] * 27, "1 200", "—", "1"]]
        words = read_plain(viewer, "/flows/")
        assert words.index("Idle idle") < words.index("Archived") < words.index("Colour theme colour-theme")

    def test_simulated_runs_stand_for_a_flow_only_where_it_has_no_others(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        add_runs(version, day_ago(3), succeeded=7, is_simulated=True)
        assert "7 100 % 0 % simulated" in read_plain(viewer, "/flows/")
        add_runs(version, day_ago(2), succeeded=2, cost="1")
        assert "2 100 % 0 % $1.00" in read_plain(viewer, "/flows/")

    def test_many_flows_are_spread_over_pages(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow_list, "PAGE_SIZE", 2)
        for name in "abcde":
            Flow.objects.create(name=name, title=f"Flow {name}")
        found = []
        for number in (1, 2, 3):
            page = get_page(viewer, f"/flows/?page={number}")
            links = re.findall(r'href="/flows/\?page=(\d)" rel="(\w+)"', page)
            found.append((sorted(set(re.findall(r'href="/flows/(\w)/"', page))), sorted(set(links))))
        assert found == [
            (["a", "b"], [("2", "next")]),
            (["c", "d"], [("1", "prev"), ("3", "next")]),
            (["e"], [("2", "prev")]),
        ]

    @pytest.mark.parametrize("number", ["0", "-1", "x", "10001", "1" + "9" * 5_000, "%00", "٣"], ids=str.__len__)
    def test_a_page_that_makes_no_sense_is_named(self, viewer: Client, version: FlowVersion, number: str) -> None:
        page = get_page(viewer, f"/flows/?page={number}")
        assert "message-warning" in page and "Colour theme" in page


class TestFigures:
    def test_runs_that_ended_are_shown_once_they_are_counted(self, viewer: Client) -> None:
        make_retried_run(ended_at=timezone.now() - timedelta(days=1))
        assert "Nothing was counted in these 30 days" in read_plain(viewer, ADDRESS)
        count_ended_runs()
        words = read_plain(viewer, ADDRESS)
        assert "Runs 1 1 succeeded Pass rate 100 % First-attempt pass rate 0 % without any retry" in words
        assert "Hex colours 1. Step 1 1 time 100 % of 1 retried 600" in words
        assert "hex_format Critical Hex colours 1 1" in words

    def test_rates_and_means_of_the_period(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        words = read_plain(viewer, ADDRESS)
        for figure in (
            "Runs 10 6 succeeded",
            "Pass rate 67 % 2 failed, 1 errored",
            "First-attempt pass rate 33 %",
            "Attempts per step 1.50",
            "Tokens per run 100 167 per accepted output",
            "Cost per run $0.0900 $0.1500 per accepted output",
            "Hex colours 1. Step 1 412 times 71 % of 100 retried 9 000 $4.10",
        ):
            assert figure in words

    def test_an_audit_stands_under_the_step_that_it_fired_in_though_another_was_put_before_it(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        newer = make_version(make_page_flow())
        for one, names in ((version, ("Draft", "Colours")), (newer, ("Plan", "Draft", "Colours"))):
            add_runs(one, day_ago(3), succeeded=1)
            for step, name in enumerate(names, start=1):
                add_steps(one, day_ago(3), step=step, begun=1, attempts=1, name=name)
        add_audit(version, day_ago(3), "Hex format", step=2, fired=200)
        add_audit(newer, day_ago(2), "Hex format", step=3, fired=7)
        words = read_plain(viewer, ADDRESS)
        assert "Hex format 2. Colours 200 times" in words and "Hex format 3. Colours 7 times" in words

    def test_the_audits_that_fired_most_or_cost_most_are_shown(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        add_audit(version, day_ago(2), "Dear", fired=1, retried=1, retry_cost="9")
        for number in range(MAX_AUDITS):
            add_audit(version, day_ago(3), f"Audit {number}", fired=2)
        for query, shown in (("", ["Hex colours"]), ("?sort=cost", ["Dear", "Hex colours"])):
            page = get_page(viewer, f"{ADDRESS}{query}")
            audits = re.findall(r'/runs/\?flow=colour-theme&amp;audit=[^"]*">([^<]*)', page)
            assert len(audits) == MAX_AUDITS and audits[: len(shown)] == shown
            assert "there are others." in read_words(page)

    def test_money_that_is_unknown_is_no_zero(self, viewer: Client, version: FlowVersion) -> None:
        row = add_runs(version, day_ago(3), succeeded=2, unpriced=4)
        assert "Cost per run — — per accepted output" in read_plain(viewer, ADDRESS)
        DailyRuns.objects.filter(pk=row.pk).update(cost=Decimal(1), first_cost=Decimal(1))
        words = read_plain(viewer, ADDRESS)
        assert "Cost per run ≥ $0.5000 ≥ $0.5000 per accepted output" in words
        assert "First attempts 100 % 200 ≥ $1.00" in words

    def test_only_the_days_of_the_period_count(self, version: FlowVersion) -> None:
        now = datetime(2026, 5, 31, 0, 30, tzinfo=UTC)
        for day, runs in (("2026-05-31", 1), ("2026-05-02", 10), ("2026-05-01", 100), ("2026-06-01", 1_000)):
            add_runs(version, datetime.fromisoformat(day).date(), succeeded=runs)
        for period, runs in (("7d", 1), ("30d", 11), ("90d", 111), ("12m", 111)):
            summary = load_flow_page(version.flow, {"period": period}, now).summary
            assert summary is not None and summary.runs.runs == runs

    def test_simulated_runs_are_kept_apart(self, viewer: Client, version: FlowVersion) -> None:
        add_runs(version, day_ago(3), succeeded=5, is_simulated=True)
        assert "Runs 5 5 succeeded" in read_plain(viewer, ADDRESS)
        add_runs(version, day_ago(2), succeeded=3)
        assert "Runs 3 3 succeeded" in read_plain(viewer, ADDRESS)
        assert "Runs 5 5 succeeded" in read_plain(viewer, f"{ADDRESS}?runs=simulated")


class TestVersionsAndModels:
    def test_versions_are_compared_chosen_and_marked_where_they_begin_or_come_back(
        self, viewer: Client, version: FlowVersion
    ) -> None:
        newer = make_version(make_page_flow())
        add_runs(version, day_ago(12), succeeded=1, failed=3)
        add_runs(newer, day_ago(8), succeeded=2, took=30)
        add_runs(version, day_ago(4), failed=4)
        words = read_plain(viewer, ADDRESS)
        assert "v2 live 2 100 %" in words and "v1 8 12 %" in words
        assert "Runs 8 1 succeeded" in read_plain(viewer, f"{ADDRESS}?version=1")
        page = get_page(viewer, ADDRESS)
        assert f"v2 since {format_day(day_ago(8))}" in page
        assert f"<title>most runs of v1 from {format_day(day_ago(4))} on</title>" in page

    def test_models_are_compared_by_runs_and_by_attempts_and_chosen(self, viewer: Client, version: FlowVersion) -> None:
        make_run(version)
        counts = {"runs": 8, "succeeded": 4, "failed": 2, "cancelled": 2, "first_time": 3, "begun": 10, "retries": 5}
        for days, took in ((2, 10.0), (1, 30.0)):
            add_models(version, day_ago(days), "gpt-5", took=took, **counts, total_tokens=800, cost="0.8", attempts=16)
        add_models(version, day_ago(1), "", has_several=True, runs=3, errored=3, total_tokens=30, unpriced=4)
        add_models(version, day_ago(1), "", runs=1, succeeded=1)
        add_steps(version, day_ago(1), model="gpt-5", attempts=4, passed=3)
        add_steps(version, day_ago(1), model="o3", attempts=2)
        words = read_plain(viewer, ADDRESS)
        assert "gpt-5 16 67 % 50 % 1.50 9.9 s 30.3 s 100 200 $0.1000 $0.2000" in words
        assert "Several models 3 0 %" in words and "None: local steps only 1 100 % 0 %" in words
        assert "gpt-5 4 75 %" in words and "o3 2 0 %" in words
        assert f'href="{ADDRESS}?model=gpt-5"' in get_page(viewer, ADDRESS)
        words = read_plain(viewer, f"{ADDRESS}?model=gpt-5")
        assert "Attempts 4 by gpt-5 Attempts that passed 75 % 3 passed" in words
        assert "Runs 16 whose steps all ask gpt-5 Pass rate 67 %" in words
        add_models(make_version(make_page_flow()), day_ago(10), "gpt-5", runs=7, succeeded=7)
        for query, row in (("", "23 79 %"), ("?version=2", "7 100 %"), ("?period=7d", "16 67 %")):
            assert f"gpt-5 {row}" in read_plain(viewer, f"{ADDRESS}{query}")

    def test_a_model_can_not_write_into_the_page(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        hostile = "<script>alert(1)</script>\u202e"
        add_steps(version, day_ago(3), model=hostile, attempts=1)
        add_models(version, day_ago(3), hostile, runs=1)
        add_issues(version, day_ago(3), "<b>\u202ex", audit="<i>", issues=1, runs=1)
        page = get_page(viewer, ADDRESS)
        assert "<script>alert" not in page and "<b>" not in page and "\u202e" not in read_words(page)


class TestChoices:
    def test_audits_and_issues_lead_to_the_runs_they_were_raised_in(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        add_audit(version, day_ago(3), "", code="schema", fired=1)
        page = get_page(viewer, ADDRESS).replace("&amp;", "&")
        for query in ("audit=Hex+colours", "code=hex_format", "code=schema", "status=failed%2Cerrored"):
            assert f'href="/runs/?flow=colour-theme&{query}&from={day_ago(29).isoformat()}"' in page

    def test_choices_are_kept_while_another_is_made(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        page = get_page(viewer, f"{ADDRESS}?period=90d&version=1&sort=cost").replace("&amp;", "&")
        assert f'href="{ADDRESS}?period=7d&version=1&sort=cost"' in page
        assert f'href="{ADDRESS}?version=1&sort=cost"' in page
        assert '<option value="1" selected>' in page

    @pytest.mark.parametrize(
        "query",
        [
            "period=1y", "version=9", "version=99999999999999999999", "model=nobody", "runs=x", "measure=%00",
            "sort=%E2%80%AEx", "measure=cost&runs=real", "verison=9", "a=1&b=2&c=3&" + "e" * 99,
        ],
    )  # fmt: skip
    def test_what_makes_no_sense_is_named_and_left_out(self, viewer: Client, version: FlowVersion, query: str) -> None:
        add_runs(version, day_ago(3), succeeded=7)
        page = get_page(viewer, f"{ADDRESS}?{query}")
        assert "message-warning" in page and "\u202e" not in page and "Runs 7 7 succeeded" in read_words(page)


def test_a_flow_offers_to_run_it_unless_it_is_in_the_archive(operator: Client, version: FlowVersion) -> None:
    assert "This flow has not run yet" in read_plain(operator, ADDRESS)
    fill(version)
    assert 'href="/runs/new/colour-theme/"' in get_page(operator, ADDRESS)
    Flow.objects.update(is_archived=True)
    page = get_page(operator, ADDRESS)
    assert "Colour theme Archived" in read_words(page) and "/runs/new/colour-theme/" not in page
