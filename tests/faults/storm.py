"""A storm: an installation whose processes are killed at random, again and again, while it works through its runs."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.faults.flows import THREE_STEPS
from tests.faults.host import Host
from tests.faults.installation import Installation
from tests.faults.invariants import Verdict
from tests.waiting import wait_until

BACKLOG = 20
"""Runs that are queued beyond those that are due, so that there is always something to be killed in."""
PATIENCE = 180.0
"""Seconds within which everything has to have ended after the last kill: a lease, two sweeps, and the work itself."""

EXPECTED_ENDS = {"succeeded (all_steps_passed)", "errored (crashed)"}
"""The second is for runs that were under way at five kills."""

VICTIMS = {"drain": 5, "idle worker": 1, "dispatcher": 1, "supervisor": 1, "main": 1, "cluster": 1}
"""What is killed, and how often in proportion."""


@dataclass
class Storm:
    """``kills`` over ``runs``, with up to ``pace`` seconds between two kills once calls are in flight."""

    installation: Installation
    kills: int
    runs: int
    pace: float
    seed: int
    tell: Callable[[str], None]
    stop: threading.Event = field(default_factory=threading.Event)
    """Ends the storm after the next kill."""
    struck: Counter[str] = field(default_factory=Counter)

    def rage(self) -> Verdict:
        """Kill until all kills are done, wait until all runs have ended, and judge. Raises ``AssertionError``."""
        chance = random.Random(self.seed)
        flow = self.installation.publish(THREE_STEPS)
        host = self.installation.start_host()
        backlog = min(BACKLOG, self.runs // 2)
        submitted = 0
        for kill in range(1, self.kills + 1):
            due = backlog + math.ceil(kill * (self.runs - backlog) / self.kills) - submitted
            if due <= 0 and self.installation.have_all_ended():
                # Beyond what was asked for, but there has to be something to be killed in.
                due = 1
            if due > 0:
                self.installation.submit(flow, due)
                submitted += due
            wait_until(self._has_prey, within=PATIENCE, what="calls are in flight", explain=self.describe)
            # This is the pace; only an end of the storm is worth cutting it short.
            self.stop.wait(chance.uniform(0, self.pace))
            (victim,) = chance.choices(list(VICTIMS), weights=list(VICTIMS.values()))
            self._strike(host, victim)
            if kill % 25 == 0:
                self.tell(f"{kill} kills, runs: {self.describe()}")
            if self.stop.is_set():
                break
        self.installation.wait_for_all(within=PATIENCE)
        verdict = self.installation.judge()
        verdict.problems += [f"Runs ended {end}." for end in verdict.ends.keys() - EXPECTED_ENDS]
        return verdict

    def describe(self) -> str:
        """How the runs stand."""
        return ", ".join(f"{count} {status}" for status, count in sorted(self.installation.count_runs().items()))

    def _has_prey(self) -> bool:
        return self.installation.provider.in_flight > 0

    def _strike(self, host: Host, victim: str) -> None:
        installation = self.installation
        self.struck[victim] += 1
        if victim == "drain":
            installation.kill(victim, host.wait_for(Host.find_drains, victim))
        elif victim == "idle worker":
            installation.kill_bystanders(victim, host.wait_for(Host.find_idle_workers, victim))
        elif victim == "dispatcher":
            installation.kill_bystanders(victim, host.wait_for(Host.find_dispatcher, victim))
        elif victim == "cluster":
            with installation.death(victim):
                host.kill()
            host.start()
        else:
            head = [host.main] if victim == "main" else host.wait_for(Host.find_supervisor, victim)
            with installation.death(victim):
                installation.kill_bystanders(victim, head)
                host.wait_for_end()
            host.start()


def describe_storm(title: str, storm: Storm, verdict: Verdict, seconds: float) -> Iterator[str]:
    """The lines of a table of what a storm brought."""
    rows = {
        "Kills": f"{storm.struck.total()}: {_list(storm.struck)}",
        "Runs ended": f"{verdict.ends.total()} of {verdict.runs.total()}: {_list(verdict.ends)}",
        "Attempts stored": f"{verdict.attempts}",
        "Stored twice": f"{verdict.stored_twice}",
        "Lost": f"{verdict.lost}",
        "Calls repeated": f"{verdict.repeated} of {verdict.in_flight} that were in flight at a kill",
        "Longest stuck": f"{verdict.longest_stuck.total_seconds():.1f} s",
        "Took": f"{seconds / 60:.1f} min",
    }
    yield title
    yield from (f"  {name:<16} {value}" for name, value in rows.items())
    yield from (f"  WRONG: {problem}" for problem in verdict.problems)


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
