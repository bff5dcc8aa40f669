"""A statement that is built once gives what its queryset would."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.db import models

from runs.models import DailySteps, Run
from runs.prepared_select import PreparedSelect
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_steps

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def select_runs(ids: Sequence[int]) -> models.QuerySet[Any, Any]:
    rows = Run.objects.filter(pk__in=ids).annotate(number=models.F("version__number")).order_by("-pk")
    return rows.values_list("pk", "number", "labels", "created_at", "cost", "is_simulated", "time_limit")


@pytest.fixture
def runs() -> list[Run]:
    version = make_version()
    return [make_run(version, labels=["a", "b"][:count], is_simulated=bool(count)) for count in range(3)]


def test_it_gives_what_the_queryset_gives_for_few_and_many_and_again(runs: list[Run]) -> None:
    prepared = PreparedSelect(select_runs, most=3)
    for chosen in (runs, runs[1:], runs[:1]):
        ids = [run.pk for run in chosen]
        assert prepared.fetch(ids) == list(select_runs(ids))
    assert prepared.fetch([runs[0].pk, 999_999]) == list(select_runs([runs[0].pk]))


def test_a_number_that_no_row_can_have_finds_none(runs: list[Run]) -> None:
    prepared = PreparedSelect(select_runs, most=3)
    assert prepared.fetch([10**20]) == []
    assert [row[0] for row in prepared.fetch([10**20, runs[0].pk])] == [runs[0].pk]


def test_for_nothing_it_asks_nothing(runs: list[Run], django_assert_num_queries: Any) -> None:
    prepared = PreparedSelect(select_runs, most=3)
    with django_assert_num_queries(0):
        assert prepared.fetch([]) == []
    with django_assert_num_queries(1):
        prepared.fetch([runs[0].pk])


def test_it_refuses_more_numbers_than_it_was_made_for(runs: list[Run]) -> None:
    with pytest.raises(ValueError, match="for 2 values, not for 3"):
        PreparedSelect(select_runs, most=2).fetch([run.pk for run in runs])


def test_without_numbers_it_is_one_fixed_question(runs: list[Run]) -> None:
    assert PreparedSelect(lambda _: Run.objects.order_by("pk").values_list("pk")).fetch() == [(run.pk,) for run in runs]


def select_steps(values: Sequence[Any]) -> models.QuerySet[Any, Any]:
    flow, first, last, version, model = values
    rows = DailySteps.objects.filter(flow=flow, day__range=(first, last), version=version, model=model)
    return rows.order_by("day").values_list("day", "model", "attempts")


def test_numbers_days_and_texts_keep_their_places() -> None:
    version, other = make_version(), make_version()
    days = [date(2026, 11, day) for day in (19, 20, 21, 22)]
    for day in days:
        add_steps(version, day, attempts=day.day)
        add_steps(version, day, attempts=99, model="another")
        add_steps(other, day, attempts=99)
    prepared = PreparedSelect(select_steps, kinds=(int, date, date, int, str))
    flow = version.flow_id
    for first, last in ((days[1], days[2]), (days[0], days[0]), (days[2], days[1])):
        values = (flow, first, last, version.pk, "gpt-5-mini")
        assert prepared.fetch(values) == list(select_steps(values))
    assert prepared.fetch((flow, days[1], days[2], version.pk, "gpt-5-mini")) == [
        (day, "gpt-5-mini", day.day) for day in days[1:3]
    ]


def test_each_of_several_kinds_has_to_be_there() -> None:
    version = make_version()
    prepared = PreparedSelect(select_steps, kinds=(int, date, date, int, str))
    day = date(2026, 11, 21)
    add_steps(version, day, attempts=1)
    with pytest.raises(ValueError, match="for 5 values, not for 4"):
        prepared.fetch((version.flow_id, day, day, version.pk))
    # Without the number that no row can have, the others would stand in for it.
    assert prepared.fetch((version.flow_id, day, day, 10**20, "gpt-5-mini")) == []


def test_json_and_times_are_read_as_the_fields_read_them() -> None:
    texts = ["", " ", "é😀\u2028", '"\\', "1"]
    values: list[Any] = [{}, [], {"a": [1.5, None, True, 10**40, -1e-9]}, *texts, 0, 12.0, False, {"deep": [[[{}]]]}]
    version = make_version()
    ids = [make_run(version, metadata={"it": value}, input=value).pk for value in values]
    began = datetime(2026, 11, 21, 12, 0, 0, 1, tzinfo=UTC)
    Run.objects.filter(pk=ids[0]).update(started_at=began)

    def select(_: Sequence[int]) -> models.QuerySet[Any, Any]:
        return Run.objects.order_by("pk").values_list("metadata", "input", "started_at", "created_at")

    rows = PreparedSelect(select).fetch()
    assert rows == list(select(()))
    assert [row[1] for row in rows] == values and rows[0][2] == began and rows[0][2].tzinfo is UTC
