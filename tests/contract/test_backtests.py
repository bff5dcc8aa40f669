"""Backtests against the engine itself: stored runs decide as they did, and predictions come true."""

from __future__ import annotations

import random
import socket
from collections import Counter

import pytest

from flows.engine.backtest import backtest_run
from flows.engine.backtest_result import BacktestKind, BacktestReason, RunBacktest
from flows.engine.history import sum_usage
from tests.conftest import IS_LONG
from tests.contract.engine_net import REGISTRY
from tests.contract.past_runs import PastRun, change_spec, make_past_run, run_case

IDENTITY_CASES = 5_000 if IS_LONG else 250
CANDIDATE_CASES = 2_000 if IS_LONG else 60


@pytest.fixture(autouse=True)
def _no_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("A backtest reaches nobody.")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)


async def test_each_run_decides_under_its_own_definition_as_it_did() -> None:
    kinds: Counter[str] = Counter()
    for number in range(IDENTITY_CASES):
        past = await make_past_run(5, number)
        if past is None:
            continue
        found = await backtest_run(past.spec, past.spec, past.history, registry=REGISTRY)
        kinds[found.kind] += 1
        if found.kind is BacktestKind.SAME:
            assert not (found.step or found.gone or found.new or found.attempts_saved or found.is_hypothetical), number
            assert found.ended == found.ends
            assert past.finish is None or found.ended in (None, past.finish.status)
        else:
            assert (found.kind, found.reason) == (BacktestKind.NOT_REPRODUCIBLE, BacktestReason.REDACTED), number
    assert kinds[BacktestKind.NOT_REPRODUCIBLE] <= 0.05 * kinds[BacktestKind.SAME]


async def test_what_is_predicted_comes_true() -> None:
    kinds: Counter[str] = Counter()
    for number in range(CANDIDATE_CASES):
        past = await make_past_run(8, number, is_plain=True)
        for chance in range(3 if past is not None else 0):
            assert past is not None
            candidate = change_spec(past.spec, random.Random(f"{number}:{chance}"))
            found = await backtest_run(past.spec, candidate, past.history, registry=REGISTRY)
            real = await run_case(past.case, candidate, past.history.initial_input)
            assert _find_error(found, past, real) == "", (number, chance)
            kinds[found.kind] += 1
    assert kinds.keys() >= {BacktestKind.SAME, BacktestKind.SOONER, BacktestKind.REFUSED, BacktestKind.BEYOND}


def _find_error(found: RunBacktest, past: PastRun, real: PastRun) -> str:
    """Where a run of the candidate shows that the prediction was wrong. Replies don't depend on what is asked."""
    if found.ends is not None and (real.finish is None or real.finish.status is not found.ends):
        return "its end"
    used, uses = (sum_usage(attempt.usage for attempt in run.history) for run in (past, real))
    if found.ends is not None and found.kind is not BacktestKind.REFUSED and used != sum_usage([uses, found.saved]):
        return "what it saves"
    if found.further_calls and found.blocking is not None:
        made, would_be_made = (len(run.history.attempts(found.blocking[0])) for run in (past, real))
        return "" if would_be_made > made else "further calls"
    return ""
