"""``python -m benchmarks``: measure, print a table for each benchmark, and each figure beside its target."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    api,
    editor,
    engine_overhead,
    growth,
    in_flight,
    live_pages,
    load,
    pages,
    recorder_ceiling,
    retention,
    start_latency,
    worker_cost,
)
from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure, print_figures, say
from benchmarks.setting import Load, Setting
from benchmarks.work import write_work
from tests.availability import find_postgres, find_redis

BENCHMARKS: dict[str, Callable[[Setting], list[Figure]]] = {
    "worker": worker_cost.measure,
    "in-flight": in_flight.measure,
    "recorder": recorder_ceiling.measure,
    "growth": growth.measure,
    "start": start_latency.measure,
    "engine": engine_overhead.measure,
    "editor": editor.measure,
    "pages": pages.measure,
    "api": api.measure,
    "live": live_pages.measure,
    "retention": retention.measure,
    "load": load.measure,
}
BY_NAME_ONLY = {"load"}
"""What takes so long that only who asks for it gets it."""


def main() -> int:
    """Run what the command line names. The exit status is 1 if a target is missed under ``--strict``."""
    parser = _build_parser()
    options = parser.parse_args()
    names = options.names or [name for name in BENCHMARKS if name not in BY_NAME_ONLY]
    if unknown := set(names) - BENCHMARKS.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="toolflow-bench-") as folder:
        setting = Setting(
            folder=Path(folder),
            work=Path(folder) / "work.json",
            rounds=options.rounds,
            runs=options.runs,
            postgres=find_postgres(),
            redis=find_redis(),
            peers=_find_peers(),
            is_long=options.long,
            load=Load(
                minutes=options.minutes,
                users=options.users,
                requests_per_second=options.requests_per_second,
                in_flight=options.in_flight,
                call_seconds=options.call_seconds,
                web_processes=options.web_processes,
                database=options.database,
            ),
        )
        _explain_absences(setting)
        write_work(setting.work)
        for name in names:
            say(f"{name} …")
            try:
                found = BENCHMARKS[name](setting)
            except ContenderError as error:
                say(f"  ✗ {error}")
                return 1
            print_figures(found)
            figures += found
    missed = [figure for figure in figures if not figure.is_met]
    if figures:
        say(f"\n{len(figures) - len(missed)} of {len(figures)} targets are met.")
    return 1 if missed and options.strict else 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)} (default: all but load)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of “worker” (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=200, help="runs of a round (default: %(default)s)")
    parser.add_argument(
        "--long",
        action="store_true",
        help="also calls of 10 seconds, growth to a million stored runs (20 GB) and on PostgreSQL, and pages and "
        "API over 250,000 runs (12 GB)",
    )
    parser.add_argument("--strict", action="store_true", help="exit status 1 if a target is missed")
    load = parser.add_argument_group("load")
    load.add_argument("--minutes", type=float, default=10, help="how long (default: %(default)s)")
    load.add_argument("--users", type=int, default=100, help="readers of run pages (default: %(default)s)")
    load.add_argument("--requests-per-second", type=float, default=20, help="over the API (default: %(default)s)")
    load.add_argument("--in-flight", type=int, default=200, help="runs under way all the time (default: %(default)s)")
    load.add_argument("--call-seconds", type=float, default=10, help="of a model call, ± half (default: %(default)s)")
    load.add_argument("--web-processes", type=int, default=2, help="of “manage.py serve” (default: %(default)s)")
    load.add_argument("--database", metavar="URL", help="a PostgreSQL server in place of SQLite, used with Redis")
    return parser


def _find_peers() -> Path | None:
    python = ROOT / ".venv-bench" / "bin" / "python"
    return python if python.exists() else None


def _explain_absences(setting: Setting) -> None:
    if setting.postgres is None or setting.redis is None:
        say("Left out: PostgreSQL or Redis does not answer; “make services” sees to that.")
    if setting.peers is None:
        say("Left out: the peers are not installed; “make bench” sees to that.")


if __name__ == "__main__":
    sys.exit(main())
