"""Statistics over the API: of flows, audits and usage, and what goes on now. They add up rows of days."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from django.utils import timezone

from flows.models import FlowVersion
from runs.api import statistics
from runs.models import DailyRuns, RunStatus
from runs.models.run import in_future
from tests.api.asking import Script, list_wrong, read, read_problem
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import (
    add_audit,
    add_issues,
    add_models,
    add_runs,
    add_steps,
    day_ago,
    stop_clock,
)
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db

FLOW, AUDITS = "flows/colour-theme/statistics", "flows/colour-theme/statistics/audits"
USAGE, OVERVIEW = "statistics/usage", "statistics/overview"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def version(db: None) -> FlowVersion:
    return make_version(make_page_flow())


@pytest.fixture
def newer(version: FlowVersion) -> FlowVersion:
    return make_version(make_page_flow())


@pytest.fixture
def _filled(version: FlowVersion) -> None:
    """One row of everything, three days ago."""
    day = day_ago(3)
    counts = {"succeeded": 6, "failed": 2, "errored": 1, "cancelled": 1, "first_time": 3, "attempts": 16}
    parts = {"first_tokens": 700, "useful_retry_tokens": 200, "wasted_retry_tokens": 100}
    add_runs(version, day, cost="0.9", **counts, **parts)
    values = {"begun": 10, "passed": 8, "first_passed": 5, "attempts": 12, "retries": 2}
    add_steps(version, day, **values, total_tokens=900, cost="0.8")
    add_steps(version, day, model="gpt-5", begun=2, passed=3, first_passed=1, attempts=4, retries=2, total_tokens=100)
    add_audit(version, day, "Hex colours", fired=412, retried=100, fixed=71, retry_tokens=9_000, retry_cost="4.1")
    add_issues(version, day, "hex_format", "critical", audit="Hex colours", issues=500, runs=300)


class TestFlow:
    @pytest.mark.usefixtures("_filled")
    def test_rates_means_and_the_cost_of_retries_of_thirty_days(self, viewer: Script, version: FlowVersion) -> None:
        add_runs(version, day_ago(30), succeeded=1_000)
        found = read(viewer, FLOW)
        assert (found["flow"], found["from"], found["to"]) == ("colour-theme", str(day_ago(29)), str(day_ago(0)))
        counts = {"total": 10, "succeeded": 6, "accepted": 0, "failed": 2, "errored": 1, "cancelled": 1}
        rates = {"pass_rate": 6 / 9, "first_attempt_pass_rate": 3 / 9, "duration_p50": 10, "duration_p95": 10}
        assert found["runs"] == {**counts, **{name: pytest.approx(rate, rel=0.03) for name, rate in rates.items()}}
        assert (found["steps"]["attempts_per_step"], found["steps"]["attempts"]) == (pytest.approx(16 / 12), 16)
        assert (found["tokens"]["per_run"], found["tokens"]["per_accepted_output"]) == (100, 167)
        costs = [found["cost"][name] for name in ("total", "per_run", "per_accepted_output")]
        assert costs == ["0.90000000", "0.09000000", "0.15000000"]
        # Shares of the money, all of which was spent on first attempts.
        assert [part["share"] for part in found["retry_bill"].values()] == [1.0, 0.0, 0.0]
        assert read(viewer, f"{FLOW}?simulated=true")["cost"]["total"] is None
        issue = {"code": "hex_format", "audit": "Hex colours", "severity": "critical", "issues": 500, "runs": 300}
        assert found["issues"] == [issue]

    def test_periods_are_days_or_weeks_from_monday_on(self, viewer: Script, version: FlowVersion) -> None:
        for day in (12, 13, 17, 18, 19):
            add_runs(version, date(2026, 5, day), succeeded=1)
        weeks = [("2026-05-13", "2026-05-17", 2), ("2026-05-18", "2026-05-18", 1)]
        days = [("2026-05-17", "2026-05-17", 1), ("2026-05-18", "2026-05-18", 1)]
        for query, expected in (("from=2026-05-13&group_by=week", weeks), ("from=2026-05-17", days)):
            found = read(viewer, f"{FLOW}?to=2026-05-18&{query}")["periods"]
            assert [(one["from"], one["to"], one["runs"]["total"]) for one in found] == expected
        assert read(viewer, f"{FLOW}?group_by=none")["periods"] is None
        assert len(read(viewer, f"{FLOW}?from=2020-01-01&to=2022-09-26")["periods"]) == 1_000

    @pytest.mark.usefixtures("_filled")
    def test_versions_models_and_steps_are_distinguished(self, viewer: Script, newer: FlowVersion) -> None:
        add_models(newer, day_ago(2), "gpt-5", runs=2, succeeded=2)
        add_steps(newer, day_ago(2), step=2, model="", begun=2, passed=2, attempts=2)
        found = read(viewer, FLOW)
        versions = [(one["version"], one["is_live"], one["runs"]["total"]) for one in found["versions"]]
        assert versions == [(2, True, 2), (1, False, 10)]
        models = [(one["model"], one["steps"]["attempts"], one["runs"]) for one in found["models"]]
        assert models == [("gpt-5-mini", 12, None), ("gpt-5", 4, None), (None, 2, None)]
        assert [(one["model"], one["runs"]["total"]) for one in found["runs_by_model"]] == [(None, 10), ("gpt-5", 2)]
        steps = [(one["step"], one["name"], one["steps"]["pass_rate"]) for one in found["by_step"]]
        assert steps == [(1, "Step 1", pytest.approx(11 / 12)), (2, "Step 2", 1.0)]
        only = read(viewer, f"{FLOW}?version=1")
        assert (only["version"], only["runs"]["total"], len(only["versions"])) == (1, 10, 1)
        # Of one model there are attempts, and no runs.
        of_model = read(viewer, f"{FLOW}?model=gpt-5")
        assert (of_model["runs"], of_model["retry_bill"], of_model["issues"]) == (None, None, None)
        figures = of_model["steps"]
        assert (figures["attempts"], figures["attempt_pass_rate"], figures["first_attempt_pass_rate"]) == (4, 0.75, 0.5)
        assert (figures["pass_rate"], of_model["tokens"]["total"], of_model["tokens"]["per_run"]) == (None, 100, None)


@pytest.mark.usefixtures("_filled")
def test_audits_are_narrowed_sorted_and_at_most_a_hundred(
    viewer: Script, version: FlowVersion, newer: FlowVersion
) -> None:
    add_audit(version, day_ago(3), "", code="schema_mismatch", fired=1)
    audit, own = read(viewer, AUDITS)["items"]
    counts = {"fired": 412, "retried": 100, "fixed": 71, "fixed_rate": 0.71}
    retries = {"retry_tokens": 9_000, "retry_cost": "4.10000000", "retry_unpriced": 0}
    place = {"step": 1, "step_name": "Step 1", "audit": "Hex colours", "code": None}
    assert audit == {**place, **counts, **retries}
    assert (own["audit"], own["code"], own["fixed_rate"]) == (None, "schema_mismatch", None)
    for number in range(101):
        add_audit(version, day_ago(9), f"Audit {number:03}", fired=1_000 - number, retry_cost=number)
    add_audit(newer, day_ago(1), "New", fired=1)
    found = read(viewer, AUDITS)
    assert (len(found["items"]), found["items"][-1]["audit"], found["is_truncated"]) == (100, "Audit 099", True)
    for query, name in (("?version=2", "New"), (f"?from={day_ago(2)}", "New"), ("?sort=cost", "Audit 100")):
        assert read(viewer, AUDITS + query)["items"][0]["audit"] == name


class TestUsage:
    @pytest.fixture(autouse=True)
    def _counted(self, version: FlowVersion, newer: FlowVersion) -> None:
        """Two flows, two versions of one of them, two models and two days."""
        other = make_version(make_page_flow(name="other", title="Other"))
        for one, days, runs, cost in ((version, 2, 4, "0.4"), (newer, 1, 2, "0.6"), (other, 1, 1, "0")):
            add_runs(one, day_ago(days), succeeded=runs, cost=cost, attempts=2 * runs, prompt_tokens=60 * runs)
            halves = {"attempts": runs, "total_tokens": 50 * runs, "prompt_tokens": 30 * runs}
            add_steps(one, day_ago(days), cost=cost, **halves)
            add_steps(one, day_ago(days), step=2, model="gpt-5", **halves)
        DailyRuns.objects.filter(version=newer).update(cached_tokens=11, reasoning_tokens=7)

    def test_it_is_filtered_and_grouped_by_flow_version_or_model_within_a_bound(
        self, viewer: Script, version: FlowVersion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = read(viewer, USAGE)
        tokens = {"prompt": 360, "completion": 0, "total": 600, "cached": 11, "reasoning": 7}
        usage = {**tokens, "cost": "1.00000000", "unpriced": 0}
        assert found["group_by"] == ["flow"]
        assert found["items"][0] == {"flow": "colour-theme", "runs": 6, "attempts": 12, "usage": usage}
        # A version brings its flow along.
        assert read(viewer, f"{USAGE}?group_by=day,day,version")["group_by"] == ["flow", "version", "day"]
        items = read(viewer, f"{USAGE}?group_by=version")["items"]
        totals = [(one["flow"], one["version"], one["usage"]["total"]) for one in items]
        assert totals == [("colour-theme", 1, 400), ("colour-theme", 2, 200), ("other", 1, 100)]
        for query, total in (
            ("flow=colour-theme&version=2", 200),
            ("model=gpt-5", 350),
            (f"from={day_ago(1)}", 300),
            (f"to={day_ago(2)}&flow=colour-theme&model=gpt-5", 200),
            ("simulated=true", 0),
        ):
            assert sum(one["usage"]["total"] for one in read(viewer, f"{USAGE}?{query}")["items"]) == total, query
        # Attempts are distinguished by model, runs are not.
        add_steps(version, day_ago(0), model="", attempts=5)
        items = read(viewer, f"{USAGE}?group_by=model")["items"]
        assert [(one["model"], one["attempts"]) for one in items] == [(None, 5), ("gpt-5", 7), ("gpt-5-mini", 7)]
        assert {(one["runs"], one["usage"]["cached"], one["usage"]["reasoning"]) for one in items} == {(None,) * 3}
        monkeypatch.setattr(statistics, "MAX_ITEMS", 3)
        assert len(read(viewer, f"{USAGE}?group_by=version,day")["items"]) == 3
        assert list_wrong(viewer.get(f"{USAGE}?group_by=version,model,day"), 400) == ["group_by"]


class TestOverview:
    def test_it_lists_the_newest_runs_under_way_and_says_what_waits_for_whom(self, viewer: Script) -> None:
        version = make_version(make_page_flow())
        now, under_way = timezone.now(), {"status": RunStatus.RUNNING, "lease_until": in_future(MINUTE)}
        keys = [make_run(version, started_at=now, steps_passed=2, **under_way).pk for _ in range(21)]
        make_run(available_at=in_future(-MINUTE))
        make_run(available_at=in_future(MINUTE))
        found = read(viewer, OVERVIEW)
        running = found["running"]
        assert (running["count"], [one["id"] for one in running["items"]]) == (21, keys[:0:-1])
        assert running["items"][0].items() >= {"flow": "colour-theme", "steps_passed": 2}.items()
        assert found["queue"].pop("oldest_ready") == pytest.approx(60, abs=30)
        assert found["queue"] == {"ready": 1, "later": 1, "waiting": 0, "is_unattended": True}
        make_worker(slots=5, in_flight=3)
        make_worker(pid=4712, heartbeat_at=in_future(-MINUTE))
        found = read(viewer, OVERVIEW)
        assert found["queue"]["is_unattended"] is False
        assert found["workers"] == {"alive": 1, "silent": 1, "slots": 5, "in_flight": 3}

    def test_today_stands_beside_the_median_of_the_days_before(
        self, viewer: Script, version: FlowVersion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_clock(monkeypatch)
        add_runs(version, day_ago(0), succeeded=5, is_simulated=True)
        assert read(viewer, OVERVIEW)["median"] is None
        add_runs(version, day_ago(0), succeeded=3, failed=1, took=20, cost="0.5")
        add_runs(version, day_ago(7), succeeded=3, failed=1, took=30, cost="3")
        found = read(viewer, OVERVIEW)
        today, median = found["today"], found["median"]
        assert (today["day"], today["runs"]["total"], today["runs"]["pass_rate"]) == (str(day_ago(0)), 4, 0.75)
        assert (today["tokens"], today["cost"]) == (400, "0.50000000")
        assert (median["days"], median["runs"], median["tokens"]) == (1, 4, 400)
        assert (median["cost"], median["pass_rate"]) == ("3.00000000", 0.75)
        simulated = read(viewer, f"{OVERVIEW}?simulated=true")
        assert (simulated["today"]["runs"]["total"], simulated["today"]["cost"]) == (5, None)


def test_a_flow_that_does_not_exist_is_not_found(viewer: Script) -> None:
    for address in ("flows/nothing/statistics", "flows/nothing/statistics/audits"):
        assert read_problem(viewer.get(address))["status"] == 404
