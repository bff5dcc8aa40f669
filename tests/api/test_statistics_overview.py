"""What goes on now over the API, and today beside the 7-day median: what the home page shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runs.models import RunStatus
from runs.models.run import in_future
from tests.api.asking import Script, read_problem
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.daily_rows import add_runs, day_ago, stop_clock
from tests.runs.pages.history_builders import make_page_flow

# Leases, heartbeats and waits are in the time of the database.
pytestmark = pytest.mark.django_db

ADDRESS = "statistics/overview"
MINUTE = timedelta(minutes=1)


def read(script: Script, query: str = "") -> Any:
    """What is answered."""
    answer = script.get(f"{ADDRESS}{'?' if query else ''}{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()  # type: ignore[attr-defined]  # answers to test clients have it


def start_run(**fields: Any) -> int:
    """A run under way."""
    values = {"status": RunStatus.RUNNING, "lease_until": in_future(MINUTE), "started_at": timezone.now(), **fields}
    key: int = make_run(make_version(make_page_flow()), **values).pk
    return key


class TestNow:
    def test_runs_under_way_are_listed_with_their_progress(self, viewer: Script) -> None:
        first, second = start_run(steps_passed=2), start_run()
        running = read(viewer)["running"]
        assert running["count"] == 2
        assert [one["id"] for one in running["items"]] == [second, first]
        assert running["items"][1].items() >= {"flow": "colour-theme", "version": 1, "steps_passed": 2}.items()
        assert running["items"][1]["started_at"].endswith("Z")

    def test_of_many_the_newest_are_listed_and_all_are_counted(self, viewer: Script) -> None:
        keys = [start_run() for _ in range(21)]
        running = read(viewer)["running"]
        assert running["count"] == 21
        assert [one["id"] for one in running["items"]] == keys[:0:-1]

    def test_the_queue_says_what_waits_and_whether_anybody_will_come(self, viewer: Script) -> None:
        make_run(available_at=in_future(-MINUTE))
        make_run(available_at=in_future(MINUTE))
        found = read(viewer)
        queue = found["queue"]
        assert (queue["ready"], queue["later"], queue["waiting"], queue["is_unattended"]) == (1, 1, 0, True)
        assert queue["oldest_ready"] == pytest.approx(60, abs=30)
        assert found["workers"] == {"alive": 0, "silent": 0, "slots": 0, "in_flight": 0}
        make_worker(slots=5, in_flight=3)
        make_worker(pid=4712, heartbeat_at=in_future(-MINUTE))
        found = read(viewer)
        assert found["queue"]["is_unattended"] is False
        assert found["workers"] == {"alive": 1, "silent": 1, "slots": 5, "in_flight": 3}

    def test_where_nothing_goes_on_nothing_is_made_up(self, viewer: Script) -> None:
        found = read(viewer)
        assert found["running"] == {"count": 0, "items": []}
        assert (found["queue"]["ready"], found["queue"]["oldest_ready"]) == (0, None)
        assert (found["today"]["runs"]["total"], found["today"]["runs"]["pass_rate"]) == (0, None)
        assert found["median"] is None


class TestToday:
    @pytest.fixture(autouse=True)
    def _at_noon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stop_clock(monkeypatch)

    def test_today_stands_beside_the_median_of_the_days_before(self, viewer: Script) -> None:
        version = make_version(make_page_flow())
        other = make_version(make_page_flow(name="other"))
        add_runs(version, day_ago(0), succeeded=3, failed=1, took=20, cost="0.5")
        add_runs(version, day_ago(1), succeeded=10, cost="1")
        add_runs(other, day_ago(1), failed=10)
        add_runs(version, day_ago(7), succeeded=30, took=30, cost="3")
        add_runs(version, day_ago(8), failed=1_000)
        found = read(viewer)
        today, median = found["today"], found["median"]
        assert today["day"] == str(day_ago(0))
        assert (today["runs"]["total"], today["runs"]["pass_rate"]) == (4, 0.75)
        assert (today["tokens"], today["cost"]) == (400, "0.50000000")
        assert today["runs"]["duration_p50"] == pytest.approx(20, rel=0.03)
        assert (median["days"], median["runs"], median["tokens"]) == (2, 25, 2_500)
        assert (median["cost"], median["pass_rate"]) == ("2.00000000", 0.75)
        assert median["duration_p50"] == pytest.approx(20, rel=0.03)

    def test_simulated_runs_are_asked_for_by_themselves(self, viewer: Script) -> None:
        version = make_version(make_page_flow())
        add_runs(version, day_ago(0), succeeded=3)
        add_runs(version, day_ago(0), succeeded=5, is_simulated=True)
        assert read(viewer)["today"]["runs"]["total"] == 3
        found = read(viewer, "simulated=true")
        assert (found["is_simulated"], found["today"]["runs"]["total"], found["today"]["cost"]) == (True, 5, None)

    def test_a_parameter_that_makes_no_sense_is_named(self, viewer: Script) -> None:
        problem = read_problem(viewer.get(f"{ADDRESS}?simulated=yes"))
        assert (problem["status"], problem["errors"][0]["parameter"]) == (400, "simulated")


def test_the_number_of_queries_does_not_depend_on_size(
    viewer: Script, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    read(viewer)
    # Token with its user, two for permissions; one for days; workers, queue, how many run and which.
    with django_assert_num_queries(9):
        read(viewer)
    for number in range(4):
        version = make_version(make_page_flow(name=f"flow-{number}"))
        for day in range(10):
            add_runs(version, day_ago(day), succeeded=1)
        start_run()
        make_worker(pid=number + 1)
    with django_assert_num_queries(9):
        read(viewer)
