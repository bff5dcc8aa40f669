"""(d) What a run costs the worker while the database grows."""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median

from benchmarks.contender import Contender, start_bare
from benchmarks.figures import Figure, print_table, say
from benchmarks.installation import creating_postgres_database, start_installation
from benchmarks.model_server import serving_model
from benchmarks.setting import Setting
from benchmarks.worker_cost import IN_FLIGHT, LATENCY, WARM_UP

ROUNDS = 3
RUNS = 100
FEW, MANY, MOST = 10**3, 10**5, 10**6
GIB = 1024**3


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figures that have targets."""
    rows, figures = [], []
    with ExitStack() as stack:
        base_url = stack.enter_context(serving_model(LATENCY))
        bare = stack.enter_context(start_bare(base_url=base_url, work=setting.work, folder=setting.folder))
        databases = [("SQLite", "")]
        if setting.postgres is not None and setting.is_long:
            url = stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_growth"))
            databases.append(("PostgreSQL", url))
        for name, url in databases:
            with start_installation(
                f"growth on {name}", base_url=base_url, folder=setting.folder, database_url=url, in_flight=IN_FLIGHT
            ) as grown:
                costs = {}
                stored = WARM_UP
                grown.ask(runs=WARM_UP)
                for total in (FEW, MANY, MOST) if setting.is_long else (FEW, MANY):
                    began = time.monotonic()
                    grown.ask(fill=total - stored)
                    filled = time.monotonic() - began
                    costs[total], rate = _run_rounds(bare, grown)
                    stored = total + ROUNDS * RUNS
                    size = grown.ask(size=1)["size"] / GIB
                    say(f"  {name}, {total:,} stored runs: filled in {filled:.0f} s")
                    rows.append((name, f"{total:,}", f"{size:.2f}", f"{costs[total]:.2f}", f"{rate:.0f}"))
            grows = max(costs.values()) / costs[FEW]
            figures.append(Figure(f"Cost of a run on {name} with many stored", grows, "× that with few", at_most=1.25))
    header = ("database", "stored runs", "GiB", "CPU of the drain, × bare", "runs a second")
    print_table(f"Cost of a run while the database grows, {IN_FLIGHT} in flight, medians of {ROUNDS}", header, rows)
    return figures


def _run_rounds(bare: Contender, grown: Contender) -> tuple[float, float]:
    """CPU of the drain in units of the bare calls, and runs a second."""
    ratios, rates = [], []
    for _ in range(ROUNDS):
        reference = bare.ask(runs=RUNS, in_flight=IN_FLIGHT)
        answer = grown.ask(runs=RUNS)
        ratios.append(answer["cpu"] / reference["cpu"])
        rates.append(RUNS / answer["wall"])
    return median(ratios), median(rates)
