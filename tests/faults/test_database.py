"""The database restarted, away, or full: what is paid for is kept until it can be stored, and nothing is paid twice."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import LONG, RUNS, Build
from tests.faults.flows import CALLS
from tests.faults.installation import Installation
from tests.faults.services import Backend, PrivatePostgres, copy_sqlite
from tests.waiting import wait_until

pytestmark = pytest.mark.faults

LEASE = 10 if LONG else 3
"""Seconds."""
AWAY = 3 * LEASE
"""Seconds: the leases of all runs are over when the database comes back."""


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A folder with room for eight megabytes."""
    place = folder / "disk"
    place.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounting.returncode != 0:
        pytest.skip("Only root may make a small file system (mount -t tmpfs).")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def stand_still(installation: Installation) -> bool:
    """Whether every call was answered: those that follow wait for what ended to be stored."""
    return installation.provider.in_flight == 0


@pytest.mark.postgres
def test_a_restart_of_the_database_loses_nothing_and_repeats_no_call(
    build: Build, private_backend: Backend, private_postgres: PrivatePostgres
) -> None:
    installation = build(private_backend)
    installation.start_work(RUNS)
    private_postgres.stop(mode="immediate")
    private_postgres.start()
    installation.check_end({"succeeded": RUNS}, repeated=0, calls=RUNS * CALLS)


@pytest.mark.postgres
@pytest.mark.nightly
def test_workers_that_live_through_an_outage_longer_than_their_leases_keep_their_runs(
    build: Build, private_backend: Backend, private_postgres: PrivatePostgres
) -> None:
    installation = build(private_backend, TOOLFLOW_LEASE=str(LEASE))
    installation.start_work(RUNS, after=0)
    installation.start_host("host-b")
    installation.wait_for_calls(15)
    private_postgres.stop()
    stopped = time.monotonic()
    wait_until(lambda: stand_still(installation), within=30, what="calls under way end")
    calls = len(installation.provider.calls)
    wait_until(lambda: time.monotonic() - stopped >= AWAY, within=AWAY + 1, what="the leases are over")
    assert len(installation.provider.calls) == calls, "A call was made before what ended was stored."
    private_postgres.start()
    installation.check_end({"succeeded": RUNS}, repeated=0, calls=RUNS * CALLS)


@pytest.mark.postgres
@pytest.mark.nightly
def test_a_worker_that_is_killed_while_the_database_is_away_costs_only_what_it_had_not_stored(
    build: Build, private_backend: Backend, private_postgres: PrivatePostgres
) -> None:
    installation = build(private_backend)
    host = installation.start_work(RUNS)
    drains = host.find_drains()
    private_postgres.stop(mode="immediate")
    installation.kill("drain", drains)
    # The worker that takes its place finds no database to learn from what it left behind.
    wait_until(lambda: "could not be reclaimed" in host.read_log(), within=30, what="another takes its place")
    private_postgres.start()
    verdict = installation.check_end({"succeeded": RUNS})
    assert verdict.repeated <= verdict.in_flight


def test_runs_wait_while_the_disk_is_full_and_go_on_when_there_is_room(
    build: Build, sqlite_template: Path, small_disk: Path
) -> None:
    installation = build(copy_sqlite(sqlite_template, small_disk))
    host = installation.start_work(RUNS)
    ballast = small_disk / "ballast"
    fill(ballast)
    # Some room comes back whenever the database empties its log; it is taken as well.
    wait_until(
        lambda: fill(ballast) and stand_still(installation) and "can't be stored" in host.read_log(),
        within=20,
        what="nothing can be stored any more",
        explain=installation.count_runs,
    )
    calls = len(installation.provider.calls)
    assert calls < RUNS * CALLS
    ballast.unlink()
    installation.check_end({"succeeded": RUNS}, repeated=0, calls=RUNS * CALLS)


def fill(ballast: Path) -> bool:
    """Take all the room that is left on the disk."""
    with ballast.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return True
    return True
