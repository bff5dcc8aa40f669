"""Showing whoever watches this process that its event loop turns."""

from __future__ import annotations

from collections.abc import Callable


class Watchdog:
    """Puts off the moment when the process counts as hung and is killed, for as long as its drain is alive.

    A drain may have to outlast any bound of time: it keeps the results of calls for a database that is away.
    """

    def __init__(self) -> None:
        self._put_off: Callable[[], None] | None = None

    def attach(self, put_off: Callable[[], None]) -> None:
        """From now on call ``put_off`` on every sign of life."""
        self._put_off = put_off

    def keep_alive(self) -> None:
        """Give a sign of life. Nothing happens where nobody watches."""
        if self._put_off is not None:
            self._put_off()


watchdog = Watchdog()
"""The watchdog of this process."""
