"""Tokens and cost of all flows over the API, told apart as a script likes."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from flows.models import FlowVersion
from runs.api import statistics
from runs.models import DailyRuns
from tests.api.asking import Script, read_problem
from tests.runs.builders import make_version
from tests.runs.pages.daily_rows import add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db

ADDRESS = "statistics/usage"


@pytest.fixture
def version(db: None) -> FlowVersion:
    return make_version(make_page_flow())


@pytest.fixture
def other(db: None) -> FlowVersion:
    return make_version(make_page_flow(name="other", title="Other"))


@pytest.fixture
def _counted(version: FlowVersion, other: FlowVersion) -> None:
    """Two flows, two versions of one of them, two models and two days."""
    newer = make_version(make_page_flow())
    for one, days, runs, cost in ((version, 2, 4, "0.4"), (newer, 1, 2, "0.6"), (other, 1, 1, "0")):
        add_runs(one, day_ago(days), succeeded=runs, cost=cost, attempts=2 * runs, prompt_tokens=60 * runs)
        halves = {"attempts": runs, "total_tokens": 50 * runs, "prompt_tokens": 30 * runs}
        add_steps(one, day_ago(days), cost=cost, **halves)
        add_steps(one, day_ago(days), step=2, model="gpt-5", **halves)
    DailyRuns.objects.filter(version=newer).update(cached_tokens=11, reasoning_tokens=7)


def read(script: Script, query: str = "") -> Any:
    """What is answered."""
    answer = script.get(f"{ADDRESS}{'?' if query else ''}{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()  # type: ignore[attr-defined]  # answers to test clients have it


def list_totals(script: Script, query: str, *keys: str) -> list[tuple[Any, ...]]:
    """The keys of each item and its tokens."""
    return [(*(one[key] for key in keys), one["usage"]["total"]) for one in read(script, query)["items"]]


@pytest.mark.usefixtures("_counted")
class TestGroups:
    def test_by_flow_all_is_told_that_is_known(self, viewer: Script) -> None:
        found = read(viewer)
        assert (found["group_by"], found["from"], found["to"]) == (["flow"], str(day_ago(29)), str(day_ago(0)))
        assert found["items"] == [
            {
                "flow": "colour-theme",
                "runs": 6,
                "attempts": 12,
                "usage": {
                    "prompt": 360,
                    "completion": 0,
                    "total": 600,
                    "cached": 11,
                    "reasoning": 7,
                    "cost": "1.00000000",
                    "unpriced": 0,
                },
            },
            found["items"][1],
        ]
        assert found["items"][1]["flow"] == "other"

    def test_a_version_brings_its_flow_along(self, viewer: Script) -> None:
        found = read(viewer, "group_by=version")
        assert found["group_by"] == ["flow", "version"]
        assert list_totals(viewer, "group_by=version", "flow", "version") == [
            ("colour-theme", 1, 400),
            ("colour-theme", 2, 200),
            ("other", 1, 100),
        ]

    def test_by_model_runs_are_not_told_apart(self, viewer: Script, version: FlowVersion) -> None:
        add_steps(version, day_ago(0), model="", attempts=5)
        found = read(viewer, "group_by=model")["items"]
        assert [(one["model"], one["attempts"], one["usage"]["cost"]) for one in found] == [
            (None, 5, "0.00000000"),
            ("gpt-5", 7, "0.00000000"),
            ("gpt-5-mini", 7, "1.00000000"),
        ]
        assert {(one["runs"], one["usage"]["cached"], one["usage"]["reasoning"]) for one in found} == {(None,) * 3}

    def test_any_of_them_are_combined_in_one_order(self, viewer: Script) -> None:
        expected = [
            ("colour-theme", "gpt-5", str(day_ago(2)), 200),
            ("colour-theme", "gpt-5", str(day_ago(1)), 100),
            ("colour-theme", "gpt-5-mini", str(day_ago(2)), 200),
            ("colour-theme", "gpt-5-mini", str(day_ago(1)), 100),
        ]
        for query in ("flow,model,day", "day,model,flow", "day,day,model,flow"):
            found = list_totals(viewer, f"group_by={query}&flow=colour-theme", "flow", "model", "day")
            assert found == expected
        assert list_totals(viewer, "group_by=day", "day") == [(str(day_ago(2)), 400), (str(day_ago(1)), 300)]


@pytest.mark.usefixtures("_counted")
class TestFilters:
    @pytest.mark.parametrize(
        ("query", "total"),
        [
            ("flow=colour-theme", 600),
            ("flow=colour-theme&version=2", 200),
            ("model=gpt-5", 350),
            ("flow=other&model=gpt-5", 50),
            (f"from={day_ago(1)}", 300),
            (f"to={day_ago(2)}", 400),
            (f"from={day_ago(2)}&to={day_ago(2)}&model=gpt-5", 200),
        ],
    )
    def test_only_what_is_asked_for_counts(self, viewer: Script, query: str, total: int) -> None:
        assert sum(count for (count,) in list_totals(viewer, query)) == total

    def test_simulated_runs_are_asked_for_by_themselves(self, viewer: Script, version: FlowVersion) -> None:
        add_runs(version, day_ago(2), succeeded=9, is_simulated=True)
        assert list_totals(viewer, "simulated=true", "runs") == [(9, 900)]
        assert read(viewer, "simulated=true")["items"][0]["usage"]["cost"] is None

    def test_where_nothing_ran_there_is_no_item(self, viewer: Script) -> None:
        assert read(viewer, "model=nobody")["items"] == []


@pytest.mark.usefixtures("_counted")
class TestParameters:
    @pytest.mark.parametrize(
        ("query", "name"),
        [
            ("group_by=step", "group_by"),
            ("group_by=flow,", "group_by"),
            ("group_by=", "group_by"),
            ("flow=nothing", "flow"),
            ("flow=a%00", "flow"),
            ("version=1", "version"),
            ("flow=other&version=2", "version"),
            ("limit=5", "limit"),
        ],
    )
    def test_a_value_that_is_not_valid_is_named(self, viewer: Script, query: str, name: str) -> None:
        problem = read_problem(viewer.get(f"{ADDRESS}?{query}"))
        (error,) = problem["errors"]
        assert (problem["status"], error["parameter"]) == (400, name)

    def test_more_than_an_answer_holds_is_refused_and_never_cut(
        self, viewer: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(statistics, "MOST_USAGE", 3)
        assert len(read(viewer, "group_by=version,day")["items"]) == 3
        problem = read_problem(viewer.get(f"{ADDRESS}?group_by=version,model,day"))
        assert problem["status"] == 400
        assert problem["errors"][0]["parameter"] == "group_by"


@pytest.mark.usefixtures("_counted")
@pytest.mark.parametrize(
    # Token with its user, two for permissions, usage; the flow and the version if they are asked for.
    ("query", "count"),
    [("", 3), ("group_by=flow,version,model,day", 3), ("flow=colour-theme&version=1&group_by=day", 5)],
)
def test_the_number_of_queries_does_not_depend_on_what_was_counted(
    viewer: Script, query: str, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    read(viewer)
    with django_assert_num_queries(count):
        read(viewer, query)
    for number in range(5):
        version = make_version(make_page_flow(name=f"flow-{number}"))
        for day in range(5):
            add_runs(version, day_ago(day), succeeded=1)
            add_steps(version, day_ago(day), attempts=1)
    with django_assert_num_queries(count):
        read(viewer, query)
