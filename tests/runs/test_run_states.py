"""A run's way from queued to ended, and who may write to it meanwhile."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError
from django.test.utils import CaptureQueriesContext

from flows.engine.execution import Progress, Start
from flows.models import FlowVersion, ImmutableVersionError
from runs.claiming import claim_runs
from runs.models import Attempt, AttemptRequest, EndReason, Run, RunStatus, Step
from runs.models.run import MAX_CRASHES
from runs.recorder import RunRecorder
from runs.stored_history import load_history
from runs.sweep import LEASE_EXPIRED, sweep
from tests.engine.builders import make_attempt, make_flow, make_step
from tests.runs.builders import LEASE, claim_run, expire_lease, make_run, make_version

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def begin(number: int) -> Start:
    return Start(1, number, {"topic": "tea"}, {"model": "gpt-4.1"}, datetime.now(UTC))


class TestClaim:
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

    def test_leases_are_written_and_compared_in_the_time_of_the_database(self) -> None:
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

    def test_the_sweep_queues_the_run_of_a_dead_worker_and_shows_its_attempt_as_interrupted(self) -> None:
        run = claim_run(make_run())
        step = Step.objects.create(run=run, index=1, name="Step 1")
        attempt = Attempt.objects.create(step=step, number=1)
        AttemptRequest.objects.create(attempt=attempt, body={"model": "gpt-5-mini"})
        expire_lease(run)
        assert sweep() == 1
        run.refresh_from_db()
        attempt.refresh_from_db()
        assert (run.status, run.crashes, run.owner) == (RunStatus.QUEUED, 1, "")
        assert (attempt.outcome, attempt.usage.reported) == ("interrupted", False)
        assert attempt.ended_at is not None

    def test_a_run_whose_worker_dies_five_times_ends_errored_and_says_so(self) -> None:
        run = make_run()
        for _ in range(MAX_CRASHES):
            claim_run(run)
            expire_lease(run)
            sweep()
        run.refresh_from_db()
        assert (run.status, run.end_reason, run.crashes) == (RunStatus.ERRORED, EndReason.CRASHED, MAX_CRASHES)
        assert "lost its worker 5 times in a row" in run.end_sentence
        assert LEASE_EXPIRED in run.end_sentence

    def test_losses_with_stored_attempts_in_between_do_not_end_a_run(self) -> None:
        run = make_run(make_version(make_flow(make_step(1, max_retries=20))))
        for number in range(1, 2 * MAX_CRASHES, 2):
            held = claim_run(run)
            recorder = RunRecorder(held, held.version.flow_spec, load_history(held))
            recorder.record(Progress(begun=begin(number)))
            recorder.record(Progress(ended=make_attempt(1, number, "invalid"), begun=begin(number + 1)))
            expire_lease(run)
            sweep()
            run.refresh_from_db()
            assert (run.status, run.crashes) == (RunStatus.QUEUED, 1)

    def test_a_run_that_is_handed_back_after_a_cancel_ends_cancelled(self) -> None:
        run = claim_run(make_run())
        assert run.request_cancel()
        assert run.hand_back(delay=timedelta(hours=1))
        run.refresh_from_db()
        assert (run.status, run.end_reason) == (RunStatus.CANCELLED, EndReason.CANCELLED)

    def test_a_queued_run_with_a_cancel_flag_is_never_claimed_and_the_sweep_ends_it(self) -> None:
        run = make_run(cancel_requested=True)
        assert not claim_runs(free=5, owner="worker-1", lease=LEASE, is_simulated=True)
        sweep()
        run.refresh_from_db()
        assert run.status == RunStatus.CANCELLED

    def test_a_run_that_has_invented_attempts_stays_marked_as_simulated(self) -> None:
        run = claim_run(make_run())
        Run.objects.filter(pk=run.pk).update(attempt_count=1)
        run.hand_back()
        (again,) = claim_runs(free=5, owner="worker-2", lease=LEASE, is_simulated=False)
        assert again.is_simulated

    def test_a_cancelled_run_of_a_dead_worker_ends_cancelled(self) -> None:
        run = claim_run(make_run())
        assert run.request_cancel()
        expire_lease(run)
        sweep()
        run.refresh_from_db()
        assert run.status == RunStatus.CANCELLED


class TestCancel:
    def test_a_queued_run_is_cancelled_at_once(self) -> None:
        run = make_run()
        assert run.request_cancel()
        assert (run.status, run.end_reason) == (RunStatus.CANCELLED, EndReason.CANCELLED)
        assert run.ended_at is not None

    def test_a_running_run_is_flagged_for_its_worker(self) -> None:
        run = claim_run(make_run())
        assert run.request_cancel()
        assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)

    def test_a_run_that_ended_stays_as_it_ended(self) -> None:
        run = make_run()
        run.request_cancel()
        ended_at = run.ended_at
        assert not run.request_cancel()
        assert run.ended_at == ended_at


class TestWhatTheDatabaseRefuses:
    @pytest.mark.parametrize(
        "status",
        ["lost", RunStatus.FAILED, RunStatus.RUNNING],
        ids=["unknown", "ended without a time", "running without a lease"],
    )
    def test_a_status_that_does_not_fit(self, status: str) -> None:
        run = make_run()
        with pytest.raises(IntegrityError), transaction.atomic():
            Run.objects.filter(pk=run.pk).update(status=status)

    def test_the_same_attempt_twice(self) -> None:
        step = Step.objects.create(run=make_run(), index=1, name="Step 1")
        Attempt.objects.create(step=step, number=1)
        with pytest.raises(IntegrityError), transaction.atomic():
            Attempt.objects.create(step=step, number=1)


class TestVersionsWithRuns:
    def test_a_version_never_changes(self) -> None:
        version = make_version()
        version.note = "better"
        with pytest.raises(ImmutableVersionError):
            version.save()
        with pytest.raises(ImmutableVersionError):
            FlowVersion.objects.update(note="better")

    def test_not_even_by_a_new_object_with_its_key(self) -> None:
        version = make_version()
        with pytest.raises(IntegrityError), transaction.atomic():
            FlowVersion(pk=version.pk, flow=version.flow, number=1, spec={"hacked": 1}, digest="x").save()
        with pytest.raises(ImmutableVersionError):
            FlowVersion.objects.bulk_create(
                [version], update_conflicts=True, update_fields=["spec"], unique_fields=["id"]
            )
        version.refresh_from_db()
        assert "hacked" not in version.spec

    def test_a_live_version_is_not_deleted_by_a_query_either(self) -> None:
        version = make_version()
        with pytest.raises(ImmutableVersionError):
            version.flow.versions.all().delete()
        version.flow.refresh_from_db()
        assert version.flow.live_version == version

    def test_a_version_or_flow_that_has_runs_can_not_be_deleted(self) -> None:
        old = make_version()
        make_run(old)
        make_version()
        with pytest.raises(ProtectedError):
            FlowVersion.objects.get(pk=old.pk).delete()
        with pytest.raises(ProtectedError):
            old.flow.delete()
