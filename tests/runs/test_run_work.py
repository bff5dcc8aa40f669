"""A run costs no more work than it did: statements, own Python calls and bytes for each attempt, and files on its way.

Counted and not timed, so that cost can't creep back unnoticed. The bounds have about a tenth of head-room; a change
that needs less lowers them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from flows.engine.spec import AuditSpec
from runs import rollup
from runs.models import Attempt, Run
from runs.queue import draining
from runs.rollup import count_ended_runs
from runs.submission import submit_run
from runs.worker import event_loop
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_version
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("postgres" in os.environ.get("DATABASE_URL", ""), reason="the work is the same, but its bytes"),
]

RUNS = 20
AUDIT = AuditSpec(name="Words", rule="[{'description': 'Dull.', 'severity': 'low'}]")
"""Finds something in every output, and lets it pass."""

MAX_STATEMENTS = 30
"""For a run of two attempts that is alone in its drain; in a busy one a dozen writes share a transaction."""
MAX_CALLS = 630
"""Of functions of ours, for each attempt: from the submission to the rollup."""
MAX_BYTES = 1_820
"""Of a run of two attempts, in rows: with statistics and search, without indexes."""
MAX_FILES = 57
"""Of ours, in which code runs from a submission to the stored result; fewer are wanted."""

ROOTS = tuple(f"{django_settings.BASE_DIR / name}{os.sep}" for name in ("flows", "runs", "toolflow_site"))


@dataclass
class Work:
    """What was counted while it was on."""

    is_on: bool = False
    calls: int = 0
    statements: int = 0
    files: set[str] = field(default_factory=set)

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not self.is_on:
            return
        code = frame.f_code
        if code.co_filename.startswith(ROOTS):
            self.calls += 1
            self.files.add(str(Path(code.co_filename).relative_to(django_settings.BASE_DIR)))
        elif code.co_name in ("execute", "executemany") and code.co_filename.endswith("django/db/backends/utils.py"):
            self.statements += threading.current_thread().name.startswith("database")


@pytest.fixture
def work() -> Iterator[Work]:
    """Counts in all threads that are started from now on."""
    work = Work()
    threading.setprofile(work.note)
    sys.setprofile(work.note)
    yield work
    sys.setprofile(None)
    threading.setprofile(None)
    draining.clear()


@pytest.fixture(autouse=True)
def _quiet_drain(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """What a drain does from time to time is no work of a run."""
    settings.TOOLFLOW_LEASE = 36_000
    monkeypatch.setattr(event_loop, "HEARTBEAT", 3_600.0)
    monkeypatch.setattr(event_loop, "TICK", 1.0)
    monkeypatch.setattr(rollup, "INTERVAL", 3_600.0)


def work_on(work: Work, count: int) -> None:
    """Have a warm drain take ``count`` runs from their submission to their end; count that."""
    flow = make_version(make_flow(make_step(1, audits=[AUDIT]), make_step(2, audits=[AUDIT]))).flow

    def submit(count: int) -> None:
        runs = [submit_run(flow=flow, input={"topic": "tea"}).pk for _ in range(count)]
        ended = Run.objects.filter(pk__in=runs, status="succeeded")
        wait_until(lambda: ended.count() == count, within=60, what="all runs have ended")

    def submit_all() -> None:
        try:
            submit(1)
            work.is_on = True
            submit(count)
        finally:
            work.is_on = False
            connection.close()
            draining.set()

    thread = threading.Thread(target=submit_all)
    thread.start()
    asyncio.run(event_loop.Drain().run())
    thread.join()


def count_bytes() -> int:
    """What the rows of runs hold."""
    total = 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL %'")
        tables = [name for (name,) in cursor.fetchall() if name.startswith("runs_")]
        for table in tables:
            cursor.execute(f'PRAGMA table_info("{table}")')
            sizes = " + ".join(f'IFNULL(LENGTH(CAST("{name}" AS BLOB)), 0)' for _, name, *_ in cursor.fetchall())
            cursor.execute(f'SELECT IFNULL(SUM({sizes}), 0) FROM "{table}"')  # noqa: S608  # names of the schema
            total += cursor.fetchone()[0]
    return total


def test_many_runs_at_once(provider: ModelServer, work: Work) -> None:
    before = count_bytes()
    work_on(work, RUNS)
    attempts = Attempt.objects.count()
    work.is_on = True
    assert count_ended_runs() == RUNS + 1
    work.is_on = False
    assert work.calls / (attempts - 2) <= MAX_CALLS
    assert (count_bytes() - before) / (RUNS + 1) <= MAX_BYTES


def test_one_run(provider: ModelServer, work: Work) -> None:
    work_on(work, 1)
    assert work.statements <= MAX_STATEMENTS
    assert len(work.files) <= MAX_FILES, sorted(work.files)
