"""Which attempts come open with the page of their run, and what stays in the database until somebody opens it."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.models import Run, RunStatus
from runs.pages.opened_attempts import ROOM, Openable, choose_open
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.pages.attempt_reading import find_attempts
from tests.runs.pages.history_builders import make_page_flow, make_stored_run
from tests.runs.pages.reading import count_queries, get_page, run_address

STEPS, ATTEMPTS = 20, 10


def make_openable(id: str, *, is_latest: bool = False, issues: int = 0, stored_bytes: int = 100) -> Openable:
    return Openable(id, is_latest, issues, stored_bytes)


class TestChoice:
    def test_the_latest_the_blocking_one_and_those_with_issues_are_open(self) -> None:
        attempts = [
            make_openable("s1a1", issues=1),
            make_openable("s1a2"),
            make_openable("s1a3"),
            make_openable("s1a4", is_latest=True),
        ]
        chosen = choose_open(attempts, blocking="s1a2")
        assert chosen.open == chosen.loaded == {"s1a1", "s1a2", "s1a4"}

    def test_attempts_with_issues_stay_closed_where_there_is_no_room(self) -> None:
        attempts = [make_openable(f"s1a{n}", issues=1, stored_bytes=ROOM // 3) for n in range(1, 9)]
        chosen = choose_open([*attempts, make_openable("s1a9", is_latest=True)])
        assert chosen.open == chosen.loaded == {"s1a7", "s1a8", "s1a9"}

    def test_a_small_one_still_finds_room_beside_a_large_one(self) -> None:
        attempts = [make_openable("s1a1", issues=1), make_openable("s1a2", issues=1, stored_bytes=ROOM)]
        assert choose_open([*attempts, make_openable("s1a3", is_latest=True)]).open == {"s1a1", "s1a3"}

    def test_a_latest_attempt_too_large_for_the_page_is_open_and_loaded_later(self) -> None:
        chosen = choose_open([make_openable("s1a1", is_latest=True, stored_bytes=ROOM)])
        assert (chosen.open, chosen.loaded) == ({"s1a1"}, set())

    def test_what_was_asked_for_comes_first(self) -> None:
        attempts = [
            make_openable("s1a1", stored_bytes=ROOM // 2),
            make_openable("s1a2", is_latest=True, stored_bytes=ROOM // 2),
        ]
        chosen = choose_open(attempts, asked={"s1a1"})
        assert (chosen.open, chosen.loaded) == ({"s1a1", "s1a2"}, {"s1a1"})


class TestLongRuns:
    @pytest.fixture
    def long_run(self) -> Run:
        """Twenty steps of ten attempts each, with outputs of 50 KB and an issue of each."""
        steps = [make_step(number, max_retries=ATTEMPTS - 1) for number in range(1, STEPS + 1)]
        output = {"rows": [{"id": n, "text": "a line of an output " * 3} for n in range(550)]}
        attempts = [
            make_attempt(step, number, "failed", output=output, issues=(make_issue("high", path="/rows/9/text"),))
            for step in range(1, STEPS + 1)
            for number in range(1, ATTEMPTS + 1)
        ]
        spec = make_page_flow(*steps)
        return make_stored_run(*attempts, spec=spec, status=RunStatus.FAILED, blocking_step=3, blocking_attempt=10)

    def test_two_hundred_long_outputs_make_a_page_of_bounded_size(self, viewer: Client, long_run: Run) -> None:
        assert count_queries(viewer, run_address(long_run)) == 7
        page = get_page(viewer, run_address(long_run))
        assert len(page) < 1_500_000
        assert page.count('class="line"') < 8_000
        found = find_attempts(page)
        assert len(found) == STEPS * ATTEMPTS
        assert [id for id, how in found.items() if how == "open"] == ["s3a10", "s19a10", "s20a10"]
        assert [id for id, how in found.items() if how != "closed"] == [f"s{n}a10" for n in range(1, STEPS + 1)]

    def test_outputs_of_closed_attempts_are_not_even_read(self, viewer: Client, long_run: Run) -> None:
        with CaptureQueriesContext(connection) as queries:
            viewer.get(run_address(long_run))
        begin = 'SELECT "runs_attempt"."id" AS "pk", "runs_attempt"."output"'
        (read,) = [query["sql"] for query in queries.captured_queries if query["sql"].startswith(begin)]
        assert len(set(re.findall("[0-9]+", read.partition(" IN (")[2]))) == 3
