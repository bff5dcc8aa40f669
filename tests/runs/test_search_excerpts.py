"""Where in a run the words stand that were looked for."""

from __future__ import annotations

from typing import Any

import pytest

from runs.models import Run
from runs.search import excerpts, find_excerpts, read_query
from tests.engine.builders import make_attempt, make_error, make_issue
from tests.runs.pages.history_builders import make_stored_run

pytestmark = pytest.mark.django_db


def show(run: Run, typed: str) -> list[str]:
    """The excerpts of a run as one line each, with what is marked in brackets."""
    found = find_excerpts([run.pk], read_query(typed))[run.pk]
    return [
        f"{one.place}: " + "".join(f"[{piece.text}]" if piece.is_marked else piece.text for piece in one.pieces)
        for one in found
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
    run = make_stored_run(input={"topic": "one\n\n  two cafe\u0301 שָׁלוֹם \u202egnp"})
    assert show(run, "café שלום") == ["Input: one two [cafe\u0301] [שָׁלוֹם] \u202egnp"]


def test_a_page_of_runs_costs_the_same_queries_as_one(run: Run, django_assert_max_num_queries: Any) -> None:
    runs = [make_stored_run(make_attempt(1, 1), input={"topic": "tea"}).pk for _ in range(5)]
    with django_assert_max_num_queries(3):
        assert all(found == () for found in find_excerpts(runs, read_query("reminder")).values())
    with django_assert_max_num_queries(1):
        assert all(find_excerpts(runs, read_query("tea")).values())


def test_of_runs_with_very_many_attempts_the_newest_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "MAX_OUTPUTS", 3)
    attempts = [
        make_attempt(1, number, output={"text": "reminder" if number in (2, 4) else ""}) for number in range(1, 6)
    ]
    assert show(make_stored_run(*attempts), "reminder") == ["Step 1, attempt 4, output: [reminder]"]
    assert show(make_stored_run(*attempts[:2], *attempts[4:]), "reminder") == ["Step 1, attempt 2, output: [reminder]"]
