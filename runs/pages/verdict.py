"""Why a run ended, with the way to the attempt that decided it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runs.models import Run
from runs.pages.issue_links import anchor_attempt
from runs.pages.json_lines import show_invisible


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run ended. ``linked`` leads to the blocking attempt ``anchor`` and stands between ``lead`` and ``rest``."""

    lead: str
    linked: str
    rest: str
    anchor: str


_GOES_ON = r" did not pass in \d| took longer than | would take longer than |, attempt \d+: "
"""How the planner's sentences go on after the step; names may hold quotation marks of their own."""


def read_verdict(run: Run) -> Verdict | None:
    """The sentence that a run ended with; None for one that hasn't."""
    sentence = show_invisible(run.end_sentence)
    if not sentence:
        return None
    if run.blocking_step is None or run.blocking_attempt is None:
        return Verdict(sentence, "", "", "")
    anchor = anchor_attempt(run.blocking_step, run.blocking_attempt)
    # The planner begins its sentences with the step: that is what the reader will want to click.
    begin = f"Step {run.blocking_step} “"
    opening = re.match(f"{begin}.*?”(?={_GOES_ON})", sentence, re.DOTALL) or re.match(f"{begin}[^”]*”", sentence)
    if opening:
        return Verdict("", opening[0], sentence[opening.end() :], anchor)
    return Verdict(f"{sentence} See ", f"step {run.blocking_step}, attempt {run.blocking_attempt}", ".", anchor)
