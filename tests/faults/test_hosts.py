"""Several hosts on one database: one that is gone is missed after its lease, one that is late is kept from writing."""

from __future__ import annotations

import signal
import sqlite3
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.faults.conftest import RUNS, Build
from tests.faults.flows import CALLS, THREE_STEPS
from tests.faults.host import Host, Process, can_be_foreign
from tests.faults.installation import Installation
from tests.faults.services import Backend
from tests.waiting import wait_until

pytestmark = pytest.mark.faults

LEASE = 3
"""Seconds."""
LOOKS = 20
"""How often nothing has to be locked by a frozen worker before it is believed."""


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.nightly),
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.redis]),
    ]
)
def backend(request: pytest.FixtureRequest) -> Any:
    """What several hosts share and, where there is time for it, the embedded default."""
    return request.getfixturevalue(request.param)


def find_owners(installation: Installation) -> set[str]:
    """The drains that have runs."""
    return set(installation.observer.ask("list_owners"))


@pytest.mark.nightly
def test_two_hosts_share_the_runs_and_each_run_is_executed_once(build: Build, backend: Backend) -> None:
    # The shorter the lease, the sooner a host that has all it can take calls the other one.
    installation = build(backend, latency=(0.4, 0.6), TOOLFLOW_LEASE=str(2 * LEASE))
    hosts = [installation.start_host(name) for name in ("host-a", "host-b")]
    for host in hosts:
        host.wait_for(Host.find_dispatcher, "dispatcher")
    installation.submit(THREE_STEPS, 2 * RUNS)
    wait_until(lambda: len(find_owners(installation)) == 2, within=30, what="both hosts have runs")
    installation.check_end({"succeeded": 2 * RUNS}, repeated=0, calls=2 * RUNS * CALLS)


def test_another_host_takes_over_when_one_is_gone_with_all_that_ran_on_it(build: Build, backend: Backend) -> None:
    if not can_be_foreign():
        pytest.skip("Only root may give processes a machine of their own (unshare --pid --uts).")
    installation = build(backend, TOOLFLOW_LEASE=str(LEASE))
    lost = installation.start_work(RUNS, is_foreign=True)
    (owner,) = find_owners(installation)
    assert owner.startswith("host-a")
    with installation.death("host"):
        lost.kill()
    installation.start_host("host-b", is_foreign=True)
    verdict = installation.check_end({"succeeded": RUNS})
    assert 0 < verdict.repeated <= verdict.in_flight


@pytest.mark.parametrize("frozen", ["host", pytest.param("drain", marks=pytest.mark.nightly)])
def test_a_worker_that_was_frozen_past_its_lease_writes_nothing_once_it_is_thawed(
    build: Build, backend: Backend, frozen: str
) -> None:
    installation = build(backend, TOOLFLOW_LEASE=str(LEASE))
    late = installation.start_work(RUNS)
    (owner,) = find_owners(installation)
    victims = late.processes if frozen == "host" else late.find_drains()
    freeze_between_transactions(installation, victims, backend)
    installation.start_host("host-b")
    wait_until(
        lambda: (owners := find_owners(installation)) and owner not in owners,
        within=30,
        what="the other host takes all runs over",
        explain=installation.count_runs,
    )
    thaw(victims)
    wait_until(lambda: "no longer held" in late.read_log(), within=30, what="the late worker notices")
    verdict = installation.check_end({"succeeded": RUNS})
    assert 0 < verdict.repeated <= verdict.in_flight


def freeze_between_transactions(installation: Installation, victims: list[Process], backend: Backend) -> None:
    """Freeze processes at a moment when they have nothing locked, as nothing could go on without them otherwise."""

    def freeze() -> bool:
        with installation.death("frozen worker"):
            for process in victims:
                process.send(signal.SIGSTOP)
        # More than once: what they sent just before may not have arrived yet.
        if installation.provider.in_flight and not any(is_locked(backend) for _ in range(LOOKS)):
            return True
        thaw(victims)
        installation.deaths.pop()
        return False

    wait_until(freeze, within=20, what="the worker is caught between two transactions")


def thaw(victims: list[Process]) -> None:
    for process in victims:
        process.send(signal.SIGCONT)


def is_locked(backend: Backend) -> bool:
    """Whether a process has a transaction open that could keep others from writing."""
    if backend.is_sqlite:
        connection = sqlite3.connect(urlsplit(backend.database_url).path, timeout=0.5, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
        finally:
            connection.close()
        return False
    with psycopg.connect(backend.database_url) as server:
        query = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
        )
        row = server.execute(query).fetchone()
    return row is None or row[0] > 0


@pytest.mark.nightly
def test_a_host_leaves_the_runs_of_another_that_is_alive_alone(build: Build, backend: Backend) -> None:
    installation = build(backend, latency=(4.0, 5.0), TOOLFLOW_LEASE=str(LEASE))
    installation.submit(THREE_STEPS.model_copy(update={"steps": THREE_STEPS.steps[:1]}), 10)
    installation.start_host("host-a")
    installation.wait_for_calls(10)
    installation.start_host("host-b")
    installation.check_end({"succeeded": 10}, repeated=0, calls=10)
