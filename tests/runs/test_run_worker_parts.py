"""Parts of the worker's processes, where a whole worker could not be brought to show what is asked."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django_q.signing import SignedPackage

from runs.queue_processes import guard, outage, pusher, stop_signals, task_channel, worker_process
from runs.worker.stop_flags import StopFlag


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (outage, stop_signals, worker_process):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> StopFlag:
    flag = StopFlag()
    for module in (guard, stop_signals, task_channel):
        monkeypatch.setattr(module, "stopping", flag)
    return flag


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[task_channel.TaskChannel]:
    """The channel of everything that makes one. In production it lives as long as its process."""
    channel = task_channel.TaskChannel()
    monkeypatch.setattr(guard, "TaskChannel", lambda: channel)
    yield channel
    channel._reader.close()
    channel._writer.close()


class TestTaskChannel:
    def test_every_task_comes_out_once_however_many_wait_for_it(
        self, channel: task_channel.TaskChannel, stopping: StopFlag
    ) -> None:
        taken: list[Any] = []
        arrivals = threading.Semaphore(0)

        def take_all() -> None:
            for task in iter(channel.get, task_channel.STOP):
                taken.append(task)
                arrivals.release()

        readers = [threading.Thread(target=take_all) for _ in range(4)]
        for reader in readers:
            reader.start()
        for number in range(200):
            channel.put({"name": str(number)})
        assert all(arrivals.acquire(timeout=30) for _ in range(200))
        stopping.set()
        for reader in readers:
            reader.join()
        assert sorted(int(task["name"]) for task in taken) == list(range(200))

    def test_a_task_that_is_too_large_is_refused_and_named(self, channel: task_channel.TaskChannel) -> None:
        with pytest.raises(ValueError, match="The task “giant” takes"):
            channel.put({"name": "giant", "args": "x" * task_channel.MAX_BYTES})


class TestTaskTimer:
    def test_it_counts_down_while_a_task_runs_and_ends_at_overdue(self, clock: Clock) -> None:
        timer = worker_process.TaskTimer()
        assert timer.value == timer.IDLE
        timer.value = 10
        # As django-q2 does: the guard leaves the worker time to stop by itself.
        timer.value += 3
        clock.now += 12
        assert timer.value == 1
        clock.now += 5
        assert timer.value == timer.OVERDUE
        timer.value = timer.IDLE
        assert timer.value == timer.IDLE


class TestOutage:
    def test_it_is_told_once_then_every_minute_and_when_it_is_over(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        redis = outage.Outage("Redis")
        for _ in range(125):
            redis.note(OSError("Connection\n\trefused."))
            clock.now += 1
        assert redis.end()
        assert not redis.end()
        assert [record.getMessage() for record in caplog.records] == [
            "Redis can't be reached; trying again until it answers. (Connection refused.)",
            "Redis has been away for 60 seconds. (Connection refused.)",
            "Redis has been away for 120 seconds. (Connection refused.)",
            "Redis answers again, after 125 seconds.",
        ]


class TestStopSignals:
    @pytest.fixture(autouse=True)
    def _own_handlers(self, stopping: StopFlag, monkeypatch: pytest.MonkeyPatch) -> Any:
        self.stopping = stopping
        self.hurrying = StopFlag()
        monkeypatch.setattr(stop_signals, "hurrying", self.hurrying)
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_the_same_signal_that_arrives_twice_is_one(self, clock: Clock) -> None:
        stop_signals.StopSignals()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert (self.stopping.is_set(), self.hurrying.is_set()) == (True, False)
        clock.now += 1
        signal.raise_signal(signal.SIGINT)
        assert self.hurrying.is_set()

    def test_a_worker_started_with_nohup_outlives_its_terminal(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop_signals.StopSignals()
        signal.raise_signal(signal.SIGHUP)
        assert not self.stopping.is_set()


def test_a_system_that_starts_no_process_lets_the_others_end_in_order(
    channel: task_channel.TaskChannel,
    stopping: StopFlag,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fork(self: Any, *args: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(guard.Guard, "_fork", fork)
    assert guard.Guard(recover=lambda: None, wake_task="").run() == 1
    assert stopping.is_set()
    assert "The system starts no more processes" in caplog.text and "Resource temporarily unavailable" in caplog.text


@pytest.mark.django_db
def test_a_message_signed_with_another_key_is_dropped_and_the_next_one_is_done(
    channel: task_channel.TaskChannel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    packages = [f"{SignedPackage.dumps({'name': 'forged'})}x", SignedPackage.dumps({"name": "ours"})]
    dropped: list[object] = []

    class Broker:
        def dequeue(self) -> list[tuple[int, str]]:
            return list(enumerate(packages))

        def fail(self, ack_id: object) -> None:
            dropped.append(ack_id)

    monkeypatch.setattr(pusher, "get_broker", Broker)
    with caplog.at_level(logging.ERROR):
        pusher.Pusher(channel, recover=lambda: None, wake_task="")._push_next()
    task = channel.get()
    assert isinstance(task, dict) and (task["name"], task["ack_id"]) == ("ours", 1)
    assert channel.is_empty() and dropped == [0]
    assert "the same TOOLFLOW_SECRET_KEY" in caplog.text
