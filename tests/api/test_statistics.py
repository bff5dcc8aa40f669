"""How the runs of a flow went, over the API: the figures of its page."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from flows.models import FlowVersion
from tests.api.asking import Script, read_problem
from tests.runs.builders import make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_models, add_runs, add_steps, day_ago
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
        ("query", "name"),
        [
            ("from=yesterday", "from"),
            ("from=2026-02-30", "from"),
            ("to=20260501", "to"),
            ("to=0001-01-01", "to"),
            ("to=9999-12-31", "to"),
            ("from=2026-05-02&to=2026-05-01", "from"),
            ("from=2000-01-01&to=2026-05-01", "from"),
            ("version=9", "version"),
            ("version=%D9%A1", "version"),
            ("version=99999999999999999999", "version"),
            ("model=", "model"),
            ("model=a%00b", "model"),
            (f"model={'x' * 201}", "model"),
            ("model=a&model=b", "model"),
            ("simulated=1", "simulated"),
            ("group_by=month", "group_by"),
            ("period=30d", "period"),
        ],
    )
    def test_a_value_that_is_not_valid_is_named(
        self, viewer: Script, version: FlowVersion, query: str, name: str
    ) -> None:
        problem = read_problem(viewer.get(f"{ADDRESS}?{query}"))
        assert (problem["status"], [error["parameter"] for error in problem["errors"]]) == (400, [name])

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


@pytest.mark.parametrize(
    # Token with its user, permissions, flow; versions, runs, steps, issues and steps by day. Audits have two of their
    # own, and read the version that is asked for.
    ("query", "count"),
    [
        ("", 8),
        ("?group_by=none", 7),
        ("?version=1&group_by=week", 8),
        ("?model=gpt-5", 7),
        ("/audits", 5),
        ("/audits?version=1", 6),
    ],
)
def test_the_number_of_queries_does_not_depend_on_what_was_counted(
    viewer: Script, version: FlowVersion, query: str, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    address = f"{ADDRESS}{query}"
    read(viewer, address=address)  # which notes that the token was used
    fill(version)
    with django_assert_num_queries(count):
        read(viewer, address=address)
    grow(version)
    with django_assert_num_queries(count):
        read(viewer, address=address)


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


def test_runs_are_told_apart_by_the_model_that_they_ask(viewer: Script) -> None:
    version, newer = (make_version(make_page_flow()) for _ in range(2))
    counts = {"runs": 8, "succeeded": 4, "failed": 2, "cancelled": 2, "first_time": 3, "begun": 10, "retries": 5}
    for days, took in ((2, 10.0), (1, 30.0)):
        add_models(version, day_ago(days), "gpt-5", took=took, **counts, total_tokens=800, cost="0.8", attempts=16)
    add_models(newer, day_ago(1), "", has_several=True, runs=3, errored=3, unpriced=4)
    add_models(newer, day_ago(1), "", runs=1, succeeded=1)
    for query in ("", "model=gpt-5"):
        found = read(viewer, query)
        first, several, none = found["runs_by_model"]
        assert (first["model"], first["has_several"]) == ("gpt-5", False)
        runs = first["runs"]
        assert (runs["total"], runs["pass_rate"], runs["first_attempt_pass_rate"]) == (16, 8 / 12, 0.5)
        assert runs["duration_p50"] == pytest.approx(10, rel=0.03)
        assert runs["duration_p95"] == pytest.approx(30, rel=0.03)
        assert first["steps"] == {"begun": 20, "attempts": 32, "retries": 10, "attempts_per_step": 1.5}
        assert first["tokens"] == {"total": 1_600, "per_run": 100, "per_accepted_output": 200}
        assert first["cost"] == {
            "total": "1.60000000",
            "per_run": "0.10000000",
            "per_accepted_output": "0.20000000",
            "unpriced": 0,
        }
        assert (several["model"], several["has_several"], several["runs"]["errored"]) == (None, True, 3)
        assert (several["cost"]["total"], several["cost"]["unpriced"]) == (None, 4)
        assert (none["model"], none["has_several"], none["runs"]["total"]) == (None, False, 1)
    assert [one["runs"]["total"] for one in read(viewer, "version=2")["runs_by_model"]] == [3, 1]
