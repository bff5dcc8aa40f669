"""What pages show of that which holds a run back: waits, priority, budgets, time limits."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from runs.models import EndReason, Priority, RunStatus
from runs.models.run import in_future
from tests.engine.builders import NOON, make_attempt
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import get_page, read_words, run_address

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


class TestWaiting:
    def test_a_run_that_waits_for_a_plug_in_says_which_and_when_it_gives_up(
        self, viewer: Client, settings: Any
    ) -> None:
        settings.TOOLFLOW_PLUGIN_WAIT = 3600
        run = make_run(waiting_since=NOON, waiting_for="Waits for a worker that has the plug-in x.", created_at=NOON)
        words = read_words(get_page(viewer, run_address(run)))
        noon = f"{NOON.day} {NOON:%b %Y}"
        assert (
            f"Created {noon}, 12:00:00 UTC . Waits for a worker that has the plug-in x. "
            f"If none comes by {noon}, 13:00:00 UTC , the run ends as errored." in words
        )

    def test_a_run_that_waits_for_a_limit_says_when_it_goes_on(self, viewer: Client) -> None:
        run = make_run(available_at=in_future(MINUTE), waiting_for="Waits for the limit of 60 requests a minute.")
        words = read_words(get_page(viewer, run_address(run)))
        assert "Waits for the limit of 60 requests a minute. It goes on at" in words

    def test_a_run_that_waits_to_repeat_a_call_says_why_on_its_page_and_in_the_list(self, viewer: Client) -> None:
        sentence = "Waiting 40 seconds before attempt 2 of step 1. The call before it brought no answer: timeout."
        run = make_stored_run(
            make_attempt(1, 1, "errored"),
            status=RunStatus.QUEUED,
            available_at=in_future(MINUTE),
            waiting_for=sentence,
        )
        assert f"{sentence} It goes on at" in read_words(get_page(viewer, run_address(run)))
        assert f'title="{sentence}"' in get_page(viewer, "/runs/")

    def test_a_wait_that_is_over_is_not_told_any_more(self, viewer: Client) -> None:
        run = make_run(available_at=Now(), waiting_for="Waits for the limit of 60 requests a minute.")
        words = read_words(get_page(viewer, run_address(run)))
        assert "Waiting for a worker since" in words
        assert "requests a minute" not in words


class TestLimits:
    def test_budgets_are_shown_with_what_is_used_of_them(self, viewer: Client) -> None:
        run = make_stored_run(
            make_attempt(1, 1),
            priority=Priority.HIGH,
            token_budget=20_000,
            total_tokens=12_300,
            cost_budget=Decimal("0.50000000"),
            cost=Decimal("0.0124"),
            time_limit=10 * MINUTE,
        )
        words = read_words(get_page(viewer, run_address(run)))
        assert "High priority 12 300 of 20 000 tokens $0.0124 of $0.50 Time limit 10 min" in words

    def test_a_run_that_used_nothing_has_used_no_money(self, viewer: Client) -> None:
        run = make_run(cost_budget=Decimal("0.0015"))
        assert "$0.00 of $0.0015" in read_words(get_page(viewer, run_address(run)))

    def test_what_was_used_at_an_unknown_price_stays_unknown(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), cost_budget=Decimal(2), unpriced_count=1)
        assert "— of $2" in read_words(get_page(viewer, run_address(run)))

    def test_a_run_under_way_shows_until_when_it_may_take(self, viewer: Client) -> None:
        run = make_stored_run(status=RunStatus.RUNNING, time_limit=2 * MINUTE, deadline_at=NOON)
        words = read_words(get_page(viewer, run_address(run)))
        assert f"Time limit 2 min: until {NOON.day} {NOON:%b %Y}, 12:00:00 UTC" in words

    def test_a_plain_run_shows_none_of_it(self, viewer: Client) -> None:
        page = get_page(viewer, run_address(make_stored_run(make_attempt(1, 1))))
        assert 'class="run-limits"' not in page and "priority" not in page

    def test_the_list_marks_runs_of_high_and_low_priority(self, viewer: Client) -> None:
        for priority in Priority:
            make_run(priority=priority)
        words = read_words(get_page(viewer, "/runs/"))
        assert words.count("High priority Queued") == 1
        assert words.count("Low priority Queued") == 1
        assert "Normal priority" not in words


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            EndReason.BUDGET_EXCEEDED,
            "The run stopped before step 2 “Step 2”, attempt 2: budget of 20,000 tokens used (21,340).",
        ),
        (EndReason.DEADLINE_EXCEEDED, "The run took longer than its time limit of 600 seconds."),
    ],
)
def test_a_run_that_met_its_limit_is_errored_with_a_sentence_and_the_attempt_that_did_it(
    viewer: Client, reason: EndReason, sentence: str
) -> None:
    run = make_stored_run(
        make_attempt(1, 1),
        make_attempt(2, 1, "failed"),
        status=RunStatus.ERRORED,
        end_reason=reason,
        end_sentence=sentence,
        blocking_step=2,
        blocking_attempt=1,
    )
    page = get_page(viewer, run_address(run))
    assert f'{sentence} See <a href="#s2a1">step 2, attempt 1</a>.' in page
    assert "chip tone-errored" in page
