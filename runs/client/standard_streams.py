"""Standard input, output and errors: such that no character, full disk or closed pipe changes how a command ends."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from runs.client.errors import ClientError


def prepare_streams() -> None:
    """Make the streams take every character: what a terminal can’t show is written as its number.

    Standard input is UTF-8, as JSON is. A stream that is closed is like an empty one, or one that nobody reads.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # for all that comes
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig")


def silence(stream: IO[str]) -> None:
    """Drop what is still to be written to a standard stream: else Python would try once more, and fail, at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def writing_results() -> Iterator[None]:
    """Write to standard output. A reader that has seen enough is no fault: the command goes on without it.

    Raises ``ClientError`` where nothing can be written.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        raise explain_unwritable(error) from None


@contextmanager
def writing_remarks() -> Iterator[None]:
    """Write to standard error. Where that can’t be, it is left out: it stands beside the results only."""
    try:
        yield
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def explain_unwritable(error: OSError) -> ClientError:
    """What is wrong with standard output, as a sentence."""
    return ClientError(f"The results can’t be written to standard output: {error.strerror}.")
