"""What keeps a command from doing what it was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SUCCEEDED, FAILED, ERRORED, REFUSED = range(4)
"""Exit statuses."""

RUN_EXITS = {"succeeded": SUCCEEDED, "failed": FAILED, "errored": ERRORED, "cancelled": ERRORED}
"""Exit statuses by what became of a run."""


class ClientError(Exception):
    """A sentence for whoever typed the command, and what is wrong in detail, a line each. Ends it with ``REFUSED``."""

    def __init__(self, sentence: str, details: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.details = tuple(details)


class NothingThereError(ClientError):
    """The server knows nothing under the address."""


class UnreachableError(ClientError):
    """The server can't answer now; in a while it may. ``pause`` is how many seconds it asked for."""

    def __init__(self, sentence: str, pause: float | None = None) -> None:
        super().__init__(sentence)
        self.pause = pause


class InUseError(UnreachableError):
    """The first request with the same key is still under way; its answer will be that of the next one."""


class SilenceError(Exception):
    """Nothing came of a stream for as long as somebody had patience."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say what it is that is not there: the server knows addresses only. Raises ``ClientError``."""
    try:
        yield
    except NothingThereError:
        raise ClientError(f"There is no {what}.") from None
