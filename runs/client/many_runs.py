"""Waiting for many runs that have a label in common, and telling what became of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runs.client.errors import RUN_EXITS, SUCCEEDED, ClientError
from runs.client.printing import format_plural, paint, print_line
from runs.client.progress import RARELY, Progress
from runs.client.server import Server
from runs.client.waiting import look_patiently

FIRST_PAUSE = 0.5
LAST_PAUSE = 5.0
"""Seconds between looks: the longer runs take, the less a moment counts."""
MAX_COUNTED = 2_000
"""Runs that are counted at each look; of more it is only known that they are more."""
ALL = 1_000_000
"""More runs than one label has."""

_GRAVEST_FIRST = ("errored", "failed", "cancelled", "succeeded")


def wait_for_label(server: Server, label: str, count: int) -> None:
    """Come back once none of the ``count`` runs with this label is queued or running.

    Raises ``ClientError`` that says how to get what comes of them later.
    """
    pause = FIRST_PAUSE
    try:
        with naming_export(label, "The runs go on"), Progress(pause=RARELY) as progress:
            while left := look_patiently(lambda: _count_unfinished(server, label)):
                more = " or fewer" if left >= MAX_COUNTED else ""
                progress.tell(f"{max(count - left, 0):,}{more} of {format_plural(count, 'run')} have ended")
                time.sleep(pause)
                pause = min(LAST_PAUSE, pause * 1.3)
    except KeyboardInterrupt:
        print_line(f"\nThe runs go on; “toolflow cancel --label {label}” would end them.", is_error=True)
        raise


@contextmanager
def naming_export(label: str, state: str) -> Iterator[None]:
    """Say how the runs are with this label, and how to get what comes of them later. Raises ``ClientError``."""
    try:
        yield
    except ClientError as error:
        later = f" {state}; “toolflow export --label {label} --attempts” gives what came of them."
        raise ClientError(error.sentence + later, error.details) from None


def _count_unfinished(server: Server, label: str) -> int:
    return sum(1 for _ in server.list("runs", MAX_COUNTED, label=label, status="queued,running"))


def list_labelled(server: Server, label: str) -> list[dict[str, Any]]:
    """All runs with this label, the oldest first."""
    return list(server.list("runs", ALL, label=label))[::-1]


def tell_outcomes(statuses: Iterable[str]) -> int:
    """Say beside the results how many runs ended how. Gives the gravest exit status."""
    counted = Counter(statuses)
    for status in _GRAVEST_FIRST:
        if counted[status]:
            print_line(format_plural(counted[status], "run"), " ", paint(status), is_error=True)
    return find_gravest(counted)


def find_gravest(counted: Mapping[str, int]) -> int:
    """The exit status for runs of which so many have each status: errors and cancelled ones before failures."""
    return max((RUN_EXITS[status] for status, count in counted.items() if count), default=SUCCEEDED)
