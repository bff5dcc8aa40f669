"""How long anybody waits for a lock in a PostgreSQL database, looked at fifty times a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

EACH = 0.02
"""Seconds between two looks: no wait of a tenth of a second goes unseen."""

_LONGEST = """
SELECT COALESCE(MAX(EXTRACT(EPOCH FROM clock_timestamp() - waitstart)), 0)
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE NOT granted AND datname = current_database()
"""


@dataclass
class LockWaits:
    """What was seen."""

    longest: float = 0.0
    """Seconds that somebody had been waiting for at a look, at most."""
    looks: int = 0


@contextmanager
def watching_locks(url: str) -> Iterator[LockWaits]:
    """Watch the database at ``url``; what is given is complete once the context has ended."""
    import psycopg

    waits, is_over = LockWaits(), Event()

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not is_over.wait(EACH):
                (longest,) = connection.execute(_LONGEST).fetchone() or (0,)
                waits.longest = max(waits.longest, float(longest))
                waits.looks += 1

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield waits
    finally:
        is_over.set()
        watcher.join()
