"""Parts of the worker's processes, where a whole worker could not be brought to show what is asked."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import redis
from django.core.management import CommandError
from django.db import OperationalError
from django_q.brokers.redis_broker import Redis as RedisBroker
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from redis.backoff import NoBackoff
from redis.retry import Retry

from runs import queue
from runs.logs import events
from runs.management.commands import run_worker
from runs.queue import StopFlag
from runs.queue_processes import dispatcher, process_tree, supervisor, worker_process
from runs.worker.tasks import hold_slot
from tests.runs.gateway import Gateway


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (events, process_tree):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def draining(monkeypatch: pytest.MonkeyPatch) -> StopFlag:
    flag = StopFlag()
    for module in (supervisor, process_tree, worker_process):
        monkeypatch.setattr(module, "draining", flag)
    return flag


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[worker_process.TaskChannel]:
    """The channel of everything that makes one. In production it lives as long as its process."""
    channel = worker_process.TaskChannel()
    monkeypatch.setattr(supervisor, "TaskChannel", lambda: channel)
    yield channel
    channel._reader.close()
    channel._writer.close()


class TestTaskChannel:
    def test_every_task_comes_out_once_however_many_wait_for_it(
        self, channel: worker_process.TaskChannel, draining: StopFlag
    ) -> None:
        taken: list[Any] = []
        arrivals = threading.Semaphore(0)

        def take_all() -> None:
            for task in iter(channel.get, worker_process.STOP):
                taken.append(task)
                arrivals.release()

        readers = [threading.Thread(target=take_all) for _ in range(4)]
        for reader in readers:
            reader.start()
        for number in range(200):
            channel.put({"name": str(number)})
        assert all(arrivals.acquire(timeout=30) for _ in range(200))
        draining.set()
        for reader in readers:
            reader.join()
        assert sorted(int(task["name"]) for task in taken) == list(range(200))

    def test_a_task_that_is_too_large_is_refused_and_named(self, channel: worker_process.TaskChannel) -> None:
        with pytest.raises(ValueError, match="The task “giant” takes"):
            channel.put({"name": "giant", "args": "x" * worker_process.MAX_TASK_BYTES})


class TestOutage:
    def test_it_is_told_once_then_every_minute_and_when_it_is_over(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        subject = events.Outage("Redis")
        for _ in range(125):
            subject.note(OSError("Connection\n\trefused."))
            clock.now += 1
        assert subject.end()
        assert not subject.end()
        assert [record.getMessage() for record in caplog.records] == [
            "Redis can't be reached; trying again until it answers. (Connection refused.)",
            "Redis has been away for 60 seconds. (Connection refused.)",
            "Redis has been away for 120 seconds. (Connection refused.)",
            "Redis answers again, after 125 seconds.",
        ]


class TestRefusals:
    """What PostgreSQL says to a connection that it doesn't make, behind “connection to server at … failed: ”."""

    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            ('FATAL:  password authentication failed for user "toolflow"', True),
            ('FATAL:  role "toolflow" does not exist', True),
            ('FATAL:  role "toolflow" is not permitted to log in', True),
            ('FATAL:  database "toolflow" does not exist', True),
            ('FATAL:  no pg_hba.conf entry for host "10.0.0.7", user "toolflow", no encryption', True),
            ("fe_sendauth: no password supplied", True),
            ("Connection refused", False),
            ("FATAL:  the database system is starting up", False),
            ("FATAL:  sorry, too many clients already", False),
            ("[Errno -2] Name or service not known", False),
            ("connection timeout expired", False),
        ],
    )
    def test_waiting_helps_only_where_the_server_is_away(self, message: str, expected: bool) -> None:
        assert run_worker.is_refusal(OperationalError(f"connection failed: {message}")) is expected

    def test_a_code_tells_more_than_words_in_any_language(self) -> None:
        for code, expected in [("28P01", True), ("3D000", True), ("57P03", False), ("53300", False)]:
            error = OperationalError("FATAL:  Passwort-Authentifizierung fehlgeschlagen")
            error.__cause__ = psycopg.errors.lookup(code)()
            assert run_worker.is_refusal(error) is expected


@pytest.mark.django_db
def test_a_broker_that_is_away_is_told_once_and_when_it_is_back(
    redis_url: str,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[Any]],
) -> None:
    def wake() -> None:
        with django_capture_on_commit_callbacks(execute=True):
            queue.wake_worker()

    settings.Q_CLUSTER = {"name": "test", "redis": {}}
    monkeypatch.setattr(queue, "_outage", events.Outage("The queue's broker"))
    with Gateway(redis_url) as gateway:
        broker = RedisBroker(f"test-{uuid4().hex}")
        broker.connection = redis.Redis(port=gateway.port, db=11, retry=Retry(NoBackoff(), 0))
        monkeypatch.setattr(queue, "get_broker", lambda: broker)
        for _ in range(2):
            for _ in range(3):
                wake()
            gateway.open()
            for _ in range(3):
                wake()
            assert broker.queue_size() == 1
            gateway.close()
        gateway.open()
        broker.delete_queue()
        broker.connection.close()
    told = [record.getMessage() for record in caplog.records if record.name == events.__name__]
    away, back = "The queue's broker can't be reached;", "The queue's broker answers again,"
    assert [message.startswith(away) for message in told] == [True, False, True, False]
    assert [message.startswith(back) for message in told] == [False, True, False, True]


class TestStopSignals:
    @pytest.fixture(autouse=True)
    def _own_handlers(self, draining: StopFlag, monkeypatch: pytest.MonkeyPatch) -> Any:
        self.draining = draining
        self.force_quit = StopFlag()
        monkeypatch.setattr(process_tree, "force_quit", self.force_quit)
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_the_same_signal_that_arrives_twice_is_one(self, clock: Clock) -> None:
        process_tree.StopSignals()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert (self.draining.is_set(), self.force_quit.is_set()) == (True, False)
        clock.now += 1
        signal.raise_signal(signal.SIGINT)
        assert self.force_quit.is_set()

    def test_a_worker_started_with_nohup_outlives_its_terminal(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process_tree.StopSignals()
        signal.raise_signal(signal.SIGHUP)
        assert not self.draining.is_set()


def test_a_system_that_starts_no_process_lets_the_others_end_in_order(
    channel: worker_process.TaskChannel,
    draining: StopFlag,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fork(self: Any, *args: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(supervisor.Supervisor, "_fork", fork)
    assert supervisor.Supervisor().run() == 1
    assert draining.is_set()
    assert "The system starts no more processes" in caplog.text and "Resource temporarily unavailable" in caplog.text


@pytest.mark.django_db
def test_a_wake_up_is_acknowledged_when_it_is_fetched_and_starts_a_drain_only_in_a_free_slot(
    channel: worker_process.TaskChannel, settings: Any, tmp_path: Path
) -> None:
    settings.TOOLFLOW_DATA_DIR = tmp_path
    fetching = dispatcher.Dispatcher(channel, recover=lambda: None)
    queue.wake_worker()
    fetching._dispatch_next()
    assert not OrmQ.objects.exists()
    task = channel.get()
    assert isinstance(task, dict) and (task["func"], task["timeout"]) == (queue.DRAIN_TASK, -1)

    with hold_slot():
        queue.wake_worker()
        fetching._dispatch_next()
    assert not OrmQ.objects.exists() and channel.is_empty()


@pytest.mark.django_db
def test_a_message_signed_with_another_key_is_dropped_and_the_next_one_is_done(
    channel: worker_process.TaskChannel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    packages = [f"{SignedPackage.dumps({'name': 'forged'})}x", SignedPackage.dumps({"name": "ours"})]
    dropped: list[object] = []

    class Broker:
        def dequeue(self) -> list[tuple[int, str]]:
            return list(enumerate(packages))

        def fail(self, ack_id: object) -> None:
            dropped.append(ack_id)

    monkeypatch.setattr(dispatcher, "get_broker", Broker)
    with caplog.at_level(logging.ERROR):
        dispatcher.Dispatcher(channel, recover=lambda: None)._dispatch_next()
    task = channel.get()
    assert isinstance(task, dict) and (task["name"], task["ack_id"]) == ("ours", 1)
    assert channel.is_empty() and dropped == [0]
    assert "the same TOOLFLOW_SECRET_KEY" in caplog.text


def test_a_worker_refuses_to_start_elsewhere_than_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(CommandError, match="Workers run on Linux only"):
        run_worker.Command().handle()
