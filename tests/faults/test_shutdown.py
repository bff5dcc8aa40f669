"""Orderly stops with calls under way: no call is broken off, and so none is paid for twice."""

from __future__ import annotations

import signal

import pytest

from tests.faults.conftest import RUNS, Build
from tests.faults.flows import CALLS
from tests.faults.installation import Installation
from tests.faults.services import Backend
from tests.waiting import wait_until

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("receivers", [pytest.param("main process", marks=pytest.mark.nightly), "process group"])
def test_a_stop_lets_calls_end_and_hands_runs_back(installation: Installation, receivers: str) -> None:
    host = installation.start_work(RUNS)
    for process in host.processes if receivers == "process group" else [host.main]:
        process.send(signal.SIGTERM)
    assert host.wait_for_end() == 0
    assert installation.provider.in_flight == 0
    assert installation.count_runs().keys() <= {"queued", "succeeded"}
    assert installation.judge().problems == []

    host.start()
    installation.check_end({"succeeded": RUNS}, repeated=0, calls=RUNS * CALLS)


def test_a_second_signal_breaks_long_calls_off_and_only_those_are_made_again(build: Build, backend: Backend) -> None:
    installation = build(backend, latency=60.0)
    host = installation.start_work(5, after=5)
    host.main.send(signal.SIGTERM)
    wait_until(lambda: "Worker stops" in host.read_log(), within=10, what="the worker says that it stops")
    assert installation.provider.in_flight == 5
    installation.provider.latency = 0.1
    with installation.death("hurried stop"):
        assert host.stop() == 0
    host.start()
    installation.check_end({"succeeded": 5}, repeated=5)


@pytest.mark.nightly
def test_calls_that_outlast_the_time_of_a_stop_are_interrupted_and_only_those_are_made_again(
    build: Build, backend: Backend
) -> None:
    installation = build(backend, latency=60.0, TOOLFLOW_STOP_SECONDS="1")
    host = installation.start_work(5, after=5)
    with installation.death("stop"):
        assert host.stop() == 0
    assert installation.count_runs() == {"queued": 5}
    installation.provider.latency = 0.1
    host.start()
    installation.check_end({"succeeded": 5}, repeated=5)
