"""Which attempts of a run page show what changed instead of their output: what the URL names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runs.pages.attempt_view import AttemptView

MOST_COMPARED = 10
"""Of so many attempts one page shows the difference."""

_NAME = re.compile(r"s([0-9]{1,4})a([0-9]{1,6})")


def read_compared(text: str) -> tuple[str, ...]:
    """The ids of attempts that ``?diff=`` names, whatever they are: ``s2a2,s3a2``."""
    return tuple(dict.fromkeys(name for name in text.split(",") if name))


def find_problem(compared: Sequence[str], attempts: Sequence[AttemptView]) -> str:
    """A sentence about what ``?diff=`` names and can't be compared; empty if all is well."""
    if len(compared) > MOST_COMPARED:
        return f"At most {MOST_COMPARED} attempts can be compared on one page; the first {MOST_COMPARED} are."
    comparable = {attempt.id for attempt in attempts if attempt.compared_with is not None}
    for name in compared:
        if name in comparable:
            continue
        place = _NAME.fullmatch(name)
        if place is None:
            shown = name if len(name) <= 40 else f"{name[:40]}…"
            return f"“{shown}” is no attempt that can be compared; one is named like s2a3: step 2, attempt 3."
        return f"Step {int(place[1])}, attempt {int(place[2])} has no output, or none before it, to be compared."
    return ""
