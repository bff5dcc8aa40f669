"""The list of flows, the page of one, and the pages of its versions."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from django.test import Client
from django.utils import timezone

from flows.engine.spec import AuditSpec
from flows.models import Flow, FlowVersion
from runs.models import Attempt, DailyRuns, RunStatus
from runs.pages import flow_list
from runs.pages.addresses import build_issues_url
from runs.pages.flow_page import load_flow_page
from runs.pages.flow_version import build_definition, describe_pass_rule, shorten_schema
from runs.rollup import count_ended_runs
from tests.engine.builders import make_attempt, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_models, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_retried_run, make_stored_run
from tests.runs.pages.reading import THIN, count_queries, get_page, read_plain, read_words

pytestmark = pytest.mark.django_db

ADDRESS = "/flows/colour-theme/"
AUDITS = (
    AuditSpec(name="Hex colours", rule="true", severity="critical"),
    AuditSpec(name="Quiet one", rule="true", severity="low", fail_at="never"),
)


@pytest.fixture
def version(db: None) -> FlowVersion:
    return make_version(make_page_flow(make_step(1, audits=AUDITS), make_step(2)))


def fill(version: FlowVersion) -> None:
    """One row of everything, three days ago."""
    day = day_ago(3)
    add_runs(version, day, succeeded=6, failed=2, errored=1, cancelled=1, first_time=3, cost="0.9")
    add_steps(version, day, begun=10, passed=8, first_passed=5, attempts=16, retries=5, total_tokens=1_600)
    add_audit(version, day, "Hex colours", fired=412, retried=100, fixed=71, retry_tokens=9_000, retry_cost="4.1")
    add_issues(version, day, "hex_format", "critical", audit="Hex colours", issues=500, runs=300)


def read_figure(page: str, id: str) -> str:
    """The words of one of the three figures."""
    found = re.search(f'(?<=data-figure="{id}">).*?</div>', page, re.DOTALL)
    assert found is not None
    return read_words(found[0]).replace(THIN, " ")


def read_rows(client: Client, address: str, caption: str) -> list[list[str]]:
    """The words of a table's cells, row by row, without its head."""
    table = get_page(client, address).partition(f"{caption}</caption>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>.*?</tr>", table.partition("<tbody>")[2], re.DOTALL)
    return [
        [read_words(cell).replace(THIN, " ") for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


class TestList:
    def test_each_flow_has_its_last_run_and_its_thirty_days(self, viewer: Client, version: FlowVersion) -> None:
        add_runs(version, day_ago(3), succeeded=3, failed=1, first_time=2, cost="1.5")
        add_runs(version, day_ago(40), failed=100)
        run = make_run(version, status=RunStatus.FAILED, ended_at=timezone.now())
        Flow.objects.create(name="draft", title="Draft")
        flow, draft = read_rows(viewer, "/flows/", "Flows")
        assert flow[0] == "Colour theme colour-theme" and flow[2].startswith(f"Failed #{run.pk}, ")
        assert flow[4:] == ["4", "75 %", "50 %", "$1.50"]
        assert draft == ["Draft draft", "None", "Never", "None", "0", "—", "—", "—"]
        [by_day] = read_rows(viewer, "/flows/", "Runs by flow and day")
        assert by_day == ["Colour theme", *["—"] * 26, "4", *["—"] * 3]
        Flow.objects.filter(pk=version.flow_id).update(is_archived=True)
        assert [row[0] for row in read_rows(viewer, "/flows/", "Archived")] == ["Colour theme colour-theme"]

    def test_simulated_runs_count_only_for_a_flow_without_others(self, viewer: Client, version: FlowVersion) -> None:
        add_runs(version, day_ago(3), succeeded=7, is_simulated=True)
        assert read_rows(viewer, "/flows/", "Flows")[0][4:] == ["7", "100 %", "0 %", "simulated"]
        add_runs(version, day_ago(2), succeeded=2, cost="1")
        assert read_rows(viewer, "/flows/", "Flows")[0][4:] == ["2", "100 %", "0 %", "$1.00"]
        for query, runs in (("", 2), ("?runs=simulated", 7)):
            assert f"Pass rate 100 % {runs} runs" in read_plain(viewer, ADDRESS + query)

    def test_many_flows_are_spread_over_pages(self, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow_list, "PAGE_SIZE", 2)
        for name in "abcde":
            Flow.objects.create(name=name, title=f"Flow {name}")
        pages = [get_page(viewer, f"/flows/?page={number}") for number in (1, 2, 3)]
        assert [sorted(set(re.findall(r'href="/flows/(\w)/"', page))) for page in pages] == [[*"ab"], [*"cd"], ["e"]]
        assert [re.findall(r'rel="(\w+)"', page)[-2:] for page in pages][1] == ["prev", "next"]


class TestFigures:
    def test_rates_and_means_of_the_period_and_of_one_version(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        page = get_page(viewer, ADDRESS)
        assert read_figure(page, "pass") == "Pass rate 67 % 2 failed, 1 errored"
        assert read_figure(page, "first") == "First-attempt pass rate 33 % without any retry"
        assert read_figure(page, "use") == "Cost per accepted output $0.1500 $0.9000 in all"
        assert read_figure(get_page(viewer, f"{ADDRESS}?measure=tokens"), "use").startswith(
            "Tokens per accepted output 167"
        )
        newer = make_version(make_page_flow())
        add_runs(newer, day_ago(2), succeeded=3, first_time=3, cost="0.3")
        page = get_page(viewer, ADDRESS)
        assert "+33 points v2 since v1" in read_figure(page, "pass") and 'class="tone-passed">+33' in page
        assert "\N{MINUS SIGN}$0.0500 v2 since v1" in read_figure(page, "use")
        assert "67 %" in read_figure(get_page(viewer, f"{ADDRESS}?version=1"), "pass")
        first_day = day_ago(13)
        assert f"status=failed%2Cerrored&amp;from={first_day}T00%3A00Z" in page
        # The cost of the newer version is a lower bound now.
        DailyRuns.objects.filter(version=newer).update(unpriced=1)
        assert "since v1" not in read_figure(get_page(viewer, ADDRESS), "use")

    def test_versions_have_their_year_where_the_period_has_no_runs(self, viewer: Client, version: FlowVersion) -> None:
        add_runs(version, day_ago(40), succeeded=7, is_simulated=True)
        assert read_rows(viewer, ADDRESS, "Versions")[0][3] == "7"

    def test_only_the_days_of_the_period_count(self, version: FlowVersion) -> None:
        now = datetime(2026, 5, 31, 0, 30, tzinfo=UTC)
        for day, runs in (("2026-05-31", 1), ("2026-05-02", 10), ("2026-05-01", 100), ("2026-06-01", 1_000)):
            add_runs(version, datetime.fromisoformat(day).date(), succeeded=runs)
        for period, runs in (("7d", 1), ("14d", 1), ("30d", 11), ("90d", 111), ("12m", 111)):
            page = load_flow_page(version.flow, {"period": period}, now)
            assert page["figures"][0]["note"] == f"{runs} run{'s' if runs > 1 else ''}"

    def test_models_are_compared_and_chosen(self, viewer: Client, version: FlowVersion) -> None:
        counts = {"runs": 8, "succeeded": 4, "failed": 2, "cancelled": 2, "first_time": 3, "begun": 10, "retries": 5}
        add_models(version, day_ago(2), "gpt-5", **counts, total_tokens=800, cost="0.8", attempts=16)
        add_models(version, day_ago(1), "", has_several=True, runs=3, errored=3, total_tokens=30, unpriced=4)
        add_steps(version, day_ago(1), model="gpt-5", attempts=4, begun=4, passed=3, first_passed=2, total_tokens=40)
        asked = read_rows(viewer, ADDRESS, "Runs by the model that their steps ask")
        assert [row[:4] for row in asked] == [["gpt-5", "8", "67 %", "50 %"], ["Several models", "3", "0 %", "0 %"]]
        [answered] = read_rows(viewer, ADDRESS, "Attempts by the model that answered")
        assert answered[:4] == ["gpt-5", "4", "75 %", "50 %"]
        page = get_page(viewer, f"{ADDRESS}?model=gpt-5")
        assert read_figure(page, "pass") == "Attempts that passed 75 % 4 attempts"
        assert read_figure(page, "use").startswith("Tokens per passed attempt 13")


class TestAudits:
    def test_those_that_fired_and_those_that_never_did(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        add_audit(version, day_ago(3), "", code="schema_mismatch", step=2, fired=1)
        rows = read_rows(viewer, ADDRESS, "Audits")
        assert rows == [
            ["Critical Hex colours 1 Step 1", "Blocks", "412 300 runs", "71 %", "100 $4.10"],
            ["schema_mismatch 2 Step 2", "Built in", "1", "—", "0 —"],
            ["Low Quiet one 1 Step 1", "Warns", "0 never fired", "—", "0 only warns"],
        ]
        page = get_page(viewer, ADDRESS).replace("&amp;", "&").replace("%20", "+")
        # From the table and from what the step does.
        for filters in ({"audit": "Hex colours", "period": "14d"}, {"audit": "Hex colours"}, {"period": "14d"}):
            assert f'href="{build_issues_url("colour-theme", **filters)}"' in page

    def test_an_audit_is_one_though_its_step_moved(self, viewer: Client, version: FlowVersion) -> None:
        newer = make_version(make_page_flow(make_step(2), make_step(1, audits=AUDITS[:1])))
        for one, names in ((version, ("Step 1", "Step 2")), (newer, ("Step 2", "Step 1"))):
            add_runs(one, day_ago(3), succeeded=1)
            for step, name in enumerate(names, start=1):
                add_steps(one, day_ago(3), step=step, begun=1, attempts=1, name=name)
        add_audit(version, day_ago(3), "Hex colours", step=1, fired=200)
        add_audit(newer, day_ago(2), "Hex colours", step=2, fired=7)
        add_audit(version, day_ago(3), "Quiet one", step=1, fired=1)
        assert [row[:3] for row in read_rows(viewer, ADDRESS, "Audits")] == [
            ["Critical Hex colours 2 Step 1", "Blocks", "207"],
            ["Quiet one 1 Step 1", "Not in v2", "1"],
        ]


class TestGrid:
    def test_each_step_of_a_run_has_a_sign(self, viewer: Client) -> None:
        spec = make_page_flow()
        done = make_retried_run()
        bad = make_stored_run(
            make_attempt(1, 1), make_attempt(2, 1, "errored"), spec=spec, status=RunStatus.ERRORED, steps_passed=1
        )
        live = make_stored_run(make_attempt(1, 1), spec=spec, status=RunStatus.RUNNING)
        begin_attempt(live, 2, 1)
        best = make_stored_run(make_attempt(1, 1, "failed"), make_attempt(1, 2, "invalid"), spec=spec)
        Attempt.objects.filter(step__run=best, number=1).update(is_accepted=True)
        page = get_page(viewer, ADDRESS)
        runs = re.findall(r'data-run="(\d+)" aria-label="([^"]*)"(.*?)</a>', page, re.DOTALL)
        cells = {int(key): re.findall(r'class="cell cell-(\w+)"', body) for key, _, body in runs}
        assert cells == {
            done.pk: ["retried", "passed", "passed"],
            bad.pk: ["passed", "errored", "none"],
            live.pk: ["passed", "running", "none"],
            best.pk: ["accepted", "none", "none"],
        }
        signs = [[sign for sign in re.findall(r'class="cell[^>]*>([^<]*)', body) if sign] for _, _, body in runs]
        assert signs == [["1"], ["!"], ["…"], ["✓"]]
        assert "succeeded" in runs[0][1] and "Step 1 needed 2 attempts" in runs[0][1]
        assert "Step 2 errored" in runs[1][1] and "after" not in runs[1][1]
        # The newest one is described below.
        assert re.findall(r'<p id="grid-run-(\d+)">', page) == [str(best.pk)]

    def test_only_the_newest_runs_are_drawn_by_as_many_queries(self, viewer: Client) -> None:
        make_retried_run()
        count = count_queries(viewer, ADDRESS)
        for _ in range(50):
            make_retried_run()
        count_ended_runs()
        assert count_queries(viewer, ADDRESS) <= count + 3  # Audits and issues are read where there are any.
        assert count_queries(viewer, ADDRESS) <= 17
        assert get_page(viewer, ADDRESS).count("data-run=") == 40


class TestChoices:
    def test_nothing_counted_can_write_into_the_page(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        hostile = "<script>alert(1)</script>\u202e"
        add_steps(version, day_ago(3), model=hostile, attempts=1)
        add_models(version, day_ago(3), hostile, runs=1)
        add_audit(version, day_ago(3), hostile, fired=1)
        add_issues(version, day_ago(3), hostile, audit=hostile, issues=1, runs=1)
        page = get_page(viewer, ADDRESS)
        assert "<script>alert" not in page and "\u202e" not in read_words(page)

    def test_choices_are_kept_while_another_is_made(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        page = get_page(viewer, f"{ADDRESS}?period=90d&version=1&sort=cost").replace("&amp;", "&")
        assert f'href="{ADDRESS}?period=7d&version=1&sort=cost"' in page
        assert f'href="{ADDRESS}?version=1&sort=cost"' in page and '<option value="1" selected>' in page
        assert 'href="/issues/?flow=colour-theme&version=1&period=90d"' in page


class TestVersions:
    def test_a_version_is_read_on_the_flow_page_and_on_its_own(self, viewer: Client, version: FlowVersion) -> None:
        fill(version)
        make_version(make_page_flow(make_step(1, audits=AUDITS, max_retries=1), make_step(2)))
        rows = read_rows(viewer, ADDRESS, "Versions")
        assert [row[0] for row in rows] == ["v2 Live", "v1"] and rows[1][1] == "First version"
        assert "max_retries 3 → 1" in rows[0][1] and rows[1][3:] == ["10", "67 %", "33 %", "$0.1500"]
        for address in (ADDRESS, f"{ADDRESS}versions/2/"):
            words = read_plain(viewer, address)
            assert "Step 1: Step 1 gpt-4.1" in words and "Returns text" in words
            assert "Critical Hex colours Blocks" in words and "Up to 1 retry, then the run fails" in words
        page = get_page(viewer, f"{ADDRESS}versions/2/")
        assert "What changed since version 1" in read_words(page) and "value-old" in page
        assert f'href="{ADDRESS}versions/1/" rel="prev"' in page
        assert "67 %" in read_plain(viewer, f"{ADDRESS}versions/1/")
        assert viewer.get(f"{ADDRESS}versions/3/").status_code == 404

    def test_one_that_can_not_be_read_says_so(self, viewer: Client, version: FlowVersion) -> None:
        broken = FlowVersion.objects.create(flow=version.flow, number=2, spec={"steps": []}, digest="broken")
        version.flow.make_live(broken)
        for address in (ADDRESS, f"{ADDRESS}versions/2/"):
            assert "This release can’t read the definition" in read_plain(viewer, address)

    def test_text_of_a_definition_is_inert_and_has_its_direction(self, viewer: Client) -> None:
        make_version(make_page_flow(make_step(1, name="سلام <b>\u202e", system_message="مرحبا بالعالم " * 20)))
        page = get_page(viewer, ADDRESS)
        assert '<bdi dir="rtl">سلام &lt;b&gt;' in page and "\u202e" not in page
        assert '<span class="does-text" dir="rtl">مرحبا' in page


@pytest.mark.parametrize(
    ("rule", "fail_at", "role"),
    [
        *((None, fail_at, "Blocks") for fail_at in (None, "low")),
        *((None, fail_at, "Warns") for fail_at in ("critical", "never")),
        ("size(issues) == 0", None, "Rule decides"),
    ],
)
def test_an_audit_blocks_if_its_issues_reach_what_fails_it(rule: str | None, fail_at: str | None, role: str) -> None:
    audit = AuditSpec(name="Length", rule="true", severity="medium", fail_at=fail_at)
    [step] = build_definition(make_page_flow(make_step(1, audits=(audit,), pass_expression=rule)))["steps"]
    assert step["audits"][0]["role"] == role


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("issues.map(i, weight(i.severity)).sum() <= 4", "Passes when the weights of all issues add up to at most 4"),
        ("issues.map(i, weight(i.severity)).sum() < 4", "Passes when the weights of all issues add up to less than 4"),
        ("size(issues) == 0", "Passes when there is no issue"),
        ("size(issues)  <= 1", "Passes when there is at most 1 issue"),
        (
            "!issues.exists(i, i.severity == 'high') && issues.size() < 3",
            "Passes when there is no high issue and there are fewer than 3 issues",
        ),
        ("size(issues) == 0 && output.ok", ""),
        ("python:accept", "Passes when accept (Python) accepts the output"),
        ("issues.all(i, i.severity == 'low')", ""),
    ],
)  # fmt: skip
def test_pass_rules_in_words(rule: str, words: str) -> None:
    assert describe_pass_rule(rule) == words


RISK = {"type": "object", "properties": {"number": {}, "level": {}}}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (None, ""),
        ({"properties": {"risks": {"type": "array", "items": RISK}}}, "risks[]: number, level"),
        ({"properties": {"a": {}, "b": {"type": "array", "minItems": 5, "maxItems": 5, "items": {}}}}, "a, b[5]"),
        ({"properties": {"a": {}, "b": {"$ref": "#/$defs/R"}}, "$defs": {"R": RISK}}, "a, b (number, level)"),
        ({"properties": {f"p{n}": {} for n in range(20)}}, ", ".join([f"p{n}" for n in range(12)] + ["…"])),
        ({"properties": "x"}, ""),
    ],
)
def test_schemas_in_short_form(schema: dict[str, object] | None, text: str) -> None:
    assert shorten_schema(schema) == text
