"""A provider that fails in every way that is known: runs end as their history says, and every try is kept."""

from __future__ import annotations

import pytest

from flows.engine.simulated_model import Fault, FaultKind, Faults
from flows.engine.simulated_model.script import draw_fraction
from tests.faults.conftest import Build
from tests.faults.flows import THREE_STEPS
from tests.faults.services import Backend

pytestmark = [pytest.mark.faults, pytest.mark.nightly]

RATE = 0.2
KINDS = list(FaultKind)


class FaultsByRun(Faults):
    """Each run meets faults of one kind, which strike the first call that could meet it, and a fifth of the others."""

    def __init__(self) -> None:
        super().__init__({})
        self.drawn: dict[FaultKind, int] = dict.fromkeys(KINDS, 0)

    def draw(self, key: str, time: int) -> Fault | None:
        """The fault that strikes the call with this key, if any."""
        kind = KINDS[int(key.split("-")[-3]) % len(KINDS)]
        if self.drawn[kind] and draw_fraction(key, time) >= RATE:
            return None
        self.drawn[kind] += 1
        return Fault(kind, retry_after=0.2)


def test_runs_end_as_their_history_says_with_each_kind_of_fault_at_a_fifth_of_the_calls(
    build: Build, backend: Backend
) -> None:
    faults = FaultsByRun()
    installation = build(
        backend, latency=(0.05, 0.1), faults=faults, TOOLFLOW_CALL_TIMEOUT="2", TOOLFLOW_RUNS_IN_FLIGHT="40"
    )
    runs = 4 * len(KINDS)
    installation.submit(THREE_STEPS, runs)
    installation.start_host()
    installation.wait_for_all(within=60)
    installation.stop_hosts()
    verdict = installation.judge()
    assert (verdict.problems, verdict.repeated, verdict.runs.total()) == ([], 0, runs)
    assert all(faults.drawn.values()), faults.drawn
    struck = sum(
        attempt.outcome in {"errored", "invalid"} for run in installation.read_runs() for attempt in run.attempts
    )
    assert struck == sum(faults.drawn.values())
