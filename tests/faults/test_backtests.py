"""kill -9 in the middle of a backtest: it goes on behind the last batch, and counts no run twice."""

from __future__ import annotations

import pytest

from tests.faults.installation import Installation
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.nightly]

RUNS = 3_000


def test_a_backtest_whose_host_was_killed_twice_finds_what_an_undisturbed_one_finds(installation: Installation) -> None:
    ask = installation.observer.ask
    flow = ask("seed_runs", runs=RUNS)
    undisturbed = ask("ask_backtest", flow=flow)
    ask("work_off", backtest=undisturbed)
    killed = ask("ask_backtest", flow=flow)
    host, places = installation.start_host(), [0]
    for _ in range(2):
        wait_until(
            lambda: ask("read_backtest", backtest=killed)["position"] > places[-1], within=180, what="it comes on"
        )
        host.kill()
        found = ask("read_backtest", backtest=killed)
        places.append(found["position"])
        assert (found["state"], places[-1] < RUNS) == ("working", True)
        ask("age_backtest", backtest=killed)
        host.start()
    wait_until(lambda: ask("read_backtest", backtest=killed)["state"] == "done", within=180, what="it is done")
    installation.stop_hosts()
    assert ask("read_backtest", backtest=killed) == ask("read_backtest", backtest=undisturbed)
