"""A statement that is built once gives what its queryset would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import models

from runs.models import Run
from runs.prepared_select import PreparedSelect
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


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
