"""(j) Retention: how fast attempts are purged while runs are stored, and how long whoever stores them waits.

One process purges; another one stores runs as a drain does, 200 at a time, all the while. What others feel of it is
how long they wait for a lock, what a commit takes without and with a purge beside it, and how much less they store.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.contender import Contender
from benchmarks.figures import Figure, print_table, say
from benchmarks.installation import creating_postgres_database
from benchmarks.lock_waits import LockWaits, watching_locks
from benchmarks.setting import Setting

ATTEMPTS, MANY = 20_000, 1_000_000
"""Attempts that are purged, and with ``--long``."""
CALM = 5.0
"""Seconds that runs are stored before the purge begins."""


def measure(setting: Setting) -> list[Figure]:
    """Measure both databases, print a table, and give the figures that have targets."""
    rows: list[Sequence[str]] = []
    figures: list[Figure] = []
    with ExitStack() as stack:
        databases = [("SQLite", f"sqlite:///{setting.folder / 'retention.sqlite3'}")]
        if setting.postgres is not None:
            url = stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_retention"))
            databases.append(("PostgreSQL", url))
        for name, url in databases:
            figures += _measure_one(name, url, setting, rows)
    header = (
        *("database", "purged", "attempts", "a second", "CPU ms each", "longest transaction, ms"),
        *("stored a second", "commit, ms", "longest wait, ms"),
    )
    print_table("Retention beside a writer; commits as median / 99 %, the longest wait for a lock", header, rows)
    return figures


def _measure_one(name: str, url: str, setting: Setting, rows: list[Sequence[str]]) -> list[Figure]:
    attempts = MANY if setting.is_long else ATTEMPTS
    figures = []
    with (
        _start(f"purge on {name}", url, setting.folder) as purger,
        _start(f"write {name}", url, setting.folder) as writer,
    ):
        stored = purger.ask(fill=attempts)
        say(f"  {name}: {stored['attempts']:,} attempts stored")
        is_watched = name == "PostgreSQL"
        with _watch(url, is_watched=is_watched) as waits:
            calm = writer.ask(record=CALM)
        rows.append((name, "nothing", "", "", "", "", *_describe(calm, waits)))
        for part in ("outputs", "runs"):
            with _watch(url, is_watched=is_watched) as waits:
                purged, busy = _purge_beside(purger, writer, part)
            rate = purged["attempts"] / purged["seconds"]
            cpu = f"{purged['cpu'] * 1000 / purged['attempts']:.3f}"
            longest = f"{purged['longest'] * 1000:.0f}"
            counted = f"{purged['attempts']:,}"
            rows.append((name, part, counted, f"{rate:,.0f}", cpu, longest, *_describe(busy, waits)))
            if waits is not None:
                if waits.story:
                    say(f"  Longest wait for a lock: {waits.story}")
                kept = _rate_stored(busy) / _rate_stored(calm) * 100
                figures += [
                    Figure(f"Attempts purged ({part}) on {name}", rate, "a second", at_least=5_000),
                    Figure(f"Longest wait of a write beside it ({part})", waits.longest * 1000, "ms", at_most=100),
                    Figure(f"Attempts stored beside it ({part})", kept, "% of those without", at_least=80),
                ]
    return figures


def _purge_beside(purger: Contender, writer: Contender, part: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the purge says, and what the writer says that stored runs until it was over."""
    answers: dict[str, Any] = {}

    def write() -> None:
        answers["writer"] = writer.ask(record=0)

    thread = Thread(target=write)
    thread.start()
    try:
        answers["purger"] = purger.ask(purge=part)
    finally:
        # The writer looks for this file and stops.
        purger.ask(stop=1)
        thread.join()
    return answers["purger"], answers["writer"]


def _watch(url: str, *, is_watched: bool) -> AbstractContextManager[LockWaits | None]:
    return watching_locks(url) if is_watched else nullcontext()


def _rate_stored(answer: Mapping[str, Any]) -> float:
    """Attempts a second."""
    rate: float = answer["attempts"] / answer["seconds"]
    return rate


def _describe(answer: Mapping[str, Any], waits: LockWaits | None) -> tuple[str, str, str]:
    commits = " / ".join(f"{answer[name] * 1000:.0f}" for name in ("median", "high"))
    return f"{_rate_stored(answer):,.0f}", commits, f"{waits.longest * 1000:.0f}" if waits is not None else ""


def _start(name: str, url: str, folder: Path) -> Contender:
    data = folder / name.replace(" ", "-")
    data.mkdir(parents=True)
    environment = {
        "PATH": os.environ["PATH"],
        "TOOLFLOW_ENV_FILE": os.devnull,
        "TOOLFLOW_DATA_DIR": str(data),
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
        "BENCHMARK_STOP_FILE": str(folder / "retention-stop"),
    }
    command = [sys.executable, "-m", "benchmarks.retained"]
    return Contender(name, command, log=data / "log.txt", environment=environment)
