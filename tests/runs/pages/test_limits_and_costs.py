"""What pages show of that which holds a run back, and of what its retries cost."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from flows.engine.history import UNREPORTED_USAGE, Attempt
from runs.models import EndReason, Priority, RunStatus
from runs.models.run import in_future
from tests.engine.builders import NOON, make_attempt, make_usage
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import attempt_address, get_page, read_plain, run_address

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def test_a_run_that_waits_says_for_what_and_until_when(viewer: Client, settings: Any) -> None:
    settings.TOOLFLOW_PLUGIN_WAIT = 3600
    run = make_run(waiting_since=NOON, waiting_for="Waits for the plug-in x.", created_at=NOON)
    words = read_plain(viewer, run_address(run))
    assert "Waits for the plug-in x. If none comes by" in words and "13:00:00 UTC , the run ends as errored." in words
    sentence = "Waiting 40 seconds before attempt 2 of step 1: timeout."
    run = make_run(available_at=in_future(MINUTE), waiting_for=sentence)
    assert f"{sentence} It continues at" in read_plain(viewer, run_address(run))
    assert f'title="{sentence}"' in get_page(viewer, "/runs/")
    # A wait that is over is not told any more.
    run = make_run(available_at=in_future(-MINUTE), waiting_for=sentence)
    assert sentence not in get_page(viewer, run_address(run))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        (
            {
                "priority": Priority.HIGH,
                "token_budget": 20_000,
                "total_tokens": 12_300,
                "cost_budget": Decimal("0.5"),
                "cost": Decimal("0.0124"),
                "time_limit": 10 * MINUTE,
            },
            "High priority 12 300 of 20 000 tokens $0.0124 of $0.50 Time limit 10 min",
        ),
        ({"cost_budget": Decimal("0.0015"), "attempt_count": 0}, "$0.00 of $0.0015"),
        # What was used at an unknown price stays unknown.
        ({"cost_budget": Decimal(2), "unpriced_count": 1}, "— of $2"),
        ({"time_limit": 2 * MINUTE, "deadline_at": NOON, "status": RunStatus.RUNNING}, "Time limit 2 min: until"),
    ],
    ids=["all", "nothing used", "unpriced", "deadline"],
)
def test_budgets_are_shown_with_what_is_used_of_them(viewer: Client, fields: dict[str, Any], shown: str) -> None:
    assert shown in read_plain(viewer, run_address(make_stored_run(make_attempt(1, 1), **fields)))


@pytest.mark.parametrize("reason", [EndReason.BUDGET_EXCEEDED, EndReason.DEADLINE_EXCEEDED])
def test_a_run_that_met_its_limit_leads_to_the_attempt_that_did_it(viewer: Client, reason: EndReason) -> None:
    run = make_stored_run(
        make_attempt(1, 1),
        make_attempt(2, 1, "failed"),
        status=RunStatus.ERRORED,
        end_reason=reason,
        end_sentence="The run took more than its limit.",
        blocking_step=2,
        blocking_attempt=1,
    )
    page = get_page(viewer, run_address(run))
    assert f'href="{attempt_address(run, 2, 1)}"' in page.partition('<p class="verdict">')[2].partition("</p>")[0]


def make_costly(step: int, number: int, outcome: str, tokens: int, cost: str | None, **usage: Any) -> Attempt:
    price = None if cost is None else Decimal(cost)
    return make_attempt(step, number, outcome, usage=make_usage(tokens, cost=price, **usage))


PRICED = (
    make_costly(1, 1, "failed", 100, "0.01"),
    make_costly(1, 2, "passed", 200, "0.02"),
    make_costly(2, 1, "failed", 100, "0.01"),
    make_costly(2, 2, "failed", 100, "0.01"),
)


def read_bill(viewer: Client, *attempts: Attempt, **fields: Any) -> str:
    """What the page of a run says of its retries; empty where it says nothing."""
    run = make_stored_run(*attempts, **fields)
    words = read_plain(viewer, run_address(run))
    begin = words.find("Retries cost")
    return words[begin if begin >= 0 else words.find("Retries used") :] if "Retries that" in words else ""


class TestRetryBill:
    def test_it_says_what_retries_cost_and_how_much_of_it_led_to_a_pass(self, viewer: Client) -> None:
        words = read_bill(viewer, *PRICED, status=RunStatus.FAILED)
        assert "Retries cost 60 % of this run: $0.0300 of $0.0500; $0.0200 of it led to a pass." in words
        assert (
            "Part Attempts Tokens Cost Share First attempts 2 200 $0.0200 40 % "
            "Retries that led to a pass 1 200 $0.0200 40 % Retries that did not 1 100 $0.0100 20 %"
        ) in words
        assert "all of it led to a pass." in read_bill(viewer, *PRICED[:2])
        assert "none of it led to a pass." in read_bill(viewer, *PRICED[2:], status=RunStatus.FAILED)

    @pytest.mark.parametrize(
        ("attempts", "words"),
        [
            (
                (make_costly(1, 1, "failed", 100, None), make_costly(1, 2, "passed", 300, None)),
                "Retries used 75 % of this run’s tokens: 300 of 400; all of them led to a pass.",
            ),
            # One unknown price among known ones is enough.
            (
                (*PRICED[:2], make_costly(2, 1, "failed", 100, None, unpriced=1), make_attempt(2, 2)),
                "First attempts 2 200 ≥ $0.0100 50 %",
            ),
            (
                (make_attempt(1, 1, "invalid", usage=UNREPORTED_USAGE), make_costly(1, 2, "passed", 300, "0.03")),
                "Attempts whose tokens were not reported count as nothing.",
            ),
        ],
        ids=["simulated", "unpriced", "unreported"],
    )
    def test_shares_are_those_of_tokens_where_not_all_prices_are_known(
        self, viewer: Client, attempts: tuple[Attempt, ...], words: str
    ) -> None:
        assert words in read_bill(viewer, *attempts)


def test_the_list_marks_runs_of_high_and_low_priority(viewer: Client) -> None:
    for priority in Priority:
        make_run(priority=priority)
    words = read_plain(viewer, "/runs/")
    counts = [words.count(f"{name} priority Queued") for name in ("High", "Low", "Normal")]
    assert counts == [1, 1, 0]
