"""The drain's way to the database: many writes at once, and none lost while it is away."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import DataError, InternalError, OperationalError

from flows.engine.execution import Progress, Start
from runs.group_commit import LeaseLostError, RunWrite, Written, commit_writes
from runs.models import Attempt, Run
from runs.recorder import RunRecorder
from runs.stored_history import load_history
from runs.worker import database_thread
from runs.worker.database_thread import DatabaseThread, WriteRefusedError
from tests.engine.builders import NOON, make_flow, make_step
from tests.runs.builders import claim_run, make_run, make_version

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]


@pytest.fixture
def writes() -> list[RunWrite]:
    """The first attempts of three claimed runs."""
    version = make_version(make_flow(make_step()))
    runs = [claim_run(make_run(version)) for _ in range(3)]
    start = Start(1, 1, {}, None, NOON)
    return [RunRecorder(run, version.flow_spec, load_history(run)).prepare(Progress(begun=start)) for run in runs]


class Commits:
    """Stands before ``commit_writes``: notes how many writes each transaction had, and fails where told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.errors: list[Exception] = []
        self.poison: set[int] = set()
        self.too_large: set[int] = set()
        monkeypatch.setattr(database_thread, "commit_writes", self)
        monkeypatch.setattr(database_thread, "RETRY_INTERVAL", 0.01)

    def __call__(self, writes: Sequence[RunWrite]) -> list[Written | LeaseLostError]:
        self.sizes.append(len(writes))
        if self.errors:
            raise self.errors.pop(0)
        if any(write.run_id in self.poison for write in writes):
            raise DataError("a value that the database refuses")
        if any(write.run_id in self.too_large for write in writes):
            raise OperationalError("out of memory")
        return commit_writes(writes)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


def store_together(writes: list[RunWrite]) -> list[Any]:
    """Store all while the thread is busy with something else; gives results and errors."""

    async def store() -> list[Any]:
        database = DatabaseThread()
        release = threading.Event()
        busy = asyncio.create_task(database.ask(release.wait))
        await asyncio.sleep(0)
        storing = [database.store(write) for write in writes]
        release.set()
        results = await asyncio.gather(*storing, return_exceptions=True)
        await busy
        await database.close()
        return results

    return asyncio.run(store())


def test_what_waits_together_is_stored_in_one_transaction(writes: list[RunWrite], commits: Commits) -> None:
    assert all(isinstance(result, Written) for result in store_together(writes))
    assert commits.sizes == [3]
    assert Attempt.objects.count() == 3


def test_a_lost_run_raises_and_the_others_are_stored(writes: list[RunWrite]) -> None:
    Run.objects.filter(pk=writes[1].run_id).update(owner="worker-2", epoch=7)
    results = store_together(writes)
    assert [type(result) for result in results] == [Written, LeaseLostError, Written]
    assert Attempt.objects.count() == 2


def test_one_write_that_can_not_be_stored_does_not_keep_the_others_from_it(
    writes: list[RunWrite], commits: Commits
) -> None:
    commits.poison = {writes[1].run_id}
    results = store_together(writes)
    assert [type(result) for result in results] == [Written, WriteRefusedError, Written]
    assert commits.sizes == [3, 1, 1, 1]


def test_nothing_is_lost_while_the_database_is_away_and_it_is_logged_once(
    writes: list[RunWrite], commits: Commits, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database_thread, "_is_database_up", lambda: False)
    commits.errors = [OperationalError("the server closed the connection")] * 5
    with caplog.at_level(logging.WARNING):
        assert all(isinstance(result, Written) for result in store_together(writes))
    assert commits.sizes == [3] * 6
    assert Attempt.objects.count() == 3
    assert [record.message.split(":")[0] for record in caplog.records if record.name == database_thread.__name__] == [
        "Attempts can't be stored now and are kept until they can",
        "Attempts are stored again, after 0 seconds.",
    ]


def test_a_write_that_fails_again_and_again_while_others_get_through_is_refused_in_the_end(
    writes: list[RunWrite], commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_thread, "RETRY_TIMEOUT", 0.0)
    commits.too_large = {writes[0].run_id}
    results = store_together(writes)
    assert [type(result) for result in results] == [WriteRefusedError, Written, Written]


@pytest.mark.parametrize(
    "error",
    [OperationalError("database or disk is full"), InternalError("cannot execute UPDATE in a read-only transaction")],
    ids=["disk full", "read-only"],
)
def test_while_nothing_gets_through_a_write_is_kept_for_as_long_as_it_takes(
    writes: list[RunWrite], commits: Commits, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The database answers questions all the while."""
    monkeypatch.setattr(database_thread, "RETRY_TIMEOUT", 0.0)
    commits.errors = [error] * 20
    (result,) = store_together(writes[:1])
    assert isinstance(result, Written)


def test_other_questions_are_answered_while_writes_wait_for_their_next_try(
    writes: list[RunWrite], commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_thread, "_is_database_up", lambda: False)
    commits.errors = [OperationalError("the server closed the connection")] * 1_000

    async def ask_meanwhile() -> int:
        database = DatabaseThread()
        storing = database.store(writes[0])
        count = await database.ask(Run.objects.count)
        assert not storing.done()
        commits.errors.clear()
        await storing
        await database.close()
        return count

    assert asyncio.run(ask_meanwhile()) == 3


def test_a_question_raises_where_it_was_asked() -> None:
    async def ask() -> None:
        database = DatabaseThread()
        with pytest.raises(Run.DoesNotExist):
            await database.ask(lambda: Run.objects.get(pk=0))
        await database.close()
        with pytest.raises(RuntimeError, match="after shutdown"):
            await database.ask(Run.objects.count)

    asyncio.run(ask())
