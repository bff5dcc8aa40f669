"""Plug-ins that kill their worker, hang it, or are at work when it is killed: others go on, no call is made again."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from runs.worker.event_loop import HANG_LEASES
from tests.faults import plugins
from tests.faults.conftest import Build
from tests.faults.flows import HANG, POISON, SLOW_PLUGINS, STALLS, THREE_STEPS
from tests.faults.host import Host
from tests.faults.invariants import Death
from tests.faults.services import Backend
from tests.waiting import wait_until

pytestmark = pytest.mark.faults


@pytest.mark.nightly
def test_a_run_that_kills_its_worker_ends_errored_after_five_crashes_and_the_others_succeed(
    build: Build, backend: Backend
) -> None:
    installation = build(backend, latency=1.0, TOOLFLOW_PLUGINS=plugins.__name__)
    log = installation.folder / "deaths"
    installation.environment[plugins.LOG] = str(log)
    installation.submit(THREE_STEPS, 9)
    (poison,) = installation.submit(POISON, input={"is_poison": True})
    installation.start_host()
    installation.wait_for_all()
    for line in log.read_text().splitlines():
        moment = datetime.fromisoformat(line)
        installation.deaths.append(Death("poison", moment, moment + timedelta(seconds=1)))
    assert len(installation.deaths) == 5
    installation.check_end({"succeeded": 9, "errored": 1})
    (ended,) = [run for run in installation.read_runs() if run.pk == poison]
    assert (ended.status, ended.end_reason, ended.crashes) == ("errored", "crashed", 5)


@pytest.mark.nightly
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


def test_a_kill_while_a_plug_in_is_at_work_repeats_no_call(build: Build, backend: Backend) -> None:
    installation = build(backend, TOOLFLOW_PLUGINS=plugins.__name__)
    marks = installation.folder / "stalls"
    marks.mkdir()
    installation.environment[plugins.STALLS] = str(marks)
    (run,) = installation.submit(SLOW_PLUGINS)
    host = installation.start_host()
    for name in STALLS:
        wait_until((marks / name).exists, within=45.0, what=f"the {name} is at work", explain=installation.read_logs)
        installation.kill_bystanders("drain", host.wait_for(Host.find_drains, "drain"))
    installation.check_end({"succeeded": 1})
    assert [call.place for call in installation.provider.calls] == [(run, 1, 1), (run, 2, 1)]
