"""Waiting for something to come true, with a deadline and never blindly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")

LOOK = 0.05
"""Seconds between looks."""


def wait_until(
    condition: Callable[[], _Result], *, within: float, what: str, explain: Callable[[], object] | None = None
) -> _Result:
    """Look until ``condition`` gives something true, and give that.

    Raises ``AssertionError`` if that takes longer than ``within`` seconds: it says ``what`` did not happen, and what
    ``explain`` says then.
    """
    deadline = time.monotonic() + within
    while not (result := condition()):
        if time.monotonic() > deadline:
            found = result if explain is None else explain()
            raise AssertionError(f"Within {within:g} seconds it did not happen that {what}: {found!r}.")
        # What is waited for happens in other processes, and nothing here could be woken by it.
        time.sleep(LOOK)
    return result
