"""What becomes of issues, in the words of the run page."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.test import Client

from runs import models
from runs.history.issues import StepIssues
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import attempt_address, get_page, read_words

_keys = itertools.count(1)


def issue(path: str | None = None, **fields: Any) -> models.Issue:
    """A row that is not stored; its key and its position are numbers of their own."""
    key = next(_keys)
    values = {"code": "hex_format", "audit": "Hex colours", "severity": "high", "description": "“red” is wrong."}
    return models.Issue(pk=key, position=key, path=path, **{**values, **fields})


def trace(
    *attempts: tuple[str, list[models.Issue]], step: int = 2, outputs: dict[int, Any] | None = None
) -> StepIssues:
    parent = models.Step(index=step, name="Colours")
    rows = [
        (models.Attempt(step=parent, number=number, outcome=outcome), issues)
        for number, (outcome, issues) in enumerate(attempts, start=1)
    ]
    return StepIssues(step, rows, outputs)


def words(found: StepIssues, *issues: models.Issue) -> list[str]:
    return ["; ".join(map(str, found.list_marks(one.pk))) for one in issues]


def summarise(found: StepIssues) -> str:
    return "".join(part.words + part.linked for part in found.parts)


class TestMarks:
    def test_an_issue_that_returned_says_which_attempt_had_fixed_it(self) -> None:
        first, third, fourth = issue(), issue(), issue()
        found = trace(("failed", [first]), ("failed", []), ("failed", [third]), ("failed", [fourth]), ("passed", []))
        assert words(found, first, third, fourth) == [
            "New here; Fixed by attempt 2",
            "Returned, was fixed in attempt 2; Still there in attempt 4",
            "Persisted since attempt 3; Fixed by attempt 5",
        ]
        kinds = [found.list_marks(one.pk)[0].kind for one in (first, third, fourth)]
        assert kinds == ["introduced", "returned", "persisted"]

    def test_an_issue_is_reported_again_when_the_attempt_ends_that_says_something_about_it(self) -> None:
        gone, stays, later = issue("/a"), issue("/b"), issue("/b")
        found = trace(("failed", [gone, stays]), ("failed", [later]), ("failed", [issue("/b")]))
        new = {
            since: [(number, place) for number in (1, 2, 3) for place, _ in found.list_new_marks(number, since)]
            for since in (2, 3, 4)
        }
        assert new == {2: [(1, gone.position), (1, stays.position)], 3: [(2, later.position)], 4: []}


class TestSummary:
    @pytest.mark.parametrize(
        ("attempts", "summary"),
        [
            ([("passed", "")], ""),
            ([("failed", "abc")], "3 issues"),
            ([("failed", "a"), ("passed", "")], "1 issue: fixed by attempt 2"),
            ([("failed", "abc"), ("passed", "")], "3 issues: all fixed by attempt 2"),
            ([("failed", "abcd"), ("failed", "d")], "4 issues: 3 fixed by attempt 2, 1 persisted"),
            (
                [("failed", "abc"), ("failed", "ab"), ("passed", "")],
                "3 issues: 1 fixed by attempt 2, 2 fixed by attempt 3",
            ),
            ([("failed", "ab"), ("failed", "bc")], "3 issues: 1 fixed by attempt 2, 1 persisted, 1 new in attempt 2"),
            ([("failed", "a"), ("failed", ""), ("failed", "a")], "1 issue: returned in attempt 3"),
            ([("failed", "a"), ("failed", ""), ("failed", "a"), ("passed", "")], "1 issue: fixed by attempt 4"),
            ([("failed", "ab"), ("invalid", "")], "2 issues: not checked again since attempt 1"),
            ([("failed", "a"), ("interrupted", ""), ("passed", "")], "1 issue: fixed by attempt 3"),
        ],
    )
    def test_the_head_of_a_step_sums_its_issues_up(self, attempts: list[tuple[str, str]], summary: str) -> None:
        found = trace(*[(outcome, [issue(f"/{name}") for name in names]) for outcome, names in attempts])
        assert summarise(found) == summary


@pytest.mark.django_db
class TestOnThePage:
    def test_an_item_that_moved_is_followed_by_outputs_that_are_not_shown(self, viewer: Client) -> None:
        def found(*colours: str) -> Any:
            place = f"/colours/{colours.index('red')}"
            issues = (make_issue("high", "“red” is wrong.", code="hex_format", audit="Hex colours", path=place),)
            return {"output": {"colours": [*colours]}, "issues": issues}

        run = make_stored_run(
            make_attempt(1, 1, "failed", **found("#111111", "#222222", "red")),
            make_attempt(1, 2, "failed", **found("#111111", "red")),
            make_attempt(1, 3, "failed", **found("red", "#333333")),
        )
        words = read_words(get_page(viewer, attempt_address(run, 1, 2)))
        assert "Persisted since attempt 1 , there at /colours/2 Still there in attempt 3" in words
        assert "Persisted since attempt 1 , there at /colours/2" in read_words(
            get_page(viewer, attempt_address(run, 1, 3))
        )
