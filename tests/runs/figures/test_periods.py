"""Which slot of a period a day belongs to, and what is summed up in it."""

from __future__ import annotations

from datetime import date

from runs.figures.periods import WEEK, Period, last_days, sum_by_slot, sum_steps_by_slot
from runs.figures.sums import RunSums, StepSums

TODAY = date(2026, 5, 13)  # a Wednesday


def test_the_last_days_end_today() -> None:
    period = last_days(15, TODAY)
    assert (period.first, period.last, len(period.slots)) == (date(2026, 4, 29), TODAY, 15)


def test_days_of_a_week_share_a_slot_and_others_have_none() -> None:
    period = Period(date(2026, 5, 4), TODAY, WEEK)
    found = [period.find_slot(date(2026, 5, day)) for day in (3, 4, 10, 11, 13, 14)]
    assert found == [None, 0, 0, 1, 1, None]


def test_a_slot_in_which_nothing_was_counted_is_none_and_not_zero() -> None:
    period = last_days(3, TODAY)
    runs = sum_by_slot(
        period, [(TODAY, RunSums(runs=2)), (TODAY, RunSums(runs=3)), (date(2026, 1, 1), RunSums(runs=9))]
    )
    assert [None if sums is None else sums.runs for sums in runs] == [None, None, 5]
    steps = sum_steps_by_slot(period, [(period.first, StepSums(begun=1)), (period.first, StepSums(begun=1))])
    assert [None if sums is None else sums.begun for sums in steps] == [2, None, None]


def test_durations_are_summed_up_where_they_are_asked_for() -> None:
    days = [(TODAY, RunSums(durations={"7": 1})), (TODAY, RunSums(durations={"7": 2, "9": 1}))]
    (without,) = sum_by_slot(last_days(1, TODAY), days)
    (with_durations,) = sum_by_slot(last_days(1, TODAY), days, with_durations=True)
    assert without is not None
    assert with_durations is not None
    assert (without.durations, with_durations.durations) == ({}, {"7": 3, "9": 1})
