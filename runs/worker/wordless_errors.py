"""Exceptions as they are logged of runs whose flow redacts something: where they were raised, without their words."""

from __future__ import annotations

DEPTH = 10
"""Exceptions that are told of, each of which led to the one before."""


class WordlessError(Exception):
    """Stands for an exception that may quote what must not be kept: has its traceback, and says its type."""


def leave_out_words(error: BaseException, *, depth: int = DEPTH) -> WordlessError:
    """What stands for an exception, and for those that it comes of. Of a group, for its first."""
    wordless = WordlessError(f"{type(error).__name__} (its words may quote what the flow redacts)")
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if isinstance(error, BaseExceptionGroup):
        before = error.exceptions[0]
    if before is not None and depth > 1:
        wordless.__cause__ = leave_out_words(before, depth=depth - 1)
    return wordless.with_traceback(error.__traceback__)
