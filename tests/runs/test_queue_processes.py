"""Parts of the worker's processes, where a whole worker could not be brought to show what is asked."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError
from django_q.signing import SignedPackage

from runs import queue
from runs.management.commands import run_worker
from runs.observability import log_events
from runs.queue import StopFlag
from runs.queue_processes import dispatcher, process_tree, supervisor, worker_process


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


@pytest.mark.django_db
def test_a_broker_that_is_away_is_reported_once_and_when_it_is_back(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[Any]],
) -> None:
    answers = iter((False, False, True, True, False))

    def publish(*_: str) -> None:
        if not next(answers):
            raise ConnectionError("refused")

    settings.Q_CLUSTER = {"name": "test", "redis": {}}
    broker = SimpleNamespace(connection=SimpleNamespace(publish=publish), queue_size=lambda: 1)
    monkeypatch.setattr(queue, "_outage", log_events.Outage("The queue's broker"))
    monkeypatch.setattr(queue, "get_broker", lambda: broker)
    for _ in range(5):
        with django_capture_on_commit_callbacks(execute=True):
            queue.wake_worker()
    reported = [record.getMessage() for record in caplog.records if record.name == log_events.__name__]
    assert ["can't be reached" in message for message in reported] == [True, False, True]
    assert "answers again" in reported[1]


def test_a_worker_started_with_nohup_outlives_its_terminal(draining: StopFlag) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process_tree.StopSignals()
        signal.raise_signal(signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not draining.is_set()


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
    assert "Resource temporarily unavailable" in caplog.text


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
    assert "TOOLFLOW_SECRET_KEY" in caplog.text


def test_a_worker_refuses_to_start_elsewhere_than_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(CommandError, match="Workers run on Linux only"):
        run_worker.Command().handle()
