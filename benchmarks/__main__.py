"""``python -m benchmarks``: measure, print a table for each benchmark, and each figure beside its target."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import api, backtest, engine_overhead, in_flight, pages, retention, start_latency, worker_cost
from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure, Setting, say
from benchmarks.work import write_work
from tests.availability import find_postgres, find_redis

BENCHMARKS: dict[str, Callable[[Setting], list[Figure]]] = {
    "worker": worker_cost.measure,
    "in-flight": in_flight.measure,
    "start": start_latency.measure,
    "engine": engine_overhead.measure,
    "pages": pages.measure,
    "api": api.measure,
    "retention": retention.measure,
    "backtest": backtest.measure,
}


def main() -> int:
    """Run what the command line names. The exit status is 1 if a target is missed under ``--strict``."""
    parser = build_parser()
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}")
    peers = ROOT / ".venv-bench" / "bin" / "python"
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="toolflow-bench-") as folder, ExitStack() as stack:
        setting = Setting(
            folder=Path(folder),
            work=Path(folder) / "work.json",
            rounds=options.rounds,
            runs=options.runs,
            postgres=find_postgres(),
            redis=find_redis(),
            peers=peers if peers.exists() else None,
            is_long=options.long,
            stack=stack,
        )
        if setting.postgres is None or setting.redis is None:
            say("Left out: PostgreSQL or Redis does not answer; start them with “make services”.")
        if setting.peers is None:
            say("Left out: the peers are not installed; “make bench” installs them.")
        write_work(setting.work)
        for name in options.names or BENCHMARKS:
            say(f"{name} …")
            try:
                found = BENCHMARKS[name](setting)
            except ContenderError as error:
                say(f"  ✗ {error}")
                return 1
            for figure in found:
                say(figure.describe())
            figures += found
    missed = [figure for figure in figures if not figure.is_met]
    if figures:
        say(f"\n{len(figures) - len(missed)} of {len(figures)} targets are met.")
    return 1 if missed and options.strict else 0


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join(BENCHMARKS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{names} (default: all)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of “worker” (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=200, help="runs of a round (default: %(default)s)")
    parser.add_argument(
        "--long", action="store_true", help="also calls of 10 seconds, and pages and API over 250,000 runs (12 GB)"
    )
    parser.add_argument("--strict", action="store_true", help="exit status 1 if a target is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
