"""Which runs a worker takes next."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flows.models import FlowVersion
from runs.claiming import AvailablePermits, claim_runs, share_slots
from runs.models import Priority, Run
from tests.engine.builders import make_flow as make_spec
from tests.engine.builders import make_step
from tests.runs.builders import LEASE, make_run, make_version

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def version_of(name: str, **flow_fields: Any) -> FlowVersion:
    version = make_version(make_spec(make_step()).model_copy(update={"name": name, "title": name}))
    for field, value in flow_fields.items():
        setattr(version.flow, field, value)
    version.flow.save()
    return version


def claim(free: int, **options: Any) -> list[Run]:
    return claim_runs(free=free, owner="worker-1", lease=LEASE, is_simulated=True, **options) or []


def permits(**by_model: int) -> AvailablePermits:
    return lambda model: by_model.get(model.replace("-", "_"))


class TestPriority:
    def test_runs_of_high_priority_of_any_flow_go_first_and_those_of_low_last(self) -> None:
        low, normal = (make_run(version_of("first"), priority=p) for p in (Priority.LOW, Priority.NORMAL))
        high = make_run(version_of("second"), priority=Priority.HIGH)
        assert [run.pk for run in claim(1)] == [high.pk]
        assert [run.pk for run in claim(1)] == [normal.pk]
        assert [run.pk for run in claim(1)] == [low.pk]


class TestFairness:
    def test_a_single_run_of_a_flow_does_not_wait_behind_the_batch_of_another(self) -> None:
        batch = version_of("batch")
        for _ in range(50):
            make_run(batch)
        single = make_run(version_of("single"))
        assert single.pk in {run.pk for run in claim(2)}
        make_run(single.version)
        assert len(claim(8)) == 8, "slots that one flow can't use go to the other"

    def test_flows_share_what_is_under_way_and_not_just_the_free_slots(self) -> None:
        batch, other = version_of("batch"), version_of("other")
        for _ in range(10):
            make_run(batch)
            make_run(other)
        claimed = claim(4, in_flight={batch.flow_id: 6, other.flow_id: 4})
        assert Counter(run.flow_id for run in claimed) == {other.flow_id: 3, batch.flow_id: 1}

    def test_slots_go_one_by_one_to_the_flow_with_the_fewest(self) -> None:
        assert share_slots(5, {1: 0, 2: 3}, {}) == {1: 4, 2: 1}
        assert share_slots(5, {1: 0, 2: 0}, {1: 1}) == {1: 1, 2: 4}
        assert share_slots(5, {1: 0}, {1: 0}) == {}


class TestRunsInFlightOfAFlow:
    def test_a_flow_never_has_more_runs_under_way_than_it_may(self) -> None:
        version = version_of("careful", max_runs_in_flight=3)
        for _ in range(5):
            make_run(version)
        assert len(claim(2)) == 2
        assert len(claim(5)) == 1
        assert not claim(5)

    def test_a_slot_is_free_again_when_a_run_ends_or_is_handed_back(self) -> None:
        version = version_of("careful", max_runs_in_flight=1)
        first, second = make_run(version), make_run(version)
        (claimed,) = claim(5)
        assert claimed.pk == first.pk and not claim(5)
        assert claimed.hand_back(delay=timedelta(hours=1))
        assert [run.pk for run in claim(5)] == [second.pk]


class TestLimitsOfModels:
    def test_no_more_runs_are_taken_than_calls_can_begin(self) -> None:
        version = make_version()
        for _ in range(5):
            make_run(version, next_model="slow")
        assert len(claim(5, available_permits=permits(slow=2))) == 2

    def test_runs_of_other_models_pass_those_that_wait_for_a_limit(self) -> None:
        version = make_version()
        for _ in range(4):
            make_run(version, next_model="slow")
        quick = [make_run(version, next_model="quick") for _ in range(2)]
        assert [run.pk for run in claim(2, available_permits=permits(slow=0))] == [run.pk for run in quick]

    def test_a_run_whose_next_step_is_local_needs_no_permit(self) -> None:
        make_run(next_model="")
        assert len(claim(1, available_permits=lambda model: 0)) == 1


class TestOrder:
    def test_a_run_that_was_handed_back_goes_on_before_those_that_came_after_it(self) -> None:
        version = make_version()
        runs = [make_run(version) for _ in range(3)]
        (first,) = claim(1)
        first.hand_back()
        assert [run.pk for run in claim(3)] == [run.pk for run in runs]


class TestRunsThatLostTheirWorkers:
    def test_all_that_were_in_flight_beside_one_loss_go_on_together(self) -> None:
        version = make_version()
        for _ in range(200):
            make_run(version, crashes=1)
        assert len(claim(200)) == 200

    def test_runs_that_lost_two_go_on_one_at_a_time_and_others_pass_them(self) -> None:
        version = make_version()
        suspects = [make_run(version, crashes=crashes).pk for crashes in (2, 4, *[3] * 50)]
        others = [make_run(version, crashes=crashes).pk for crashes in (0, 1, 0)]
        assert suspects[0] in {run.pk for run in claim(5)}
        assert {run.pk for run in claim(5, has_suspect=True)} <= set(others)
        assert [run.pk for run in claim(5)] == suspects[1:2]


class TestClaimedRuns:
    def test_versions_that_the_worker_can_not_execute_are_left_to_others(self) -> None:
        run = make_run()
        assert not claim(1, unable=[run.version_id])
        assert claim(1)

    def test_a_time_limit_counts_from_the_first_start(self) -> None:
        make_run()
        assert claim(1)[0].deadline_at is None
        make_run(time_limit=timedelta(seconds=30))
        (run,) = claim(1)
        assert run.started_at is not None and run.deadline_at is not None
        # Databases keep milliseconds or microseconds.
        assert abs(run.deadline_at - run.started_at - timedelta(seconds=30)) < timedelta(milliseconds=2)
        run.hand_back()
        (again,) = claim(1)
        assert again.deadline_at == run.deadline_at

    def test_the_number_of_queries_does_not_grow_with_runs(self) -> None:
        version = make_version()
        for _ in range(30):
            make_run(version)
        counts = []
        for free in (2, 20):
            with CaptureQueriesContext(connection) as queries:
                claim(free)
            counts.append(len(queries))
        assert counts[0] == counts[1]

    def test_a_claim_that_finds_nothing_is_one_query(self, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1):
            assert claim_runs(free=5, owner="worker-1", lease=LEASE, is_simulated=True) is None
