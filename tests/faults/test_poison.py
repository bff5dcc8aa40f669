"""A run that kills its worker each time: it ends after five crashes, and the others go on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.faults import plugins
from tests.faults.backends import Backend
from tests.faults.conftest import Build
from tests.faults.flows import POISON, THREE_STEPS
from tests.faults.invariants import Death

pytestmark = pytest.mark.faults


def test_a_run_that_kills_its_worker_ends_errored_after_five_crashes_and_the_others_succeed(
    build: Build, backend: Backend
) -> None:
    installation = build(backend, latency=1.0, TOOLFLOW_PLUGINS=plugins.__name__)
    log = installation.folder / "deaths"
    installation.environment[plugins.LOG] = str(log)
    innocent = installation.submit(THREE_STEPS, 9)
    (poison,) = installation.submit(POISON, input={"is_poison": True})
    host = installation.start_host()
    installation.wait_for_all()
    for line in log.read_text().splitlines():
        moment = datetime.fromisoformat(line)
        installation.deaths.append(Death("poison", moment, moment + timedelta(seconds=1)))

    verdict = installation.judge()
    ended = {run.pk: run for run in installation.read_runs()}
    assert (ended[poison].status, ended[poison].end_reason, ended[poison].crashes) == ("errored", "crashed", 5)
    assert {ended[run].status for run in innocent} == {"succeeded"}
    assert len(installation.deaths) == 5
    assert verdict.problems == []
    assert host.stop() == 0
