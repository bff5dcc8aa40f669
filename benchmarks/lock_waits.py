"""How long anybody waits for a lock in a PostgreSQL database, looked at fifty times a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

EACH = 0.02
"""Seconds between two looks: no wait of a tenth of a second goes unseen."""

_LONGEST = """
SELECT EXTRACT(EPOCH FROM clock_timestamp() - waitstart), waiter.query,
    (SELECT string_agg(blocker.backend_type || ' with ' || blocker.query, ' and ')
     FROM pg_stat_activity AS blocker WHERE blocker.pid = ANY(pg_blocking_pids(waiter.pid)))
FROM pg_locks JOIN pg_stat_activity AS waiter USING (pid)
WHERE NOT granted AND waiter.datname = current_database() AND waiter.backend_type = 'client backend'
ORDER BY waitstart LIMIT 1
"""
_LONGEST_TEXT = 200
"""Characters that are told of a query."""


@dataclass
class LockWaits:
    """What was seen of connections that waited; what the server does by itself may wait without anybody noticing."""

    longest: float = 0.0
    """Seconds that somebody had been waiting for at a look, at most."""
    story: str = ""
    """Who that was, and who held the lock; empty if nobody waited."""
    looks: int = 0

    def note(self, waited: float, waiter: str, holder: str) -> None:
        """Keep it if it is the longest so far."""
        if waited > self.longest:
            self.longest = waited
            self.story = f"{waiter[:_LONGEST_TEXT]} waited for {holder[:_LONGEST_TEXT]}"


@contextmanager
def watching_locks(url: str) -> Iterator[LockWaits]:
    """Watch the database at ``url``; what is given is complete once the context has ended."""
    import psycopg

    waits, is_over = LockWaits(), Event()

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not is_over.wait(EACH):
                for waited, waiter, holder in connection.execute(_LONGEST):
                    # Between a request for a lock and the beginning of the wait there is no time yet.
                    waits.note(float(waited or 0), waiter, holder or "somebody who is gone")
                waits.looks += 1

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield waits
    finally:
        is_over.set()
        watcher.join()
