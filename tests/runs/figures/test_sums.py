"""What sums of counts come to: rates, means, percentiles and the parts of the bill."""

from __future__ import annotations

from decimal import Decimal

import pytest

from runs.figures.bill import split_bill, use_of_runs
from runs.figures.sums import RunSums, StepSums
from runs.statistics.durations import find_bucket


def test_rates_leave_cancelled_runs_out_and_are_unknown_of_nothing() -> None:
    sums = RunSums(runs=12, succeeded=6, failed=3, errored=1, cancelled=2, first_time=5)
    assert (sums.pass_rate, sums.first_rate) == (0.6, 0.5)
    assert (RunSums(runs=2, cancelled=2).pass_rate, StepSums().attempts_per_step) == (None, None)


def test_what_an_accepted_output_costs_is_what_all_runs_cost() -> None:
    sums = RunSums(runs=10, succeeded=4, cost=Decimal(2), total_tokens=1_000)
    assert (sums.cost_per_run, sums.cost_per_accepted) == (Decimal("0.2"), Decimal("0.5"))
    assert (sums.tokens_per_run, sums.tokens_per_accepted) == (100, 250)


def test_an_unknown_cost_is_no_zero() -> None:
    assert RunSums(runs=2, succeeded=1, unpriced=2).cost_per_run is None
    assert RunSums(runs=2, succeeded=1).cost_per_run == 0
    bill = split_bill(use_of_runs(RunSums(unpriced=3, first_tokens=80, wasted_retry_tokens=20)))
    assert [(part.kind, part.cost, part.share) for part in bill] == [
        ("first", None, 0.8),
        ("useful", 0, 0.0),
        ("wasted", None, 0.2),
    ]


def test_percentiles_are_those_of_all_days_together() -> None:
    fast, slow = ({str(find_bucket(seconds)): count} for seconds, count in ((2.0, 90), (60.0, 10)))
    sums = RunSums.join([RunSums(durations=fast), RunSums(durations=slow)])
    assert sums.median == pytest.approx(2.0, rel=0.03)
    assert sums.p95 == pytest.approx(60.0, rel=0.03)
