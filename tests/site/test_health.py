"""The probes of load balancers and orchestrators."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from runs import health
from runs.models import Worker
from runs.models.run import in_future
from tests.runs.builders import make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

READY = (200, {"status": "ok"})
NOT_READY = (503, {"status": "unavailable"})


@pytest.fixture(autouse=True)
def _check_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(health, "readiness", health.Readiness())


def ask(address: str = "/readyz", method: str = "GET") -> tuple[int, Any]:
    """Status and document, without signing in."""
    answer = Client().generic(method, address)
    assert "no-store" in answer["Cache-Control"] and not answer.cookies and "Cookie" not in answer.get("Vary", "")
    return answer.status_code, json.loads(answer.content) if answer.content else None


def test_without_a_recent_heartbeat_it_is_alive_and_not_ready(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert ask("/healthz") == READY
    for address in ("/healthz", "/readyz"):
        assert ask(address, "HEAD")[1] is None
        assert Client().post(address).status_code == 405
    assert ask() == NOT_READY
    make_worker()
    assert ask() == READY
    Worker.objects.update(heartbeat_at=in_future(-timedelta(seconds=40)))
    assert ask() == NOT_READY


def test_what_is_down_is_logged_once_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise OperationalError("connection to db.internal failed for user toolflow")

    make_worker()
    with monkeypatch.context() as patch:
        patch.setattr(Worker.objects, "alive", refuse)
        assert [ask() for _ in range(3)] == [NOT_READY] * 3
    assert [ask() for _ in range(2)] == [READY] * 2
    logged = [record for record in caplog.records if record.name == "runs.health" and record.levelname != "DEBUG"]
    assert [record.levelname for record in logged] == ["WARNING", "WARNING"]
    assert "db.internal" in logged[0].getMessage() and "Ready again" in logged[1].getMessage()


def test_a_check_that_hangs_does_not_hold_up_other_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, end = threading.Event(), threading.Event()

    def hang() -> str:
        has_begun.set()
        end.wait(60)
        return ""

    monkeypatch.setattr(health, "load_problem", hang)
    monkeypatch.setattr(health, "CHECK_TIMEOUT", 0.01)
    first = threading.Thread(target=ask)
    first.start()
    assert has_begun.wait(60)
    assert ask() == NOT_READY
    end.set()
    first.join()
    assert ask() == READY


def test_many_probes_within_a_second_cost_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH_SECONDS", 3600.0)
    checks: list[str] = []
    monkeypatch.setattr(health, "load_problem", lambda: checks.append("") or "")  # type: ignore[func-returns-value]
    assert [ask() for _ in range(5)] == [READY] * 5
    assert len(checks) == 1


def test_redis_is_checked_where_it_is_the_broker(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_worker()
    monkeypatch.setattr("django_q.conf.Conf.ORM", None)
    for url, expected in ((redis_url, READY), ("redis://127.0.0.1:1", NOT_READY)):
        monkeypatch.setattr("django_q.conf.Conf.REDIS", url)
        assert ask() == expected
