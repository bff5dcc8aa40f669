"""A command asks again what it may ask again: under one key nothing is done twice, and it doesn't ask for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from runs.client.server import TRIES, TRIES_IN_USE
from runs.models import Run
from tests.client.conftest import Terminal
from tests.client.stand_in import NO_RUNS, Reply, StandIn, answer_json, answer_problem
from tests.client.test_runs import INPUT, make_local
from tests.runs.builders import make_run, make_version

START = ("run", "colour-theme", "--input", INPUT)
STARTED = answer_json(
    {"id": 7, "flow": "colour-theme", "version": 1, "status": "queued", "page_url": "http://127.0.0.1/runs/7/"}, 202
)
IN_USE = answer_problem(409, "idempotency-key-in-use", Retry_After="0")


@pytest.fixture
def forgetful(terminal: Terminal, server: str) -> Iterator[Terminal]:
    """The terminal of somebody between whom and the server the first answer gets lost."""
    between = StandIn([None], behind=server)
    terminal.environment["TOOLFLOW_URL"] = between.url
    terminal.asked = between.asked
    yield terminal
    between.close()


def test_an_answer_that_gets_lost_makes_no_second_run(forgetful: Terminal) -> None:
    make_version(make_local())
    done = forgetful.run(*START, "--json")
    run = Run.objects.get()
    assert (done.status, done.json["id"]) == (0, run.pk)
    first, second = forgetful.asked
    assert first.key and first == second


def test_a_run_that_was_cancelled_though_the_answer_got_lost_is_cancelled(forgetful: Terminal) -> None:
    run = make_run()
    done = forgetful.run("cancel", str(run.pk))
    assert (done.status, done.out) == (0, f"Run {run.pk} is cancelled.\n")
    assert len(forgetful.asked) == 2


@pytest.mark.parametrize(
    "busy", [IN_USE, *(answer_problem(status, Retry_After="0") for status in (500, 502, 503, 504))]
)
def test_what_is_under_way_or_went_wrong_is_asked_again_under_its_key(
    stand_in: Callable[..., Terminal], busy: Reply
) -> None:
    terminal = stand_in(busy, busy, STARTED)
    done = terminal.run(*START)
    assert (done.status, done.out) == (0, "Run 7 of “colour-theme”, version 1: queued\n")
    (asked,) = set(terminal.asked)
    assert (len(terminal.asked), bool(asked.key)) == (3, True)


@pytest.mark.parametrize(
    ("busy", "count"), [(answer_problem(500, Retry_After="0"), TRIES), (IN_USE, TRIES_IN_USE)], ids=["500", "in-use"]
)
def test_it_is_not_asked_for_ever(stand_in: Callable[..., Terminal], busy: Reply, count: int) -> None:
    terminal = stand_in(*[busy] * (count + 5))
    done = terminal.run(*START)
    assert (done.status, done.err) == (3, f"toolflow: This is {busy[0]}.\n")
    assert len(terminal.asked) == count


@pytest.mark.parametrize("refusal", [answer_problem(409, "idempotency-key-reused"), answer_problem(409, "archived")])
def test_another_conflict_is_told_at_once(stand_in: Callable[..., Terminal], refusal: Reply) -> None:
    terminal = stand_in(refusal, STARTED)
    assert (terminal.run(*START).status, len(terminal.asked)) == (3, 1)


def test_what_has_no_key_is_not_asked_again_where_the_server_fails(stand_in: Callable[..., Terminal]) -> None:
    terminal = stand_in(answer_problem(500), answer_problem(500))
    (terminal.folder / "flow.yaml").write_text("name: a\n", encoding="utf-8")
    assert (terminal.run("flows", "push", "--check", "flow.yaml").status, len(terminal.asked)) == (3, 1)


def test_the_next_try_may_be_at_a_moment_that_the_server_names(stand_in: Callable[..., Terminal]) -> None:
    past, later = (format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True) for hours in (-1, 1))
    terminal = stand_in(answer_problem(503, Retry_After=past), NO_RUNS)
    assert (terminal.run("runs").status, len(terminal.asked)) == (0, 2)
    # That is too long to wait for.
    terminal = stand_in(answer_problem(503, Retry_After=later), NO_RUNS)
    assert (terminal.run("runs").status, len(terminal.asked)) == (3, 1)
