"""What load balancers and orchestrators are told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from runs import health
from runs.health import Readiness
from runs.models import Worker
from runs.models.run import in_future
from tests.runs.builders import make_worker

# What is looked at is looked at in threads, which see what is committed.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]

READY = (200, {"status": "ok"})
NOT_READY = (503, {"status": "unavailable"})


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH", 0.0)


@pytest.fixture
def hanging() -> Iterator[Callable[[], bool]]:
    """A look that hangs until the end of the test."""
    end = threading.Event()

    def look() -> bool:
        return end.wait(60)

    yield look
    end.set()


def ask(address: str = "/readyz", method: str = "GET") -> tuple[int, Any]:
    """Status and document, for a stranger."""
    answer = Client().generic(method, address)
    return answer.status_code, json.loads(answer.content) if answer.content else None


def test_a_process_that_answers_is_alive_whatever_else_is_not(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert ask("/healthz") == (200, {"status": "ok"})


def test_an_installation_with_a_worker_is_ready() -> None:
    make_worker()
    assert ask() == READY


def test_without_a_worker_that_was_heard_of_lately_it_is_not(caplog: pytest.LogCaptureFixture) -> None:
    assert ask() == NOT_READY
    make_worker()
    Worker.objects.update(heartbeat_at=in_future(-timedelta(seconds=40)))
    assert ask() == NOT_READY
    assert "Not ready: the worker is away. (nothing was heard of it lately)" in caplog.text


def test_strangers_are_not_told_which_part_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> bool:
        raise OperationalError("connection to db.internal failed for user toolflow")

    make_worker()
    parts = {"database": refuse, "broker": health.look_at_broker, "worker": health.look_at_worker}
    monkeypatch.setattr(health, "readiness", Readiness(parts))
    assert ask() == NOT_READY
    assert "Not ready: the database is away. (connection to db.internal failed for user toolflow)" in caplog.text


def test_a_part_that_hangs_keeps_nobody_waiting_and_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, hanging: Callable[[], bool]
) -> None:
    looks = []

    def look() -> bool:
        looks.append(threading.get_ident())
        return hanging()

    make_worker()
    monkeypatch.setattr(health, "PATIENCE", 0.5)
    parts = {"database": health.look_at_database, "broker": look, "worker": health.look_at_worker}
    monkeypatch.setattr(health, "readiness", Readiness(parts))
    for _ in range(3):
        assert ask() == NOT_READY
    assert len(looks) == 1


def test_many_who_ask_within_a_second_cost_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH", 3600.0)
    looks = []
    monkeypatch.setattr(health, "readiness", Readiness({"database": lambda: looks.append(1) or True}))  # type: ignore[func-returns-value]
    assert [ask()[0] for _ in range(5)] == [200] * 5
    assert len(looks) == 1


def test_redis_is_what_is_looked_at_where_it_is_the_broker(
    redis_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_q.conf.Conf.ORM", None)
    for url, is_there in ((redis_url, True), ("redis://127.0.0.1:1", False)):
        monkeypatch.setattr("django_q.conf.Conf.REDIS", url)
        monkeypatch.setattr(health, "readiness", Readiness({"broker": health.look_at_broker}))
        assert ask() == (READY if is_there else NOT_READY)


@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
def test_answers_are_for_nobody_s_cache_and_leave_no_cookie(address: str) -> None:
    answer = Client().get(address)
    assert answer["Content-Type"] == "application/json"
    assert "no-store" in answer["Cache-Control"]
    assert not answer.cookies
    assert "Cookie" not in answer.get("Vary", "")


@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
def test_a_head_request_says_the_same_without_words_and_others_are_refused(address: str) -> None:
    make_worker()
    assert ask(address, "HEAD") == (200, None)
    assert ask(address, "POST")[0] == 405


def test_what_is_away_is_told_once_in_the_log_and_not_with_each_probe(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_there = [False]

    def look() -> bool:
        if not is_there[0]:
            raise OperationalError("connection refused")
        return True

    monkeypatch.setattr(health, "readiness", Readiness({"database": look}))
    assert [ask()[0] for _ in range(3)] == [503] * 3
    is_there[0] = True
    assert [ask()[0] for _ in range(2)] == [200] * 2
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.levelname != "DEBUG"]
    assert [line for line in told if "database" in line[1] or line[0] == "ERROR"] == [
        ("WARNING", "Not ready: the database is away. (connection refused)"),
        ("WARNING", "The database is there again. Ready."),
    ]
