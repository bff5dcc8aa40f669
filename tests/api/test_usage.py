"""Reading over the API what a run used."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from flows.engine.history import TokenUsage
from runs.models import RunStatus
from tests.api.asking import Script
from tests.api.documents import SIGN_IN_QUERIES, read, settle
from tests.engine.builders import make_attempt, make_usage
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import begin_attempt, make_stored_run

pytestmark = pytest.mark.django_db


def test_the_parts_of_the_bill_add_up(viewer: Script) -> None:
    run = make_stored_run(
        make_attempt(1, 1, "failed", usage=make_usage(100, cost=Decimal("0.1")), model="gpt-5"),
        make_attempt(1, 2, usage=make_usage(200, cost=Decimal("0.2"))),
        make_attempt(2, 1, "interrupted", usage=TokenUsage(reported=False)),
        make_attempt(2, 2, "failed", usage=make_usage(30, cost=Decimal("0.03"))),
        make_attempt(2, 3, "failed", usage=make_usage(40, unpriced=1)),
        status=RunStatus.FAILED,
    )
    document = read(viewer, f"runs/{run.pk}/usage")
    assert [
        (it["step"], it["number"], it["outcome"], it["part"], it["usage"]["total"]) for it in document["attempts"]
    ] == [
        (1, 1, "failed", "first", 100),
        (1, 2, "passed", "useful", 200),
        (2, 1, "interrupted", "first", 0),
        (2, 2, "failed", "first", 30),
        (2, 3, "failed", "wasted", 40),
    ]
    sums = {name: (usage["total"], usage["cost"]) for name, usage in document["parts"].items()}
    assert sums == {"first": (130, "0.13000000"), "useful": (200, "0.20000000"), "wasted": (40, None)}
    assert [(step["index"], step["usage"]["total"]) for step in document["steps"]] == [(1, 300), (2, 70)]
    total = document["total"]
    assert (total["total"], total["cost"], total["unpriced"], total["reported"]) == (370, "0.33000000", 1, False)
    first = document["attempts"][0]
    assert first["model"] == "gpt-5"
    assert read(viewer, first["url"].removeprefix("http://testserver"))["usage"] == first["usage"]


def test_it_is_the_total_of_the_run(viewer: Script) -> None:
    run = make_stored_run(make_attempt(1, 1, usage=make_usage(90, cost=Decimal("0.00000001"))))
    assert read(viewer, f"runs/{run.pk}/usage")["total"] == read(viewer, f"runs/{run.pk}")["usage"]


def test_an_attempt_that_runs_has_used_nothing_yet(viewer: Script) -> None:
    run = make_stored_run(make_attempt(1, 1, "failed", usage=make_usage(90)), status=RunStatus.RUNNING)
    begin_attempt(run, 1, 2)
    document = read(viewer, f"runs/{run.pk}/usage")
    running = document["attempts"][1]
    assert (running["outcome"], running["part"], running["usage"]) == (None, "wasted", None)
    assert document["total"]["total"] == 90


def test_a_run_that_has_not_begun_used_nothing(viewer: Script) -> None:
    document = read(viewer, f"runs/{make_run().pk}/usage")
    assert (document["attempts"], document["steps"], document["total"]["cost"]) == ([], [], None)


def test_numbers_of_queries_don_t_grow(viewer: Script, django_assert_num_queries: Any) -> None:
    few = make_stored_run(make_attempt(1, 1, "failed"))
    many = make_stored_run(*(make_attempt(1, number, "failed") for number in range(1, 30)))
    settle(viewer)
    for run in (few, many):
        # Whether there is the run, and what its attempts used.
        with django_assert_num_queries(SIGN_IN_QUERIES + 2):
            read(viewer, f"runs/{run.pk}/usage")
