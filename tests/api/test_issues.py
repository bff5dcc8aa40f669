"""Reading what audits found in a run over the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runs.models import Run
from tests.api.asking import Script, read_problem
from tests.api.documents import SIGN_IN_QUERIES, read, settle
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import make_retried_run, make_stored_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """A run with five issues in three attempts."""
    return make_stored_run(
        make_attempt(
            1, 1, "failed", issues=(make_issue("critical", code="a", audit="One"), make_issue("low", code="b"))
        ),
        make_attempt(1, 2, issues=(make_issue("medium", code="a", audit="One"),)),
        make_attempt(
            2, 1, "failed", issues=(make_issue("high", code="c", audit="Two"), make_issue("critical", code="a"))
        ),
    )


def list_found(items: list[Any]) -> list[tuple[int, int, str]]:
    """Step, attempt and severity of issues."""
    return [(item["attempt"]["step"], item["attempt"]["number"], item["severity"]) for item in items]


def walk(script: Script, address: str, way: str = "next") -> Iterator[list[tuple[int, int, str]]]:
    following: str | None = address
    while following is not None:
        page = read(script, following.removeprefix("http://testserver"))
        yield list_found(page["items"])
        following = page[way]


ALL = [(1, 1, "critical"), (1, 1, "low"), (1, 2, "medium"), (2, 1, "high"), (2, 1, "critical")]


def test_every_issue_carries_its_attempt(viewer: Script, run: Run) -> None:
    items = read(viewer, f"runs/{run.pk}/issues")["items"]
    assert list_found(items) == ALL
    for item in items:
        attempt = read(viewer, item["attempt"]["url"].removeprefix("http://testserver"))
        own = {name: value for name, value in item.items() if name != "attempt"}
        assert own in attempt["issues"]


def test_it_says_all_that_the_audit_said(viewer: Script) -> None:
    issue = make_issue("high", "Bad.", path="/a/0", context={"b": 1, "a": 2}, suggestions=("Good.",), vendor_id=7)
    run = make_stored_run(make_attempt(1, 1, "failed", issues=(issue,)))
    (item,) = read(viewer, f"runs/{run.pk}/issues")["items"]
    url = f"http://testserver/api/v1/runs/{run.pk}/steps/1/attempts/1"
    assert item == {
        "attempt": {"step": 1, "number": 1, "url": url},
        "code": "too_short",
        "severity": "high",
        "description": "Bad.",
        "audit": "",
        "path": "/a/0",
        "context": {"b": 1, "a": 2},
        "suggestions": ["Good."],
        "vendor_id": 7,
    }


def test_a_field_of_an_audit_does_not_hide_the_attempt(viewer: Script) -> None:
    run = make_stored_run(make_attempt(1, 1, "failed", issues=(make_issue(attempt="mine"),)))
    (item,) = read(viewer, f"runs/{run.pk}/issues")["items"]
    assert item["attempt"]["number"] == 1
    assert read(viewer, f"runs/{run.pk}/steps/1/attempts/1")["issues"][0]["attempt"] == "mine"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("min_severity=high", [ALL[0], ALL[3], ALL[4]]),
        ("code=a", [ALL[0], ALL[2], ALL[4]]),
        ("audit=One", [ALL[0], ALL[2]]),
        ("audit=One&min_severity=high", [ALL[0]]),
        ("step=2&code=a", [ALL[4]]),
        ("code=nothing", []),
        ("code=a'%20OR%201=1", []),
    ],
)
def test_they_are_filtered(viewer: Script, run: Run, query: str, found: list[tuple[int, int, str]]) -> None:
    assert list_found(read(viewer, f"runs/{run.pk}/issues?{query}")["items"]) == found


def test_pages_lead_to_the_end_and_back(viewer: Script, run: Run) -> None:
    pages = [ALL[:2], ALL[2:4], ALL[4:]]
    assert list(walk(viewer, f"runs/{run.pk}/issues?limit=2")) == pages
    assert list(walk(viewer, f"runs/{run.pk}/issues?limit=2&before=2.1.1", "previous")) == [pages[1], pages[0]]
    assert list(walk(viewer, f"runs/{run.pk}/issues?limit=1&code=a")) == [[ALL[0]], [ALL[2]], [ALL[4]]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("after=1.1", ["after"]),
        ("min_severity=bad&code=&audit=%00&step=0", ["min_severity", "code", "audit", "step"]),
        ("code=" + "x" * 201, ["code"]),
        ("severity=high", ["severity"]),
    ],
)
def test_what_makes_no_sense_is_told_by_the_name_of_the_parameter(
    viewer: Script, run: Run, query: str, names: list[str]
) -> None:
    problem = read_problem(viewer.get(f"runs/{run.pk}/issues?{query}"))
    assert [error["parameter"] for error in problem["errors"]] == names


def test_issues_of_other_runs_are_not_among_them(viewer: Script, run: Run) -> None:
    assert len(read(viewer, f"runs/{make_retried_run().pk}/issues")["items"]) == 1


def test_numbers_of_queries_don_t_grow(viewer: Script, django_assert_num_queries: Any) -> None:
    few = make_stored_run(make_attempt(1, 1, "failed"))
    many = make_stored_run(*(make_attempt(1, number, "failed", issues=(make_issue(),) * 5) for number in range(1, 20)))
    settle(viewer)
    for run in (few, many):
        # Whether there is the run, and its issues.
        with django_assert_num_queries(SIGN_IN_QUERIES + 2):
            read(viewer, f"runs/{run.pk}/issues?min_severity=medium&code=too_short")
