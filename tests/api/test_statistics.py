"""How the runs of a flow went, over the API: the figures of its page."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from flows.models import FlowVersion
from runs.pages.flow_page import load_flow_page
from runs.pages.flow_summary import FlowSummary
from tests.api.asking import Script, read_problem
from tests.runs.builders import make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db

ADDRESS = "flows/colour-theme/statistics"


@pytest.fixture
def version(db: None) -> FlowVersion:
    return make_version(make_page_flow())


@pytest.fixture
def newer(version: FlowVersion) -> FlowVersion:
    return make_version(make_page_flow())


def read(script: Script, query: str = "", address: str = ADDRESS) -> Any:
    """What is answered."""
    answer = script.get(f"{address}{'?' if query else ''}{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()  # type: ignore[attr-defined]  # answers to test clients have it


def fill(version: FlowVersion, days: int = 3) -> None:
    """One row of everything."""
    day = day_ago(days)
    add_runs(
        version,
        day,
        succeeded=6,
        failed=2,
        errored=1,
        cancelled=1,
        first_time=3,
        cost="0.9",
        attempts=16,
        first_tokens=700,
        useful_retry_tokens=200,
        wasted_retry_tokens=100,
    )
    values = {"begun": 10, "passed": 8, "first_passed": 5, "attempts": 12, "retries": 2}
    add_steps(version, day, **values, total_tokens=900, cost="0.8")
    add_steps(version, day, model="gpt-5", begun=2, passed=3, first_passed=1, attempts=4, retries=2, total_tokens=100)
    add_audit(version, day, "Hex colours", fired=412, retried=100, fixed=71, retry_tokens=9_000, retry_cost="4.1")
    add_issues(version, day, "hex_format", "critical", audit="Hex colours", issues=500, runs=300)


class TestFigures:
    def test_rates_means_and_the_retry_bill_of_thirty_days(self, viewer: Script, version: FlowVersion) -> None:
        fill(version)
        add_runs(version, day_ago(30), succeeded=1_000)
        found = read(viewer)
        assert (found["flow"], found["from"], found["to"]) == ("colour-theme", str(day_ago(29)), str(day_ago(0)))
        assert found["runs"] == {
            "total": 10,
            "succeeded": 6,
            "failed": 2,
            "errored": 1,
            "cancelled": 1,
            "pass_rate": pytest.approx(6 / 9),
            "first_attempt_pass_rate": pytest.approx(3 / 9),
            "duration_p50": pytest.approx(10, rel=0.03),
            "duration_p95": pytest.approx(10, rel=0.03),
        }
        assert (found["steps"]["attempts_per_step"], found["steps"]["attempts"]) == (pytest.approx(16 / 12), 16)
        assert found["tokens"]["per_run"] == 100
        assert found["tokens"]["per_accepted_output"] == 167
        assert (found["cost"]["total"], found["cost"]["per_run"]) == ("0.90000000", "0.09000000")
        assert found["cost"]["per_accepted_output"] == "0.15000000"
        shares = {name: part["share"] for name, part in found["retry_bill"].items()}
        # Shares of the money, all of which was spent on first attempts.
        assert shares == {"first_attempts": 1.0, "useful_retries": 0.0, "wasted_retries": 0.0}
        assert found["issues"] == [
            {"code": "hex_format", "audit": "Hex colours", "severity": "critical", "issues": 500, "runs": 300}
        ]

    def test_every_day_of_the_span_is_there_also_those_on_which_nothing_ran(
        self, viewer: Script, version: FlowVersion
    ) -> None:
        fill(version)
        add_runs(version, day_ago(1), failed=2, took=60)
        found = read(viewer, f"from={day_ago(3)}&to={day_ago(1)}")["periods"]
        assert [(one["from"], one["to"]) for one in found] == [(str(day_ago(days)),) * 2 for days in (3, 2, 1)]
        assert [one["runs"]["total"] for one in found] == [10, 0, 2]
        assert [one["runs"]["pass_rate"] for one in found] == [pytest.approx(6 / 9), None, 0.0]
        assert [one["runs"]["duration_p95"] for one in found][1:] == [None, pytest.approx(60, rel=0.03)]
        assert [one["steps"]["attempts"] for one in found] == [16, 0, 0]

    def test_weeks_begin_on_monday_and_are_cut_at_the_ends_of_the_span(
        self, viewer: Script, version: FlowVersion
    ) -> None:
        for day in (12, 13, 17, 18, 19):
            add_runs(version, date(2026, 5, day), succeeded=1)
        found = read(viewer, "from=2026-05-13&to=2026-05-18&group_by=week")["periods"]
        assert [(one["from"], one["to"], one["runs"]["total"]) for one in found] == [
            ("2026-05-13", "2026-05-17", 2),
            ("2026-05-18", "2026-05-18", 1),
        ]
        assert read(viewer, "group_by=none")["periods"] is None

    def test_versions_models_and_steps_are_told_apart(
        self, viewer: Script, version: FlowVersion, newer: FlowVersion
    ) -> None:
        fill(version)
        add_runs(newer, day_ago(2), succeeded=2, took=30)
        add_steps(newer, day_ago(2), step=2, model="", begun=2, passed=2, attempts=2)
        found = read(viewer)
        assert [(one["version"], one["is_live"], one["runs"]["total"]) for one in found["versions"]] == [
            (2, True, 2),
            (1, False, 10),
        ]
        models = [(one["model"], one["steps"]["attempts"], one["runs"]) for one in found["models"]]
        assert models == [("gpt-5-mini", 12, None), ("gpt-5", 4, None), (None, 2, None)]
        assert [(one["step"], one["name"], one["steps"]["pass_rate"]) for one in found["by_step"]] == [
            (1, "Step 1", pytest.approx(11 / 12)),
            (2, "Step 2", 1.0),
        ]
        only = read(viewer, "version=1")
        assert (only["version"], only["runs"]["total"], len(only["versions"])) == (1, 10, 1)

    def test_of_one_model_only_attempts_are_judged(self, viewer: Script, version: FlowVersion) -> None:
        fill(version)
        found = read(viewer, "model=gpt-5")
        assert (found["runs"], found["retry_bill"], found["issues"]) == (None, None, None)
        steps = found["steps"]
        assert (steps["attempts"], steps["attempt_pass_rate"], steps["first_attempt_pass_rate"]) == (4, 0.75, 0.5)
        assert (steps["pass_rate"], steps["attempts_per_step"]) == (None, None)
        assert (found["tokens"]["total"], found["tokens"]["per_run"]) == (100, None)
        assert [one["steps"]["attempts"] for one in found["periods"] if one["steps"]["attempts"]] == [4]
        assert read(viewer, "model=nobody")["steps"]["attempts"] == 0

    def test_simulated_runs_are_asked_for_by_themselves_and_cost_nothing_that_is_known(
        self, viewer: Script, version: FlowVersion
    ) -> None:
        fill(version)
        add_runs(version, day_ago(3), succeeded=5, is_simulated=True)
        assert read(viewer)["runs"]["total"] == read(viewer, "simulated=false")["runs"]["total"] == 10
        found = read(viewer, "simulated=true")
        assert (found["runs"]["total"], found["cost"]["total"], found["cost"]["per_run"]) == (5, None, None)

    def test_money_that_is_unknown_is_no_zero(self, viewer: Script, version: FlowVersion) -> None:
        add_runs(version, day_ago(3), succeeded=2, unpriced=4)
        cost = read(viewer)["cost"]
        assert (cost["total"], cost["per_run"], cost["unpriced"]) == (None, None, 4)

    def test_a_flow_that_never_ran_has_figures_of_nothing(self, viewer: Script, version: FlowVersion) -> None:
        found = read(viewer)
        assert (found["runs"]["total"], found["runs"]["pass_rate"], found["versions"]) == (0, None, [])
        assert len(found["periods"]) == 30


class TestPage:
    def load(self, version: FlowVersion, **query: str) -> FlowSummary:
        summary = load_flow_page(version.flow, {"period": "30d", **query}, timezone.now()).summary
        assert summary is not None
        return summary

    def test_the_page_and_the_answer_have_the_same_figures(
        self, viewer: Script, version: FlowVersion, newer: FlowVersion
    ) -> None:
        for days, one in ((0, version), (7, newer), (29, version)):
            fill(one, days)
        add_runs(newer, day_ago(2), failed=3, took=600, cost="0.03", unpriced=1, wasted_retry_tokens=77)
        page, found = self.load(version), read(viewer)
        runs, steps = page.runs, page.steps
        assert found["runs"] == {
            "total": runs.runs,
            "succeeded": runs.succeeded,
            "failed": runs.failed,
            "errored": runs.errored,
            "cancelled": runs.cancelled,
            "pass_rate": runs.pass_rate,
            "first_attempt_pass_rate": runs.first_rate,
            "duration_p50": pytest.approx(runs.median, abs=0.001),
            "duration_p95": pytest.approx(runs.p95, abs=0.001),
        }
        assert found["steps"]["attempts_per_step"] == steps.attempts_per_step
        assert found["tokens"]["per_run"] == runs.tokens_per_run
        assert found["tokens"]["per_accepted_output"] == runs.tokens_per_accepted
        assert runs.cost_per_run is not None
        assert Decimal(found["cost"]["per_run"]) == pytest.approx(runs.cost_per_run, abs=Decimal("1e-8"))
        assert found["cost"]["unpriced"] == runs.unpriced == 1
        bill = [(part["tokens"], part["share"], part["unpriced"]) for part in found["retry_bill"].values()]
        assert bill == [(part.tokens, part.share, part.unpriced) for part in page.bill]
        assert [(one["version"], one["runs"]["pass_rate"]) for one in found["versions"]] == [
            (row.number, row.runs.pass_rate) for row in page.versions
        ]
        assert [
            (one["model"], one["steps"]["attempt_pass_rate"], one["tokens"]["total"]) for one in found["models"]
        ] == [(row.name, row.steps.attempt_rate, row.steps.total_tokens) for row in page.models]
        assert [(one["code"], one["issues"]) for one in found["issues"]] == [
            (row.sums.code, row.sums.issues) for row in page.issues
        ]
        counts = [str(one["runs"]["total"]) for one in found["periods"]]
        assert counts == [row.cells[0] if row.cells else "0" for row in page.charts[0].rows]

    def test_they_have_them_also_of_one_model(self, viewer: Script, version: FlowVersion) -> None:
        fill(version)
        steps, found = self.load(version, model="gpt-5").steps, read(viewer, "model=gpt-5")
        assert found["steps"]["attempts"] == steps.attempts == 4
        assert found["steps"]["attempt_pass_rate"] == steps.attempt_rate
        assert found["tokens"]["per_attempt"] == steps.tokens_per_attempt
        assert found["tokens"]["per_passed_attempt"] == steps.tokens_per_passed

    def test_audits_are_those_of_the_page_in_the_same_order(self, viewer: Script, version: FlowVersion) -> None:
        fill(version)
        add_audit(version, day_ago(2), "Dear", step=2, fired=3, retried=3, retry_cost="9")
        for sort in ("fired", "cost"):
            rows = self.load(version, sort=sort).audits
            found = read(viewer, f"sort={sort}", f"{ADDRESS}/audits")["items"]
            assert [(one["audit"], one["fired"], one["fixed_rate"]) for one in found] == [
                (row.sums.audit, row.sums.fired, row.sums.fixed_rate) for row in rows
            ]


class TestAudits:
    def test_an_audit_says_how_often_it_fired_what_was_fixed_and_what_that_cost(
        self, viewer: Script, version: FlowVersion
    ) -> None:
        fill(version)
        add_audit(version, day_ago(3), "", code="schema_mismatch", fired=1, retried=0)
        found = read(viewer, address=f"{ADDRESS}/audits")
        assert found["items"] == [
            {
                "step": 1,
                "step_name": "Step 1",
                "audit": "Hex colours",
                "code": None,
                "fired": 412,
                "retried": 100,
                "fixed": 71,
                "fixed_rate": 0.71,
                "retry_tokens": 9_000,
                "retry_cost": "4.10000000",
                "retry_unpriced": 0,
            },
            {
                "step": 1,
                "step_name": "Step 1",
                "audit": None,
                "code": "schema_mismatch",
                "fired": 1,
                "retried": 0,
                "fixed": 0,
                "fixed_rate": None,
                "retry_tokens": 0,
                "retry_cost": "0.00000000",
                "retry_unpriced": 0,
            },
        ]
        assert found["is_truncated"] is False

    def test_of_very_many_audits_the_first_hundred_are_listed_and_that_is_said(
        self, viewer: Script, version: FlowVersion
    ) -> None:
        for number in range(101):
            add_audit(version, day_ago(1), f"Audit {number:03}", fired=1_000 - number)
        found = read(viewer, address=f"{ADDRESS}/audits")
        assert (len(found["items"]), found["items"][-1]["audit"]) == (100, "Audit 099")
        assert found["is_truncated"] is True

    def test_they_are_narrowed_by_version_and_days(
        self, viewer: Script, version: FlowVersion, newer: FlowVersion
    ) -> None:
        add_audit(version, day_ago(9), "Old", fired=1)
        add_audit(newer, day_ago(1), "New", fired=1)

        def list_names(query: str) -> list[str]:
            return [one["audit"] for one in read(viewer, query, f"{ADDRESS}/audits")["items"]]

        assert (list_names("version=2"), list_names(f"to={day_ago(9)}")) == (["New"], ["Old"])


class TestParameters:
    @pytest.mark.parametrize(
        ("query", "name", "sentence"),
        [
            ("from=yesterday", "from", "“from” is a day such as"),
            ("from=2026-02-30", "from", "“from” is a day such as"),
            ("to=20260501", "to", "“to” is a day such as"),
            ("to=0001-01-01", "to", "“to” is a day such as"),
            ("to=9999-12-31", "to", "“to” is a day such as"),
            ("from=2026-05-02&to=2026-05-01", "from", "“from” (2026-05-02) is later than “to” (2026-05-01)."),
            ("from=2000-01-01&to=2026-05-01", "from", "These are more than 1,000 days; ask for fewer at a time."),
            ("version=9", "version", "There is no version “9” of the flow “colour-theme”."),
            ("version=%D9%A1", "version", "There is no version “\u0661” of the flow"),
            ("version=99999999999999999999", "version", "There is no version “99999999999999999999” of the flow"),
            ("model=", "model", "“model” is empty; leave it out or give it a value."),
            ("model=a%00b", "model", "“model” has at most 200 characters, and no NUL among them."),
            (f"model={'x' * 201}", "model", "“model” has at most 200 characters"),
            ("model=a&model=b", "model", "“model” stands in the query 2 times; give it once."),
            ("simulated=1", "simulated", "“simulated” can be true or false, not “1”."),
            ("group_by=month", "group_by", "“group_by” can be day, week or none, not “month”."),
            ("period=30d", "period", "There is no parameter “period” here"),
        ],
    )
    def test_what_makes_no_sense_is_named(
        self, viewer: Script, version: FlowVersion, query: str, name: str, sentence: str
    ) -> None:
        problem = read_problem(viewer.get(f"{ADDRESS}?{query}"))
        assert problem["status"] == 400
        (error,) = problem["errors"]
        assert error["parameter"] == name
        assert error["detail"].startswith(sentence)

    def test_everything_that_is_wrong_is_named_at_once(self, viewer: Script, version: FlowVersion) -> None:
        problem = read_problem(viewer.get(f"{ADDRESS}?from=x&version=0&simulated=x&group_by=x"))
        assert [error["parameter"] for error in problem["errors"]] == ["from", "version", "simulated", "group_by"]

    def test_the_longest_span_ends_with_a_thousand_days(self, viewer: Script, version: FlowVersion) -> None:
        query = "from=2020-01-01&to=2022-09-26&group_by="
        assert len(read(viewer, f"{query}day")["periods"]) == 1_000
        assert read_problem(viewer.get(f"{ADDRESS}?from=2020-01-01&to=2022-09-27"))["status"] == 400

    @pytest.mark.parametrize("address", ["flows/nothing/statistics", "flows/nothing/statistics/audits"])
    def test_a_flow_that_does_not_exist_is_not_found(self, viewer: Script, address: str) -> None:
        assert read_problem(viewer.get(address))["status"] == 404


class TestQueries:
    # Token with its user, permissions, flow, versions.
    HEAD = 4

    @pytest.mark.parametrize(
        ("query", "own"), [("", 5), ("group_by=none", 4), ("version=1&group_by=week", 5), ("model=gpt-5", 3)]
    )
    def test_their_number_does_not_depend_on_what_was_counted(
        self,
        viewer: Script,
        version: FlowVersion,
        query: str,
        own: int,
        django_assert_num_queries: DjangoAssertNumQueries,
    ) -> None:
        read(viewer)  # which notes that the token was used
        fill(version)
        with django_assert_num_queries(self.HEAD + own):
            read(viewer, query)
        grow(version)
        with django_assert_num_queries(self.HEAD + own):
            read(viewer, query)

    def test_those_of_audits_neither(
        self, viewer: Script, version: FlowVersion, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        address = f"{ADDRESS}/audits"
        read(viewer, address=address)
        # The version only if it is asked for; audits and the names of steps.
        for query, count in (("", self.HEAD - 1 + 2), ("version=1", self.HEAD + 2)):
            with django_assert_num_queries(count):
                read(viewer, query, address)
        grow(version)
        with django_assert_num_queries(self.HEAD + 2):
            assert len(read(viewer, "version=1", address)["items"]) == 3


def grow(version: FlowVersion) -> None:
    """Much more of everything."""
    for number in range(2, 5):
        for one in (version, make_version(make_page_flow())):
            for day in range(4, 20):
                for step in (1, 2, 3):
                    add_steps(one, day_ago(day), step=step, begun=1, model=f"model-{number}")
                    if one is version and number == 2:
                        add_audit(one, day_ago(day), "Audit", step=step, fired=1)
                if one is not version or number == 2:
                    add_runs(one, day_ago(day), succeeded=number)
                    add_issues(one, day_ago(day), f"code_{number}", issues=1)


def test_strangers_are_asked_to_sign_in(version: FlowVersion, client: Client) -> None:
    for address in (ADDRESS, f"{ADDRESS}/audits", "statistics/usage", "statistics/overview"):
        assert read_problem(Script().get(address))["status"] == 401
