"""``python -m tests.faults``: the long form of the fault suite, as ``make faults`` runs it.

Kills processes of two installations, one on SQLite and one on PostgreSQL with Redis, side by side, while they work
through their runs, and prints what came of it. The exit status is 1 if anything was lost, stored twice, or wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flows.engine.simulated_model import SimulatedModel
from tests.availability import explain_absence, find_postgres, find_redis
from tests.databases import hold_database, make_sqlite_template, migrate
from tests.faults.backends import Backend, choose_redis_database, copy_sqlite
from tests.faults.flows import SCRIPT
from tests.faults.installation import Installation
from tests.faults.provider import CountingModel
from tests.faults.storm import Storm, describe_storm

LATENCY = (0.05, 0.2)
"""Seconds that the provider takes to answer."""
BACKENDS = {"sqlite": "SQLite", "postgres": "PostgreSQL and Redis"}

_print_lock = threading.Lock()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storms; gives the exit status."""
    options = build_parser().parse_args(arguments)
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=len(options.backends)) as pool:
        storms = [pool.submit(run_storm, backend, options, stop) for backend in options.backends]
        try:
            return max([storm.result() for storm in storms])
        except BaseException:
            # The others end in order, with all their processes.
            stop.set()
            raise


def build_parser() -> argparse.ArgumentParser:
    """The parameters, with their defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--kills", type=int, default=1_000, help="in all, shared between the backends")
    parser.add_argument("--runs", type=int, default=2_000, help="in all, shared between the backends")
    parser.add_argument("--pace", type=float, default=1.0, metavar="SECONDS", help="the longest pause between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    return parser


def run_storm(name: str, options: argparse.Namespace, stop: threading.Event) -> int:
    """One storm on one backend; gives the exit status."""
    share = len(options.backends)
    tell = partial(say, name)
    with tempfile.TemporaryDirectory(prefix="toolflow-faults-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with hold_backend(name, folder) as backend:
            provider = CountingModel(SimulatedModel(script=SCRIPT, keep_calls=0), latency=LATENCY)
            installation = Installation(folder=folder, backend=backend, provider=provider, environment={})
            storm = Storm(
                installation,
                kills=-(-options.kills // share),
                runs=-(-options.runs // share),
                pace=options.pace,
                seed=options.seed,
                tell=tell,
                stop=stop,
            )
            started = time.monotonic()
            try:
                verdict = storm.rage()
            except AssertionError as error:
                tell(f"{error}\n{installation.read_logs()}")
                return 1
            finally:
                installation.close()
    tell("\n".join(describe_storm(BACKENDS[name], storm, verdict, time.monotonic() - started)))
    return 1 if verdict.problems or verdict.lost or verdict.stored_twice else 0


@contextmanager
def hold_backend(name: str, folder: Path) -> Iterator[Backend]:
    """A backend of the storm's own. Ends the program if this machine lacks its parts."""
    if name == "sqlite":
        yield copy_sqlite(make_sqlite_template(folder), folder)
        return
    postgres_url, redis_url = find_postgres(), find_redis()
    for part, url in (("postgres", postgres_url), ("redis", redis_url)):
        if url is None:
            raise SystemExit(explain_absence(part))
    assert postgres_url and redis_url
    with hold_database(postgres_url) as url:
        migrate(url, folder)
        yield Backend(url, choose_redis_database(redis_url))


def say(name: str, text: str) -> None:
    """Print lines, each with what they are about, and those of others not in between."""
    with _print_lock:
        sys.stdout.writelines(f"{name:<9} {line}\n" for line in text.splitlines())
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
