"""A run's way from queued to ended: who takes it next, who holds it, and who may take it away."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from flows.engine.execution import Progress, Start
from flows.models import FlowVersion
from runs.claiming import AvailablePermits, claim_runs
from runs.models import Attempt, AttemptRequest, EndReason, Priority, Run, RunStatus, Step, Worker
from runs.models.run import MAX_CRASHES, in_future
from runs.ownership import Owner, _read_start
from runs.recorder import RunRecorder
from runs.stored_history import load_history
from runs.sweep import GRACE_RATIO, LEASE_EXPIRED, MAX_SUSPICION_AGE, PROCESS_GONE, sweep
from tests.engine.builders import make_attempt, make_flow, make_step
from tests.engine.builders import make_flow as make_spec
from tests.runs.builders import LEASE, claim_run, expire_lease, make_dead_owner, make_run, make_version, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def state(run: Run) -> tuple[str, str, int, str]:
    run.refresh_from_db()
    return run.status, run.end_reason, run.crashes, run.owner


CANCELLED = (RunStatus.CANCELLED, EndReason.CANCELLED)


class TestLeases:
    def test_a_claimed_run_has_an_owner_a_lease_and_the_next_epoch(self) -> None:
        run = claim_run(make_run())
        assert (run.status, run.owner, run.epoch) == (RunStatus.RUNNING, "worker-1", 1)
        assert run.lease_until is not None and run.started_at is not None
        assert not claim_runs(free=5, owner="worker-2", lease=LEASE, is_simulated=True)

    def test_renewing_says_which_runs_are_still_held(self) -> None:
        kept, lost = make_run(), make_run()
        claim_run(kept)
        Run.objects.filter(pk=lost.pk).update(owner="worker-2")
        assert Run.objects.renew(owner="worker-1", ids=[kept.pk, lost.pk], lease=LEASE) == {kept.pk}

    def test_they_are_written_and_compared_in_the_time_of_the_database(self) -> None:
        with CaptureQueriesContext(connection) as queries:
            run = claim_run(make_run())
            Run.objects.renew(owner="worker-1", ids=[run.pk], lease=LEASE)
            sweep()
        statements = [query["sql"] for query in queries if "lease_until" in query["sql"]]
        of_the_host = [sql for sql in statements if re.search(r"""lease_until\W+'\d{4}-""", sql)]
        assert len(statements) > 3 and not of_the_host


class TestHandBackAndReclaim:
    def test_a_worker_that_lost_the_run_can_not_hand_it_back(self) -> None:
        run = claim_run(make_run())
        expire_lease(run)
        sweep()
        claim_run(run, "worker-2")
        assert not run.hand_back()

    def test_the_sweep_queues_the_run_of_a_dead_worker_and_ends_its_attempt_as_interrupted(self) -> None:
        run = claim_run(make_run())
        attempt = Attempt.objects.create(step=Step.objects.create(run=run, index=1, name="Step 1"), number=1)
        AttemptRequest.objects.create(attempt=attempt, body={"model": "gpt-5-mini"})
        expire_lease(run)
        assert sweep() == 1
        attempt.refresh_from_db()
        assert state(run) == (RunStatus.QUEUED, "", 1, "")
        assert (attempt.outcome, attempt.usage.reported, attempt.ended_at is None) == ("interrupted", False, False)

    @pytest.mark.parametrize("is_process_gone", [False, True])
    def test_a_run_whose_worker_dies_five_times_ends_errored_and_says_so(self, is_process_gone: bool) -> None:
        run = make_run()
        for _ in range(MAX_CRASHES):
            claim_run(run, str(make_dead_owner()) if is_process_gone else "elsewhere")
            if not is_process_gone:
                expire_lease(run)
            sweep()
        assert state(run) == (RunStatus.ERRORED, EndReason.CRASHED, MAX_CRASHES, "")
        assert "lost its worker 5 times in a row" in run.end_sentence
        assert (PROCESS_GONE if is_process_gone else LEASE_EXPIRED) in run.end_sentence

    def test_losses_with_stored_attempts_in_between_do_not_end_a_run(self) -> None:
        run = make_run(make_version(make_flow(make_step(1, max_retries=20))))
        for number in range(1, 2 * MAX_CRASHES, 2):
            held = claim_run(run)
            recorder = RunRecorder(held, held.version.flow_spec, load_history(held))
            first, second = (Start(1, number + n, {}, {"model": "gpt-4.1"}, datetime.now(UTC)) for n in (0, 1))
            recorder.record(Progress(begun=first))
            recorder.record(Progress(ended=make_attempt(1, number, "invalid"), begun=second))
            expire_lease(run)
            sweep()
            assert state(run) == (RunStatus.QUEUED, "", 1, "")


class TestCancel:
    def test_a_run_that_is_handed_back_after_it_ends_cancelled(self) -> None:
        run = claim_run(make_run())
        assert run.request_cancel()
        assert run.hand_back(delay=timedelta(hours=1))
        assert state(run)[:2] == CANCELLED

    def test_a_queued_run_with_the_flag_is_never_claimed_and_the_sweep_ends_it(self) -> None:
        run = make_run(cancel_requested=True)
        assert not claim_runs(free=5, owner="worker-1", lease=LEASE, is_simulated=True)
        sweep()
        assert state(run)[:2] == CANCELLED


class TestSweep:
    def test_runs_of_a_process_that_died_on_this_machine_are_queued_at_once_and_it_is_shown_no_more(self) -> None:
        owner = str(make_dead_owner())
        make_worker(owner=owner)
        run = claim_run(make_run(), owner)
        assert sweep() == 1
        assert state(run) == (RunStatus.QUEUED, "", 1, "")
        assert not Worker.objects.exists()

    def test_a_worker_that_lived_through_an_outage_gets_the_time_to_come_back(self) -> None:
        run = claim_run(make_run(), "elsewhere")
        Run.objects.filter(pk=run.pk).update(lease_until=in_future(timedelta(minutes=-5)))
        assert sweep() == 0
        assert Run.objects.renew(owner="elsewhere", ids=[run.pk], lease=LEASE) == {run.pk}
        assert sweep() == 0
        run.refresh_from_db()
        assert (run.status, run.suspect_since) == (RunStatus.RUNNING, None)

    @pytest.mark.parametrize(
        ("before_that", "taken"),
        [(timedelta(0), 1), (MAX_SUSPICION_AGE, 0)],
        ids=["grace is over", "suspicion from before an outage"],
    )
    def test_a_worker_that_does_not_come_back_loses_its_run(
        self, settings: Any, before_that: timedelta, taken: int
    ) -> None:
        run = claim_run(make_run(), "elsewhere")
        since = -timedelta(seconds=settings.TOOLFLOW_LEASE * GRACE_RATIO + 1) - before_that
        Run.objects.filter(pk=run.pk).update(
            lease_until=in_future(timedelta(minutes=-5)), suspect_since=in_future(since)
        )
        assert sweep() == taken
        assert (state(run)[0] == RunStatus.QUEUED) is bool(taken)

    def test_a_worker_that_comes_back_between_two_looks_keeps_its_run(self) -> None:
        run = claim_run(make_run(), "elsewhere")
        expire_lease(run)
        lost = Run.objects.suspect(timedelta(0))
        (seen,) = lost
        Run.objects.renew(owner="elsewhere", ids=[run.pk], lease=LEASE)
        assert not seen.reclaim(lost, "")


class TestOwners:
    """Whether the owner of a run is alive, as far as this machine can tell."""

    def test_a_worker_whose_process_ended_is_gone_also_while_its_parent_did_not_wait_for_it(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            owner = replace(Owner.of_this_process(), pid=process.pid, started=_read_start(process.pid))
            assert not owner.is_gone
            process.kill()
            # A zombie until its parent asks: its memory and its connections are gone already.
            assert process.wait() != 0
            assert owner.is_gone

    @pytest.mark.parametrize(
        ("fields", "is_gone"),
        [
            ({}, True),  # another process has the same id now
            ({"boot": "another"}, False),
            ({"namespace": "1"}, False),
            ({"boot": "", "namespace": ""}, False),
        ],
        ids=["reused id", "host", "container", "unknown"],
    )
    def test_nothing_is_said_about_workers_of_other_machines(self, fields: dict[str, str], is_gone: bool) -> None:
        assert replace(Owner.of_this_process(), started="1", **fields).is_gone is is_gone


@pytest.mark.parametrize("status", ["lost", RunStatus.FAILED, RunStatus.RUNNING])
def test_the_database_refuses_a_status_that_does_not_fit(status: str) -> None:
    """An unknown one, one that ended without a time, one that runs without a lease."""
    run = make_run()
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(pk=run.pk).update(status=status)


def test_the_database_refuses_the_same_attempt_twice() -> None:
    step = Step.objects.create(run=make_run(), index=1, name="Step 1")
    Attempt.objects.create(step=step, number=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Attempt.objects.create(step=step, number=1)


def version_of(name: str, **flow_fields: Any) -> FlowVersion:
    version = make_version(make_spec().model_copy(update={"name": name, "title": name}))
    for field, value in flow_fields.items():
        setattr(version.flow, field, value)
    version.flow.save()
    return version


def make_runs(count: int, version: FlowVersion | None = None, **fields: Any) -> list[int]:
    version = version or make_version()
    return [make_run(version, **fields).pk for _ in range(count)]


def claim(free: int, **options: Any) -> list[Run]:
    return claim_runs(free=free, owner="worker-1", lease=LEASE, is_simulated=True, **options) or []


def claim_ids(free: int, **options: Any) -> list[int]:
    return [run.pk for run in claim(free, **options)]


def permits(**by_model: int) -> AvailablePermits:
    return by_model.get


def test_runs_of_high_priority_of_any_flow_go_first_and_those_of_low_last() -> None:
    low, normal = (make_run(version_of("first"), priority=p) for p in (Priority.LOW, Priority.NORMAL))
    high = make_run(version_of("second"), priority=Priority.HIGH)
    assert [claim_ids(1) for _ in range(3)] == [[high.pk], [normal.pk], [low.pk]]


def test_a_run_that_was_handed_back_goes_on_before_those_that_came_after_it_and_not_before_its_time() -> None:
    runs = make_runs(3)
    (first,) = claim(1)
    first.hand_back()
    assert claim_ids(1) == runs[:1]
    first.refresh_from_db()
    first.hand_back(delay=timedelta(hours=1))
    assert claim_ids(3) == runs[1:]


class TestFairness:
    def test_a_flow_that_was_given_no_slot_gets_those_that_others_can_not_use(self) -> None:
        for name in "abcd":
            make_run(version_of(name), next_model="limited")
        free = make_run(version_of("free"))
        assert claim_ids(2, available_permits=permits(limited=0)) == [free.pk]

    def test_a_single_run_of_a_flow_does_not_wait_behind_the_batch_of_another(self) -> None:
        make_runs(50, version_of("batch"))
        single = make_run(version_of("single"))
        assert single.pk in claim_ids(2)
        make_run(single.version)
        assert len(claim(8)) == 8, "slots that one flow can't use go to the other"


class TestLimits:
    def test_a_flow_never_has_more_runs_under_way_than_it_may(self) -> None:
        runs = make_runs(5, version_of("careful", max_runs_in_flight=3))
        assert [len(claim(free)) for free in (2, 5, 5)] == [2, 1, 0]
        assert Run.objects.get(pk=runs[0]).hand_back(delay=timedelta(hours=1))
        assert claim_ids(5) == runs[3:4], "its slot is free again"

    def test_no_more_runs_are_taken_than_calls_can_begin_and_those_of_other_models_pass_them(self) -> None:
        version = make_version()
        make_runs(4, version, next_model="slow")
        quick = make_runs(2, version, next_model="quick")
        assert claim_ids(2, available_permits=permits(slow=0)) == quick
        assert len(claim(5, available_permits=permits(slow=2))) == 2


class TestRunsThatLostTheirWorkers:
    def test_runs_that_lost_two_go_on_one_at_a_time_and_others_pass_them(self) -> None:
        version = make_version()
        suspects = [make_run(version, crashes=crashes).pk for crashes in (2, 4, *[3] * 50)]
        others = [make_run(version, crashes=crashes).pk for crashes in (0, 1, 0)]
        assert suspects[0] in claim_ids(5)
        assert set(claim_ids(5, has_suspect=True)) <= set(others)
        assert claim_ids(5) == suspects[1:2]


def test_versions_that_the_worker_can_not_execute_are_left_to_others() -> None:
    run = make_run()
    assert not claim(1, unable=[run.version_id])
    assert claim(1)


def test_a_time_limit_counts_from_the_first_start() -> None:
    make_run()
    assert claim(1)[0].deadline_at is None
    make_run(time_limit=timedelta(seconds=30))
    (run,) = claim(1)
    assert run.started_at is not None and run.deadline_at is not None
    # Databases keep milliseconds or microseconds.
    assert abs(run.deadline_at - run.started_at - timedelta(seconds=30)) < timedelta(milliseconds=2)
    run.hand_back()
    assert claim(1)[0].deadline_at == run.deadline_at


def test_the_number_of_queries_does_not_grow_with_runs(django_assert_max_num_queries: Any) -> None:
    make_runs(30)
    for free in (2, 20):
        with django_assert_max_num_queries(8):
            assert len(claim(free)) == free
    Run.objects.update(available_at="2999-01-01T00:00:00Z")
    with django_assert_max_num_queries(1):
        assert claim_runs(free=5, owner="worker-1", lease=LEASE, is_simulated=True) is None
