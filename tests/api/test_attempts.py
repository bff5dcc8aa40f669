"""Reading steps and attempts over the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runs.models import Run, RunStatus
from tests.api.asking import Script, read_problem
from tests.api.documents import SIGN_IN_QUERIES, read, settle
from tests.engine.builders import make_attempt, make_issue, make_usage
from tests.runs.pages.history_builders import begin_attempt, make_retried_run, make_stored_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """A run that ended when its second step had used up its tries; one attempt was interrupted."""
    return make_stored_run(
        make_attempt(1, 1),
        make_attempt(2, 1, "failed"),
        make_attempt(2, 2, "interrupted"),
        make_attempt(2, 3, "invalid"),
        status=RunStatus.FAILED,
    )


def walk(script: Script, address: str, way: str = "next") -> Iterator[list[tuple[int, int]]]:
    """Step and number of the attempts on each page."""
    following: str | None = address
    while following is not None:
        page = read(script, following.removeprefix("http://testserver"))
        yield [(item["step"], item["number"]) for item in page["items"]]
        following = page[way]


def list_places(script: Script, path: str) -> list[tuple[int, int]]:
    return [place for page in walk(script, path) for place in page]


class TestSteps:
    def test_all_steps_are_listed_also_those_that_have_not_begun(self, viewer: Script, run: Run) -> None:
        page = read(viewer, f"runs/{run.pk}/steps")
        assert [(step["index"], step["name"], step["outcome"], len(step["attempts"])) for step in page["items"]] == [
            (0, "Input", "passed", 1),
            (1, "Step 1", "passed", 1),
            (2, "Step 2", "invalid", 3),
            (3, "Step 3", None, 0),
        ]
        assert (page["next"], page["previous"]) == (None, None)

    def test_they_are_those_of_the_run(self, viewer: Script, run: Run) -> None:
        for query in ("", "?attempts=final&usage=false&min_severity=high"):
            steps = read(viewer, f"runs/{run.pk}{query}")["steps"]
            assert read(viewer, f"runs/{run.pk}/steps{query}")["items"] == steps
            for step in steps:
                assert read(viewer, f"runs/{run.pk}/steps/{step['index']}{query}") == step

    def test_they_can_be_listed_without_attempts(self, viewer: Script, run: Run) -> None:
        for step in (
            *read(viewer, f"runs/{run.pk}/steps?attempts=none")["items"],
            read(viewer, f"runs/{run.pk}/steps/2?attempts=none"),
        ):
            assert step.keys() == {"index", "name", "outcome", "url"}

    def test_attempts_of_other_runs_are_not_among_them(self, viewer: Script, run: Run) -> None:
        other = make_stored_run(make_attempt(1, 1))
        assert [attempt["number"] for attempt in read(viewer, f"runs/{other.pk}/steps/2")["attempts"]] == []

    @pytest.mark.parametrize("index", ["4", "99999999999", "9" * 25, "one"])
    def test_there_are_no_more_steps_than_the_flow_has(self, viewer: Script, run: Run, index: str) -> None:
        assert read_problem(viewer.get(f"runs/{run.pk}/steps/{index}"))["status"] == 404

    def test_numbers_of_queries_don_t_grow(self, viewer: Script, django_assert_num_queries: Any) -> None:
        few = make_stored_run(make_attempt(1, 1, "failed"))
        many = make_stored_run(*(make_attempt(1, number, "failed") for number in range(1, 30)))
        settle(viewer)
        for run in (few, many):
            # The run, the names of its steps, its attempts, their issues.
            with django_assert_num_queries(SIGN_IN_QUERIES + 4):
                read(viewer, f"runs/{run.pk}/steps")
            with django_assert_num_queries(SIGN_IN_QUERIES + 4):
                read(viewer, f"runs/{run.pk}/steps/1")


class TestAttempts:
    def test_they_are_listed_by_step_and_number_without_the_input(self, viewer: Script, run: Run) -> None:
        assert list_places(viewer, f"runs/{run.pk}/attempts") == [(1, 1), (2, 1), (2, 2), (2, 3)]

    def test_each_has_its_output_beside_its_own_issues_and_usage(self, viewer: Script) -> None:
        run = make_retried_run()
        items = read(viewer, f"runs/{run.pk}/attempts")["items"]
        steps = read(viewer, f"runs/{run.pk}")["steps"]
        assert items == [attempt for step in steps[1:] for attempt in step["attempts"]]

    def test_pages_lead_to_the_end_and_back(self, viewer: Script) -> None:
        # Ten comes after nine, not after one.
        run = make_stored_run(*(make_attempt(1, number, "failed") for number in range(1, 12)), make_attempt(2, 1))
        pages = list(walk(viewer, f"runs/{run.pk}/attempts?limit=5"))
        assert pages == [
            [(1, number) for number in range(1, 6)],
            [(1, number) for number in range(6, 11)],
            [(1, 11), (2, 1)],
        ]
        assert list(walk(viewer, f"runs/{run.pk}/attempts?limit=5&before=1.11", "previous")) == [pages[1], pages[0]]

    @pytest.mark.parametrize(
        ("query", "places"),
        [
            ("step=2", [(2, 1), (2, 2), (2, 3)]),
            ("step=7", []),
            ("outcome=failed", [(2, 1)]),
            ("outcome=failed,invalid", [(2, 1), (2, 3)]),
            ("outcome=passed&outcome=interrupted", [(1, 1), (2, 2)]),
            ("outcome=passed&step=2", []),
            ("limit=1&outcome=failed,invalid", [(2, 1), (2, 3)]),
        ],
    )
    def test_they_are_filtered_by_step_and_outcome(
        self, viewer: Script, run: Run, query: str, places: list[tuple[int, int]]
    ) -> None:
        assert list_places(viewer, f"runs/{run.pk}/attempts?{query}") == places

    def test_usage_and_lesser_issues_can_be_left_out(self, viewer: Script) -> None:
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue("low"), make_issue("high"))))
        (item,) = read(viewer, f"runs/{run.pk}/attempts?usage=false&min_severity=medium")["items"]
        assert [issue["severity"] for issue in item["issues"]] == ["high"]
        assert "usage" not in item

    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ("step=0", ["step"]),
            ("step=x&outcome=done&after=5&limit=x&min_severity=x&usage=x",
             ["limit", "after", "usage", "min_severity", "step", "outcome"]),
            ("outcome=", ["outcome"]),
            ("attempts=final", ["attempts"]),
        ],
    )  # fmt: skip
    def test_what_makes_no_sense_is_told_by_the_name_of_the_parameter(
        self, viewer: Script, run: Run, query: str, names: list[str]
    ) -> None:
        problem = read_problem(viewer.get(f"runs/{run.pk}/attempts?{query}"))
        assert [error["parameter"] for error in problem["errors"]] == names

    def test_attempts_of_other_runs_are_not_among_them(self, viewer: Script, run: Run) -> None:
        other = make_stored_run(make_attempt(1, 1))
        assert list_places(viewer, f"runs/{other.pk}/attempts") == [(1, 1)]

    def test_numbers_of_queries_don_t_grow(self, viewer: Script, django_assert_num_queries: Any) -> None:
        few = make_stored_run(make_attempt(1, 1, "failed"))
        many = make_stored_run(*(make_attempt(1, number, "failed") for number in range(1, 30)))
        settle(viewer)
        for run in (few, many):
            # Whether there is the run, its attempts, their issues.
            with django_assert_num_queries(SIGN_IN_QUERIES + 3):
                read(viewer, f"runs/{run.pk}/attempts?step=1&outcome=failed")


class TestOneAttempt:
    def test_it_comes_whole(self, viewer: Script) -> None:
        request = {"model": "gpt-5", "messages": [{"role": "user", "content": "Tea?"}], "z": 1, "a": 2}
        attempt = make_attempt(
            1, 1, "failed",
            input={"seed": 7}, output={"text": "tea"}, raw_output={"text": " tea "}, request=request, model="gpt-5",
            issues=(make_issue("high", "Too short.", path="/text", suggestions=("Longer.",), context={"least": 9}),),
            usage=make_usage(90), failure_reason="It is too short.", plugins={"check": "abc"},
        )  # fmt: skip
        run = make_stored_run(attempt)
        address = f"http://testserver/api/v1/runs/{run.pk}/steps/1/attempts/1"
        document = read(viewer, f"runs/{run.pk}/steps/1/attempts/1")
        assert document == {
            "step": 1,
            "number": 1,
            "outcome": "failed",
            "input": {"seed": 7},
            "output": {"text": "tea"},
            "raw_output": {"text": " tea "},
            "issues": [
                {
                    "code": "too_short",
                    "severity": "high",
                    "description": "Too short.",
                    "audit": "",
                    "path": "/text",
                    "context": {"least": 9},
                    "suggestions": ["Longer."],
                }
            ],
            "usage": {
                "prompt": 60,
                "completion": 30,
                "total": 90,
                "cached": 0,
                "reasoning": 0,
                "reported": True,
                "cost": None,
                "unpriced": 0,
            },
            "request": request,
            "model": "gpt-5",
            "response_id": None,
            "finish_reason": None,
            "error": None,
            "failure_reason": "It is too short.",
            "plugins": {"check": "abc"},
            "started_at": "2026-11-21T11:55:00Z",
            "ended_at": "2026-11-21T11:55:01Z",
            "duration": 1.0,
            "url": address,
            "page_url": f"http://testserver/runs/{run.pk}/#s1a1",
        }
        assert list(document["request"]) == list(request)

    def test_the_input_is_the_attempt_of_step_0(self, viewer: Script, run: Run) -> None:
        document = read(viewer, f"runs/{run.pk}/steps/0/attempts/1")
        assert (document["output"], document["outcome"], document["usage"]["total"]) == ({"topic": "tea"}, "passed", 0)

    def test_one_that_runs_can_be_read_too(self, viewer: Script) -> None:
        run = make_stored_run(status=RunStatus.RUNNING)
        begin_attempt(run, 1, 1)
        assert read(viewer, f"runs/{run.pk}/steps/1/attempts/1")["outcome"] is None

    @pytest.mark.parametrize(
        "place", ["1/attempts/2", "0/attempts/2", "1/attempts/0", "2/attempts/99999999999", "1/attempts/" + "9" * 30]
    )
    def test_there_are_no_others(self, viewer: Script, run: Run, place: str) -> None:
        # Another run has such an attempt.
        make_stored_run(make_attempt(1, 1), make_attempt(1, 2))
        assert read_problem(viewer.get(f"runs/{run.pk}/steps/{place}"))["status"] == 404

    def test_it_costs_two_queries(self, viewer: Script, run: Run, django_assert_num_queries: Any) -> None:
        settle(viewer)
        with django_assert_num_queries(SIGN_IN_QUERIES + 2):
            read(viewer, f"runs/{run.pk}/steps/2/attempts/3")
