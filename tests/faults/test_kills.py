"""kill -9 of each kind of process while runs are under way: the host recovers, or goes on once it is started again.

The lease is the ordinary one of a minute: what comes back sooner was missed at once, not when a lease ran out. The
storm of ``make nightly`` kills helpers and whole hosts, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.conftest import RUNS, Build
from tests.faults.host import Host, Process
from tests.faults.installation import Installation
from tests.faults.services import Backend
from tests.waiting import wait_until

pytestmark = pytest.mark.faults

Role = Callable[[Host], list[Process]]


def list_main(host: Host) -> list[Process]:
    return [host.main]


def test_runs_go_on_from_their_last_attempt_when_their_worker_process_was_killed(installation: Installation) -> None:
    host = installation.start_work(RUNS)
    installation.kill("drain", host.find_drains())
    verdict = installation.check_end({"succeeded": RUNS})
    assert 0 < verdict.repeated <= verdict.in_flight


@pytest.mark.nightly
def test_all_runs_that_were_in_flight_at_a_kill_go_on_together(build: Build, sqlite: Backend) -> None:
    installation = build(sqlite, latency=10.0, TOOLFLOW_RUNS_IN_FLIGHT="200")
    host = installation.start_work(200, after=1)

    def wait_for_in_flight(count: int) -> None:
        wait_until(
            lambda: installation.provider.in_flight == count,
            within=30,
            what=f"{count} calls are in flight",
            explain=lambda: installation.provider.in_flight,
        )

    wait_for_in_flight(200)
    installation.kill("drain", host.find_drains())
    wait_for_in_flight(0)
    wait_for_in_flight(200)
    installation.provider.latency = 0.05
    installation.check_end({"succeeded": 200}, repeated=200)


@pytest.mark.parametrize(
    ("victim", "role", "status"),
    [
        pytest.param("main", list_main, -9, id="main"),
        pytest.param("supervisor", Host.find_supervisor, 1, id="supervisor", marks=pytest.mark.nightly),
    ],
)
def test_nothing_is_left_of_a_host_whose_head_was_killed_and_it_goes_on_once_it_is_started_again(
    installation: Installation, victim: str, role: Role, status: int
) -> None:
    host = installation.start_work(RUNS)
    with installation.death(victim):
        installation.kill_bystanders(victim, role(host))
        assert host.wait_for_end() == status
    assert ("The supervisor process was killed (signal 9)" in host.read_log()) == (victim == "supervisor")
    host.start()
    installation.check_end({"succeeded": RUNS})
