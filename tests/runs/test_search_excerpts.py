"""Where in a run the words stand that were looked for."""

from __future__ import annotations

from typing import Any

import pytest

from runs.models import Run
from runs.search import Excerpt, excerpts, find_excerpts, read_query
from tests.engine.builders import make_attempt, make_error, make_issue
from tests.runs.pages.history_builders import make_stored_run

pytestmark = pytest.mark.django_db


def show(run: Run, typed: str) -> list[str]:
    """The excerpts of a run as one line each, with what is marked in brackets."""
    excerpts = find_excerpts([run.pk], read_query(typed))[run.pk]
    return [
        f"{one.place}: " + "".join(f"[{piece.text}]" if piece.is_marked else piece.text for piece in one.pieces)
        for one in excerpts
    ]


@pytest.fixture
def run() -> Run:
    issue = make_issue(description="The invoice is not paid yet.", code="unpaid", audit="Payment")
    return make_stored_run(
        make_attempt(1, 1, "failed", output={"text": "We sent a reminder."}, issues=(issue,)),
        make_attempt(1, 2, output={"text": "We called. The INVOICE was settled."}),
        make_attempt(2, 1, "errored", error=make_error(message="The provider is overloaded.")),
        input={"topic": "Invoice INV-2026-0042 of Café Zürich"},
    )


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        ("inv-2026-0042", ["Input: Invoice [INV-2026-0042] of Café Zürich"]),
        ("cafe zur*", ["Input: Invoice INV-2026-0042 of [Café] [Zürich]"]),
        ("invoice", ["Input: [Invoice] INV-2026-0042 of Café Zürich"]),
        ('"invoice is not"', ["Step 1, attempt 1, issue: The [invoice is not] paid yet."]),
        ("unpaid", ["Step 1, attempt 1, issue: [unpaid]"]),
        ("reminder", ["Step 1, attempt 1, output: We sent a [reminder]."]),
        ("overloaded", ["Step 2, attempt 1, error: The provider is [overloaded]."]),
        ("cafe reminder", ["Input: Invoice INV-2026-0042 of [Café] Zürich", "Step 1, attempt 1, output: We sent a [reminder]."]),  # noqa: E501
        ("called", ["Step 1, attempt 2, output: We [called]. The INVOICE was settled."]),
        ("called invoice", ["Input: [Invoice] INV-2026-0042 of Café Zürich", "Step 1, attempt 2, output: We [called]. The [INVOICE] was settled."]),  # noqa: E501
        ("coffee", []),
    ],
)  # fmt: skip
def test_the_first_text_that_holds_a_word_is_shown_with_the_word_marked(run: Run, typed: str, lines: list[str]) -> None:
    assert show(run, typed) == lines


def test_a_long_text_is_cut_around_the_word() -> None:
    text = "before " * 50 + "the word " + "after " * 100
    run = make_stored_run(input={"topic": text})
    (line,) = show(run, "word")
    assert line == "Input: …before before before before before the [word] " + " ".join(["after"] * 17) + "…"


def test_combining_marks_and_line_breaks_stay_readable() -> None:
    run = make_stored_run(input={"topic": "one\n\n  two cafe\u0301 \u202egnp"})
    assert show(run, "café") == ["Input: one two [caf\u00e9] \u202egnp"]


def test_a_page_of_runs_costs_the_same_queries_as_one(run: Run, django_assert_num_queries: Any) -> None:
    runs = [make_stored_run(make_attempt(1, 1), input={"topic": "tea"}).pk for _ in range(5)]
    with django_assert_num_queries(4):
        assert find_excerpts([run.pk], read_query("reminder"))[run.pk]
    with django_assert_num_queries(4):
        assert all(found == () for found in find_excerpts(runs, read_query("reminder")).values())
    with django_assert_num_queries(1):
        assert all(find_excerpts(runs, read_query("tea")).values())


def make_long_run(word: str, *, holds: int) -> int:
    """A run with six attempts, one of which has the word in its output; gives its number."""
    outputs = ({"text": word if number == holds else "Nothing."} for number in range(1, 7))
    return make_stored_run(
        *(make_attempt(1, number, output=output) for number, output in enumerate(outputs, start=1))
    ).pk


def test_what_the_last_attempts_hold_is_shown_without_a_look_at_the_others(django_assert_num_queries: Any) -> None:
    runs = [make_long_run("reminder", holds=6) for _ in range(3)]
    with django_assert_num_queries(3):  # inputs, issues, outputs
        found = find_excerpts(runs, read_query("reminder"))
    assert [one.place for run_id in runs for one in found[run_id]] == ["Step 1, attempt 6, output"] * 3


def test_of_runs_with_very_many_attempts_the_latest_ones_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "MOST_EARLIER", 6)
    early, middle, late = (make_long_run("reminder", holds=number) for number in (3, 4, 5))
    places = {number: [one.place for one in found] for number, found in find(early, middle, late).items()}
    assert places == {early: [], middle: ["Step 1, attempt 4, output"], late: ["Step 1, attempt 5, output"]}
    # Runs that show all there is to show leave their share to others.
    done = make_long_run("reminder", holds=6)
    assert [len(found) for found in find(early, middle, done).values()] == [1, 1, 1]


def find(*run_ids: int) -> dict[int, tuple[Excerpt, ...]]:
    return find_excerpts(run_ids, read_query("reminder"))
