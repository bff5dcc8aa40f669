"""Which runs a worker takes next."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from flows.models import FlowVersion
from runs.claiming import AvailablePermits, claim_runs, share_slots
from runs.models import Priority, Run
from tests.engine.builders import make_flow as make_spec
from tests.runs.builders import LEASE, make_run, make_version

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


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
    def test_a_single_run_of_a_flow_does_not_wait_behind_the_batch_of_another(self) -> None:
        make_runs(50, version_of("batch"))
        single = make_run(version_of("single"))
        assert single.pk in claim_ids(2)
        make_run(single.version)
        assert len(claim(8)) == 8, "slots that one flow can't use go to the other"

    def test_flows_share_what_is_under_way_and_not_just_the_free_slots(self) -> None:
        batch, other = version_of("batch"), version_of("other")
        for version in (batch, other):
            make_runs(10, version)
        claimed = claim(4, in_flight={batch.flow_id: 6, other.flow_id: 4})
        assert Counter(run.flow_id for run in claimed) == {other.flow_id: 3, batch.flow_id: 1}

    def test_slots_go_one_by_one_to_the_flow_with_the_fewest(self) -> None:
        assert share_slots(5, {1: 0, 2: 3}, {}) == {1: 4, 2: 1}
        assert share_slots(5, {1: 0, 2: 0}, {1: 1}) == {1: 1, 2: 4}
        assert share_slots(5, {1: 0}, {1: 0}) == {}


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

    def test_a_run_whose_next_step_is_local_needs_no_permit(self) -> None:
        make_run(next_model="")
        assert len(claim(1, available_permits=lambda model: 0)) == 1


class TestRunsThatLostTheirWorkers:
    def test_all_that_were_in_flight_beside_one_loss_go_on_together(self) -> None:
        make_runs(200, crashes=1)
        assert len(claim(200)) == 200

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
