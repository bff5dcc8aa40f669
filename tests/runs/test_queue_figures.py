"""The figures by which people and machines watch the queue."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from runs.models import Run, RunStatus
from runs.models.run import in_future
from runs.queue_figures import QueueFigures, read_queue_figures, unattended_runs
from tests.runs.builders import make_run, make_version, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.sql]

MINUTE = timedelta(minutes=1)


def read_counts() -> tuple[int, int, int]:
    found = read_queue_figures()
    return found.ready, found.later, found.waiting


class TestQueue:
    def test_an_empty_queue_has_no_oldest_run(self) -> None:
        assert read_queue_figures() == QueueFigures(
            workers=(), ready=0, later=0, waiting=0, oldest_ready=None, is_unattended=False
        )

    def test_queued_runs_are_ready_or_wait_for_a_time_or_for_something_else(self) -> None:
        version = make_version()
        make_run(version)
        make_run(version, available_at=in_future(MINUTE))
        make_run(version, available_at=in_future(MINUTE), waiting_for="Waits for a limit of gpt-5-mini.")
        make_run(version, waiting_since=Now(), waiting_for="Waits for a worker that has the plug-in x.")
        make_run(version, status=RunStatus.CANCELLED, ended_at=Now())
        assert read_counts() == (1, 1, 2)

    def test_a_run_that_waited_for_a_limit_is_ready_when_its_time_has_come(self) -> None:
        make_run(available_at=in_future(-MINUTE), waiting_for="Waits for a limit of gpt-5-mini.")
        assert read_counts() == (1, 0, 0)

    def test_the_age_is_that_of_the_run_that_has_been_ready_longest(self) -> None:
        version = make_version()
        for minutes in (3, 10, 7):
            make_run(version, available_at=in_future(-minutes * MINUTE))
        make_run(version, available_at=in_future(-30 * MINUTE), waiting_since=Now(), waiting_for="Waits.")
        age = read_queue_figures().oldest_ready
        assert age is not None and 10 * MINUTE <= age < 11 * MINUTE

    def test_of_a_long_backlog_only_so_many_runs_of_each_kind_are_counted(self) -> None:
        version = make_version()
        for minutes in range(6):
            make_run(version, available_at=in_future(-minutes * MINUTE))
            make_run(version, available_at=in_future(MINUTE))
            make_run(version, waiting_since=Now(), waiting_for="Waits.")
            make_run(version, available_at=in_future(MINUTE), waiting_for="Waits.")
        found = read_queue_figures(most=4)
        assert found.ready == 4 and 4 <= found.later + found.waiting <= 8
        assert found.more == {"ready", "later", "waiting"}
        assert found.oldest_ready is not None and found.oldest_ready >= 5 * MINUTE
        everything = read_queue_figures()
        assert (everything.ready, everything.later, everything.waiting) == (6, 6, 12) and not everything.more

    def test_reading_costs_the_same_with_many_runs_and_workers(self) -> None:
        version = make_version()
        for number in range(3):
            make_run(version)
            make_worker(pid=number + 1)
        with CaptureQueriesContext(connection) as queries:
            read_queue_figures()
        assert len(queries) == 4


class TestWorkers:
    def test_a_worker_that_was_not_heard_of_for_long_is_silent_and_its_slots_do_not_count(self) -> None:
        make_worker(host="a", slots=200, in_flight=12)
        make_worker(host="b", slots=100, in_flight=5, is_stopping=True)
        make_worker(host="c", slots=50, in_flight=7, heartbeat_at=in_future(-MINUTE))
        found = read_queue_figures()
        assert [(worker.host, worker.state) for worker in found.workers] == [
            ("a", "working"),
            ("b", "stopping"),
            ("c", "silent"),
        ]
        assert (found.in_flight, found.slots) == (17, 300)
        assert MINUTE <= found.workers[2].silent_for < 2 * MINUTE


class TestAttention:
    def is_unattended(self) -> bool:
        """Both ways of asking give the same answer."""
        found = read_queue_figures().is_unattended
        assert unattended_runs().exists() == found
        return found

    def test_a_run_that_lies_there_while_no_worker_is_alive_is_unattended(self) -> None:
        make_run(available_at=in_future(-MINUTE))
        assert self.is_unattended()
        make_worker(heartbeat_at=in_future(-MINUTE))
        assert self.is_unattended()
        make_worker()
        assert not self.is_unattended()

    def test_a_worker_gets_a_moment_to_wake_up(self) -> None:
        make_run()
        assert not self.is_unattended()

    def test_nobody_is_missed_while_runs_wait_for_their_time(self) -> None:
        make_run(available_at=in_future(MINUTE))
        assert not self.is_unattended()

    def test_runs_that_are_under_way_or_have_ended_need_nobody(self) -> None:
        make_run(available_at=in_future(-MINUTE))
        Run.objects.update(status=RunStatus.CANCELLED, ended_at=Now())
        assert not self.is_unattended()
