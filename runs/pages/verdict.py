"""Why a run ended, with the way to the attempt that decided it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from runs.history.issue_links import anchor_attempt
from runs.history.texts import LONGEST_SENTENCE, CutText, cut_text
from runs.models import Run


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run ended. ``linked`` leads to the blocking attempt ``anchor`` and stands between ``lead`` and ``rest``.

    The sentence may quote what a model wrote: what it ends with is cut where it is long.
    """

    lead: CutText
    linked: str
    rest: CutText
    anchor: str


_NOTHING = CutText("")
_GOES_ON = r" did not pass in \d| took longer than | would take longer than |, attempt \d+: "
"""How the planner's sentences go on after the step; names may hold quotation marks of their own."""


def read_verdict(run: Run, *, most: int = LONGEST_SENTENCE) -> Verdict | None:
    """The sentence that a run ended with, or its first ``most`` characters; None for one that hasn't ended."""
    cut = cut_text(run.end_sentence, most)
    sentence = cut.text
    if not sentence:
        return None
    if run.blocking_step is None or run.blocking_attempt is None:
        return Verdict(cut, "", _NOTHING, "")
    anchor = anchor_attempt(run.blocking_step, run.blocking_attempt)
    # The planner begins its sentences with the step: that is what the reader will want to click.
    begin = f"Step {run.blocking_step} “"
    opening = re.match(f"{begin}.*?”(?={_GOES_ON})", sentence, re.DOTALL) or re.match(f"{begin}[^”]*”", sentence)
    if opening:
        return Verdict(_NOTHING, opening[0], replace(cut, text=sentence[opening.end() :]), anchor)
    return Verdict(cut, f"step {run.blocking_step}, attempt {run.blocking_attempt}", CutText("."), anchor)
