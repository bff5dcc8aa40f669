"""``python -m tests.faults``: the long form of the fault suite, as ``make faults`` runs it.

Kills processes of two installations, one on SQLite and one on PostgreSQL with Redis, side by side, while they work
through their runs, and prints what came of it. The exit status is 1 if anything was lost, stored twice, or wrong.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from flows.engine.simulated_model import SimulatedModel
from tests.availability import explain_absence, find_postgres, find_redis
from tests.databases import hold_database, make_sqlite_template, migrate
from tests.faults.flows import SCRIPT, THREE_STEPS
from tests.faults.host import Host
from tests.faults.installation import Installation
from tests.faults.invariants import Verdict
from tests.faults.provider import CountingModel
from tests.faults.services import Backend, choose_redis_database, copy_sqlite
from tests.waiting import wait_until

LATENCY = (0.05, 0.2)
"""Seconds that the provider takes to answer."""
BACKENDS = {"sqlite": "SQLite", "postgres": "PostgreSQL and Redis"}
BACKLOG = 20
"""Runs that are queued beyond those that are due, so that there is always something to be killed in."""
TIMEOUT = 180.0
"""Seconds within which everything has to have ended after the last kill: a lease, two sweeps, and the work itself."""
EXPECTED_ENDS = {"succeeded (all_steps_passed)", "errored (crashed)"}
"""The second is for runs that were under way at five kills."""
VICTIMS = {"drain": 5, "idle worker": 1, "dispatcher": 1, "supervisor": 1, "main": 1, "cluster": 1}
"""What is killed, and how often in proportion."""


class Storm:
    """An installation whose processes are killed at random, again and again, while it works through its runs."""

    def __init__(self, name: str, installation: Installation, options: argparse.Namespace, stop: threading.Event):
        """``options`` are those of the command, all numbers shared by the backends; ``stop`` ends it early."""
        share = len(options.backends)
        self._name = name
        self._installation = installation
        self._kills = -(-options.kills // share)
        self._runs = -(-options.runs // share)
        self._pace = options.pace
        self._chance = random.Random(options.seed)
        self._stop = stop
        self._struck: Counter[str] = Counter()

    def rage(self) -> bool:
        """Kill until all kills are done, wait until all runs have ended, judge, and tell. Whether all is well."""
        started = time.monotonic()
        try:
            self._kill_all()
            self._installation.wait_for_all(within=TIMEOUT)
        except AssertionError as error:
            self._print(f"{error}\n{self._installation.read_logs()}")
            return False
        verdict = self._installation.judge()
        verdict.problems += [f"Runs ended {end}." for end in verdict.ends.keys() - EXPECTED_ENDS]
        self._print("\n".join(self._describe(verdict, time.monotonic() - started)))
        return not (verdict.problems or verdict.lost or verdict.stored_twice)

    def _kill_all(self) -> None:
        installation = self._installation
        flow = installation.publish(THREE_STEPS)
        host = installation.start_host()
        backlog = min(BACKLOG, self._runs // 2)
        submitted = 0
        for kill in range(1, self._kills + 1):
            due = backlog + math.ceil(kill * (self._runs - backlog) / self._kills) - submitted
            if due <= 0 and installation.have_all_ended():
                # Beyond what was asked for, but there has to be something to be killed in.
                due = 1
            if due > 0:
                installation.submit(flow, due)
                submitted += due
            what = "calls are in flight"
            wait_until(lambda: installation.provider.in_flight, within=TIMEOUT, what=what, explain=self._count)
            # This is the pace; only an end of the storm is worth cutting it short.
            self._stop.wait(self._chance.uniform(0, self._pace))
            (victim,) = self._chance.choices(list(VICTIMS), weights=list(VICTIMS.values()))
            self._struck[victim] += 1
            self._strike(host, victim)
            if kill % 25 == 0:
                self._print(f"{kill} kills, runs: {self._count()}")
            if self._stop.is_set():
                return

    def _strike(self, host: Host, victim: str) -> None:
        installation = self._installation
        match victim:
            case "drain":
                installation.kill(victim, host.wait_for(Host.find_drains, victim))
            case "idle worker":
                installation.kill_bystanders(victim, host.wait_for(Host.find_idle_workers, victim))
            case "dispatcher":
                installation.kill_bystanders(victim, host.wait_for(Host.find_dispatcher, victim))
            case "cluster":
                with installation.death(victim):
                    host.kill()
                host.start()
            case _:
                head = [host.main] if victim == "main" else host.wait_for(Host.find_supervisor, victim)
                with installation.death(victim):
                    installation.kill_bystanders(victim, head)
                    host.wait_for_end()
                host.start()

    def _count(self) -> str:
        return list_counts(Counter(self._installation.count_runs()))

    def _describe(self, verdict: Verdict, seconds: float) -> Iterator[str]:
        """The lines of a table of what it brought."""
        rows = {
            "Kills": f"{self._struck.total()}: {list_counts(self._struck)}",
            "Runs ended": f"{verdict.ends.total()} of {verdict.runs.total()}: {list_counts(verdict.ends)}",
            "Attempts stored": f"{verdict.attempts}",
            "Stored twice": f"{verdict.stored_twice}",
            "Lost": f"{verdict.lost}",
            "Calls repeated": f"{verdict.repeated} of {verdict.in_flight} that were in flight at a kill",
            "Longest stuck": f"{verdict.longest_stuck.total_seconds():.1f} s",
            "Took": f"{seconds / 60:.1f} min",
        }
        yield BACKENDS[self._name]
        yield from (f"  {name:<16} {value}" for name, value in rows.items())
        yield from (f"  WRONG: {problem}" for problem in verdict.problems)

    def _print(self, text: str) -> None:
        # All at once, so that no lines of others are in between.
        sys.stdout.write("".join(f"{self._name:<9} {line}\n" for line in text.splitlines()))
        sys.stdout.flush()


def list_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def main() -> int:
    """Run the storms; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--kills", type=int, default=1_000, help="in all, shared between the backends")
    parser.add_argument("--runs", type=int, default=2_000, help="in all, shared between the backends")
    parser.add_argument("--pace", type=float, default=1.0, metavar="SECONDS", help="the longest pause between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    options = parser.parse_args()
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=len(options.backends)) as pool:
        storms = [pool.submit(run_storm, name, options, stop) for name in options.backends]
        try:
            return int(not all(storm.result() for storm in storms))
        except BaseException:
            # The others end in order, with all their processes.
            stop.set()
            raise


def run_storm(name: str, options: argparse.Namespace, stop: threading.Event) -> bool:
    """One storm on one backend; gives whether all went well."""
    with tempfile.TemporaryDirectory(prefix="toolflow-faults-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with hold_backend(name, folder) as backend:
            provider = CountingModel(SimulatedModel(script=SCRIPT, keep_calls=0), latency=LATENCY)
            installation = Installation(folder=folder, backend=backend, provider=provider, environment={})
            try:
                return Storm(name, installation, options, stop).rage()
            finally:
                installation.close()


@contextmanager
def hold_backend(name: str, folder: Path) -> Iterator[Backend]:
    """A backend of the storm's own. Ends the program if this machine lacks its parts."""
    if name == "sqlite":
        yield copy_sqlite(make_sqlite_template(folder), folder)
        return
    postgres_url, redis_url = find_postgres(), find_redis()
    if postgres_url is None or redis_url is None:
        raise SystemExit(explain_absence("redis" if postgres_url else "postgres"))
    with hold_database(postgres_url) as url:
        migrate(url, folder)
        yield Backend(url, choose_redis_database(redis_url))


if __name__ == "__main__":
    sys.exit(main())
