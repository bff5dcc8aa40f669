"""A worker that is killed while a plug-in is at work: what was paid for is stored, and no call is made again."""

from __future__ import annotations

import pytest

from tests.faults import plugins
from tests.faults.backends import Backend
from tests.faults.conftest import Build
from tests.faults.flows import SLOW_PLUGINS, STALLS
from tests.faults.host import Host
from tests.waiting import wait_until

pytestmark = pytest.mark.faults


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
    assert host.stop() == 0
