"""The places that requests are answered in: few at a time, so that each is soon done.

Who only waits, for a model or for the end of a run, steps aside meanwhile, and holds neither a place nor a connection
to the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from django.db import connection


class Place(Protocol):
    """What a server gives a request for the time in which it is worked on. Its functions are called in its thread."""

    def leave(self) -> None:
        """Let another request have it."""

    def take(self) -> None:
        """Wait until there is one again."""


current_place: ContextVar[Place | None] = ContextVar("current_place", default=None)
"""The place of the request that is being answered; None where nobody counts them."""


@contextmanager
def stepping_aside() -> Iterator[None]:
    """Let others be answered as long as this request only waits."""
    give_back_connection()
    place = current_place.get()
    if place is None:
        yield
        return
    place.leave()
    try:
        yield
    finally:
        place.take()


def give_back_connection() -> None:
    """Let others have the connection if it is one of a pool. To open one anew costs more than it holds; one that is no
    pool's belongs to this thread between requests as well.
    """
    if connection.settings_dict.get("OPTIONS", {}).get("pool") and not connection.in_atomic_block:
        connection.close()
