"""What the page of a run says about what its retries cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from flows.engine.history import UNREPORTED_USAGE, Attempt, TokenUsage
from runs.models import RunStatus
from tests.engine.builders import make_attempt, make_step, make_usage
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_stored_run
from tests.runs.pages.reading import get_page, read_words, run_address

pytestmark = pytest.mark.django_db


def usage(total: int, cost: str | None = None, **fields: Any) -> TokenUsage:
    return make_usage(total, cost=None if cost is None else Decimal(cost), **fields)


def read_bill(viewer: Client, *attempts: Attempt, **fields: Any) -> str:
    """The words of the bill, narrow spaces as plain ones; empty where there is none."""
    page = get_page(viewer, run_address(make_stored_run(*attempts, **fields)))
    begin = page.index('<div id="retry-bill"')
    bill = page[begin : page.index('id="announcement"', begin)]
    return read_words(bill.removesuffix("<p ")).replace("\N{NARROW NO-BREAK SPACE}", " ")


PRICED = (
    make_attempt(1, 1, "failed", usage=usage(100, "0.01")),
    make_attempt(1, 2, usage=usage(200, "0.02")),
    make_attempt(2, 1, "failed", usage=usage(100, "0.01")),
    make_attempt(2, 2, "failed", usage=usage(100, "0.01")),
)


class TestByCost:
    def test_the_bill_says_what_retries_cost_and_how_much_of_it_led_to_a_pass(self, viewer: Client) -> None:
        words = read_bill(viewer, *PRICED, status=RunStatus.FAILED)
        assert "Retries cost 60 % of this run: $0.0300 of $0.0500; $0.0200 of it led to a pass." in words

    def test_its_three_parts_stand_in_a_table_too(self, viewer: Client) -> None:
        words = read_bill(viewer, *PRICED, status=RunStatus.FAILED)
        assert (
            "Part Attempts Tokens Cost Share First attempts 2 200 $0.0200 40 % "
            "Retries that led to a pass 1 200 $0.0200 40 % Retries that did not 1 100 $0.0100 20 %"
        ) in words

    def test_the_bar_is_drawn_to_scale(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_stored_run(*PRICED, status=RunStatus.FAILED)))
        assert '<rect class="part-first" x="0.00%" width="40.00%"' in page
        assert '<rect class="part-useful" x="40.00%" width="40.00%"' in page
        assert '<rect class="part-wasted" x="80.00%" width="20.00%"' in page

    def test_all_or_none_of_it_is_said_in_words(self, viewer: Client) -> None:
        assert "$0.0200 of $0.0300; all of it led to a pass." in read_bill(viewer, *PRICED[:2])
        words = read_bill(viewer, *PRICED[2:], status=RunStatus.FAILED)
        assert "$0.0100 of $0.0200; none of it led to a pass." in words

    def test_a_run_without_a_retry_has_no_bill(self, viewer: Client) -> None:
        assert read_bill(viewer, make_attempt(1, 1, usage=usage(100, "0.01"))) == ""


class TestByTokens:
    def test_a_simulated_run_has_no_cost_and_is_told_in_tokens(self, viewer: Client) -> None:
        attempts = (make_attempt(1, 1, "failed", usage=usage(100)), make_attempt(1, 2, usage=usage(300)))
        words = read_bill(viewer, *attempts, is_simulated=True)
        assert "Retries used 75 % of this run’s tokens: 300 of 400; all of them led to a pass." in words
        assert "Some prices" not in words

    def test_with_an_unknown_price_shares_are_those_of_the_tokens(self, viewer: Client) -> None:
        attempts = (
            make_attempt(1, 1, "failed", usage=usage(100, "0.01")),
            make_attempt(1, 2, usage=usage(300, unpriced=1)),
        )
        words = read_bill(viewer, *attempts)
        assert "Retries used 75 % of this run’s tokens" in words
        assert "Some prices are unknown, so shares are shares of the tokens." in words
        assert "Retries that led to a pass 1 300 — 75 %" in words

    def test_one_unknown_price_among_known_ones_is_enough(self, viewer: Client) -> None:
        attempts = (*PRICED[:2], make_attempt(2, 1, "failed", usage=usage(100, unpriced=1)), make_attempt(2, 2))
        words = read_bill(viewer, *attempts)
        assert "Retries used 50 % of this run’s tokens: 200 of 400; all of them led to a pass." in words
        assert "First attempts 2 200 ≥ $0.0100 50 %" in words

    def test_attempts_that_reported_nothing_are_told_of(self, viewer: Client) -> None:
        attempts = (
            make_attempt(1, 1, "invalid", usage=UNREPORTED_USAGE),
            make_attempt(1, 2, usage=usage(300, "0.03")),
        )
        words = read_bill(viewer, *attempts)
        assert "Retries cost 100 % of this run: $0.0300 of $0.0300; all of it led to a pass." in words
        assert "Attempts whose tokens were not reported count as nothing." in words

    def test_a_run_that_reported_nothing_at_all_says_so(self, viewer: Client) -> None:
        attempts = [make_attempt(1, number, "invalid", usage=UNREPORTED_USAGE) for number in (1, 2)]
        words = read_bill(viewer, *attempts, status=RunStatus.FAILED)
        assert "No tokens were reported." in words
        assert "First attempts 1 0 — —" in words


class TestWhatCounts:
    @pytest.mark.parametrize("outcome", ["interrupted", "errored"])
    def test_attempts_without_an_output_are_no_retries_and_the_bill_says_where_they_belong(
        self, viewer: Client, outcome: str
    ) -> None:
        interrupted = make_attempt(1, 1, outcome, usage=usage(50, "0.01"))
        assert read_bill(viewer, interrupted, make_attempt(1, 2, usage=usage(100, "0.01"))) == ""
        words = read_bill(
            viewer,
            interrupted,
            make_attempt(1, 2, "failed", usage=usage(100, "0.01")),
            make_attempt(1, 3, usage=usage(100, "0.02")),
        )
        assert "Retries cost 50 % of this run: $0.0200 of $0.0400" in words
        assert "they belong to the try that they were meant to be." in words

    def test_local_steps_cost_nothing(self, viewer: Client) -> None:
        spec = make_page_flow(make_step(1), make_step(2, compute="{'n': 1}"))
        attempts = (make_attempt(1, 1, usage=usage(9)), make_attempt(2, 1, "failed"), make_attempt(2, 2))
        assert read_bill(viewer, *attempts, spec=spec) == ""

    def test_while_a_step_may_still_pass_nothing_is_called_wasted(self, viewer: Client) -> None:
        attempts = [make_attempt(1, number, "failed", usage=usage(100, "0.01")) for number in (1, 2)]
        run = make_stored_run(*attempts, status=RunStatus.RUNNING)
        begin_attempt(run, 1, 3)
        words = read_words(get_page(viewer, run_address(run)))
        assert "$0.0100 of $0.0200; none of it led to a pass yet." in words
        assert "Retries, no pass yet" in words and "Retries that did not" not in words


def test_live_updates_bring_the_bill(viewer: Client) -> None:
    run = make_stored_run(*PRICED, status=RunStatus.FAILED)
    answer = viewer.get(f"{run_address(run)}live?revision=1&seen=1.1", headers={"HX-Request": "true"})
    assert '<div id="retry-bill" hx-swap-oob="true">' in answer.content.decode()
