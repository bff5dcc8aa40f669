"""kill -9 of each kind of process while runs are under way: the host mends itself, or goes on once it is started again.

The lease is the ordinary one of a minute: what comes back sooner was missed at once, not when a lease ran out.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runs.worker.event_loop import HANG_LEASES
from tests.faults import plugins
from tests.faults.backends import Backend
from tests.faults.conftest import RUNS, Build
from tests.faults.flows import CALLS, HANG, THREE_STEPS
from tests.faults.host import Host
from tests.faults.installation import Installation
from tests.faults.processes import Process
from tests.waiting import wait_until

pytestmark = pytest.mark.faults

Role = Callable[[Host], list[Process]]


def list_main(host: Host) -> list[Process]:
    return [host.main]


def test_runs_go_on_from_their_last_attempt_when_their_worker_process_was_killed(installation: Installation) -> None:
    flow = installation.publish(THREE_STEPS)
    installation.submit(flow, RUNS)
    host = installation.start_host()
    installation.wait_for_calls(15)
    installation.kill("drain", host.find_drains())
    verdict = installation.check_end({"succeeded": RUNS})
    assert 0 < verdict.repeated <= verdict.in_flight
    assert host.stop() == 0


def test_all_runs_that_were_in_flight_at_a_kill_go_on_together(build: Build, sqlite: Backend) -> None:
    installation = build(sqlite, latency=10.0, TOOLFLOW_RUNS_IN_FLIGHT="200")
    installation.submit(THREE_STEPS, 200)
    host = installation.start_host()

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
    assert host.stop() == 0


def test_a_worker_process_that_hangs_while_it_judges_is_killed_and_no_call_is_repeated_however_long_it_took(
    build: Build, sqlite: Backend
) -> None:
    lease = 2
    installation = build(
        sqlite, latency=lease * HANG_LEASES + 2.0, TOOLFLOW_PLUGINS=plugins.__name__, TOOLFLOW_LEASE=str(lease)
    )
    installation.environment[plugins.LOG] = str(installation.folder / "hangs")
    installation.submit(HANG)
    host = installation.start_host()
    installation.wait_for_calls(1)
    # Only the first call takes so long.
    installation.provider.latency = 0.1
    wait_until(lambda: "its event loop hung" in host.read_log(), within=40, what="the process is killed")
    installation.check_end({"succeeded": 1}, repeated=0)
    assert host.stop() == 0


@pytest.mark.parametrize(
    ("victim", "role"),
    [("idle worker", Host.find_idle_workers), ("dispatcher", Host.find_dispatcher)],
    ids=["idle", "dispatcher"],
)
def test_a_killed_helper_costs_no_call_and_the_host_takes_new_runs(
    installation: Installation, victim: str, role: Role
) -> None:
    flow = installation.publish(THREE_STEPS)
    installation.submit(flow, RUNS)
    host = installation.start_host()
    installation.wait_for_calls(15)
    before = host.wait_for(role, victim)
    installation.kill_bystanders(victim, before)
    installation.wait_for_all()
    # What carries messages was replaced: without it, nobody would take the place of the drain that is killed next.
    host.wait_for(lambda host: [one for one in role(host) if one not in before], f"new {victim}")
    installation.kill_bystanders("drain", host.find_drains())
    installation.submit(flow, RUNS)
    installation.check_end({"succeeded": 2 * RUNS}, calls=2 * RUNS * CALLS)
    assert host.stop() == 0


@pytest.mark.parametrize(
    ("victim", "role", "status"),
    [("main", list_main, -9), ("supervisor", Host.find_supervisor, 1)],
    ids=["main", "supervisor"],
)
def test_nothing_is_left_of_a_host_whose_head_was_killed_and_it_goes_on_once_it_is_started_again(
    installation: Installation, victim: str, role: Role, status: int
) -> None:
    installation.submit(THREE_STEPS, RUNS)
    host = installation.start_host()
    installation.wait_for_calls(15)
    with installation.death(victim):
        installation.kill_bystanders(victim, role(host))
        assert host.wait_for_end() == status
    assert ("The supervisor process was killed (signal 9)" in host.read_log()) == (victim == "supervisor")
    host.start()
    installation.check_end({"succeeded": RUNS})
    assert host.stop() == 0


def test_runs_go_on_when_the_whole_host_was_killed_and_started_again(installation: Installation) -> None:
    installation.submit(THREE_STEPS, RUNS)
    host = installation.start_host()
    installation.wait_for_calls(15)
    with installation.death("cluster"):
        host.kill()
    host.start()
    installation.check_end({"succeeded": RUNS})
    assert host.stop() == 0
