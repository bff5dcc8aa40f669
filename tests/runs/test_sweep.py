"""What the sweep finds: runs of dead workers, expired leases, and what waited too long."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from runs.models import EndReason, Run, RunStatus, Worker
from runs.models.run import MAX_CRASHES, in_future
from runs.ownership import Owner, _read_start
from runs.sweep import GRACE_RATIO, MAX_SUSPICION_AGE, PROCESS_GONE, sweep
from tests.runs.builders import LEASE, claim_run, expire_lease, make_dead_owner, make_run, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


class TestDeadProcesses:
    def test_runs_of_a_process_that_died_on_this_machine_are_queued_at_once(self) -> None:
        run = claim_run(make_run(), str(make_dead_owner()))
        assert sweep() == 1
        run.refresh_from_db()
        assert (run.status, run.crashes, run.owner) == (RunStatus.QUEUED, 1, "")

    def test_runs_of_a_process_that_lives_stay_with_it(self) -> None:
        run = claim_run(make_run(), str(Owner.of_this_process()))
        assert sweep() == 0
        run.refresh_from_db()
        assert run.status == RunStatus.RUNNING

    def test_the_end_of_a_run_whose_processes_died_says_so(self) -> None:
        run = claim_run(make_run(crashes=MAX_CRASHES - 1), str(make_dead_owner()))
        sweep()
        run.refresh_from_db()
        assert run.end_reason == EndReason.CRASHED
        assert PROCESS_GONE in run.end_sentence

    def test_a_dead_worker_is_no_longer_shown(self) -> None:
        owner = str(make_dead_owner())
        claim_run(make_run(), owner)
        make_worker(owner=owner)
        sweep()
        assert not Worker.objects.exists()


class TestExpiredLeases:
    def test_a_worker_that_lived_through_an_outage_gets_the_time_to_come_back(self) -> None:
        run = claim_run(make_run(), "elsewhere")
        Run.objects.filter(pk=run.pk).update(lease_until=in_future(timedelta(minutes=-5)))
        assert sweep() == 0
        assert Run.objects.renew(owner="elsewhere", ids=[run.pk], lease=LEASE) == {run.pk}
        assert sweep() == 0
        run.refresh_from_db()
        assert (run.status, run.suspect_since) == (RunStatus.RUNNING, None)

    def test_a_worker_that_does_not_come_back_loses_its_run(self, settings: Any) -> None:
        run = claim_run(make_run(), "elsewhere")
        Run.objects.filter(pk=run.pk).update(lease_until=in_future(timedelta(minutes=-5)))
        sweep()
        Run.objects.filter(pk=run.pk).update(
            suspect_since=in_future(timedelta(seconds=-settings.TOOLFLOW_LEASE * GRACE_RATIO - 1))
        )
        assert sweep() == 1

    def test_a_suspicion_from_before_an_outage_is_forgotten(self, settings: Any) -> None:
        run = claim_run(make_run(), "elsewhere")
        before = timedelta(seconds=settings.TOOLFLOW_LEASE * GRACE_RATIO) + MAX_SUSPICION_AGE + timedelta(seconds=1)
        Run.objects.filter(pk=run.pk).update(
            lease_until=in_future(timedelta(minutes=-5)), suspect_since=in_future(-before)
        )
        assert sweep() == 0
        run.refresh_from_db()
        assert run.status == RunStatus.RUNNING

    def test_a_worker_that_comes_back_between_two_looks_keeps_its_run(self) -> None:
        run = claim_run(make_run(), "elsewhere")
        expire_lease(run)
        lost = Run.objects.suspect(timedelta(0))
        (seen,) = lost
        Run.objects.renew(owner="elsewhere", ids=[run.pk], lease=LEASE)
        assert not seen.reclaim(lost, "")


class TestWhatWaitedTooLong:
    def test_a_queued_run_whose_time_limit_passed_ends_errored_with_a_sentence(self) -> None:
        run = make_run(deadline_at=Now())
        sweep()
        run.refresh_from_db()
        assert (run.status, run.end_reason) == (RunStatus.ERRORED, EndReason.DEADLINE_EXCEEDED)
        assert run.end_sentence == "The run reached its time limit while it waited in the queue."

    def test_a_worker_that_was_silent_for_long_is_forgotten_and_one_that_is_heard_of_stays(self) -> None:
        make_worker(heartbeat_at=in_future(timedelta(hours=-1)))
        lately = make_worker(pid=4712)
        sweep()
        assert list(Worker.objects.all()) == [lately]


class TestOwners:
    """Whether the owner of a run is alive, as far as this machine can tell."""

    def test_a_worker_in_this_process_is_alive(self) -> None:
        assert not Owner.of_this_process().is_gone

    def test_the_name_says_all_there_is_to_know(self) -> None:
        owner = Owner.of_this_process()
        assert Owner.parse(str(owner)) == owner
        assert len(str(owner)) <= 200

    def test_two_drains_of_one_process_have_different_names(self) -> None:
        assert str(Owner.of_this_process()) != str(Owner.of_this_process())

    def test_a_worker_whose_process_ended_is_gone_also_while_nobody_took_note_of_it(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            owner = replace(Owner.of_this_process(), pid=process.pid, started=_read_start(process.pid))
            assert not owner.is_gone
            process.kill()
            # A zombie until its parent asks: its memory and its connections are gone already.
            assert process.wait() != 0
            assert owner.is_gone

    def test_another_process_with_the_same_id_is_not_taken_for_the_worker(self) -> None:
        assert replace(Owner.of_this_process(), started="1").is_gone

    @pytest.mark.parametrize("elsewhere", [{"boot": "another"}, {"namespace": "1"}, {"boot": "", "namespace": ""}])
    def test_nothing_is_said_about_workers_of_other_machines_and_containers(self, elsewhere: dict[str, str]) -> None:
        assert not replace(Owner.of_this_process(), started="1", **elsewhere).is_gone

    @pytest.mark.parametrize("name", ["", "worker-1", "host:123:abc", "a/b/c/x/e/f", "a/b/c/1/e"])
    def test_other_names_are_nobody(self, name: str) -> None:
        assert Owner.parse(name) is None
