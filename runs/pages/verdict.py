"""Why a run ended, with the way to the attempt that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flows.engine.spec import StepSpec
from runs.models import Run
from runs.pages.json_lines import show_invisible


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run ended. ``linked`` leads to the blocking attempt ``anchor`` and stands between ``lead`` and ``rest``."""

    lead: str
    linked: str
    rest: str
    anchor: str


def read_verdict(run: Run, steps: Sequence[StepSpec]) -> Verdict | None:
    """The sentence that a run of these steps ended with; None for one that hasn't."""
    sentence = show_invisible(run.end_sentence)
    if not sentence:
        return None
    if run.blocking_step is None or run.blocking_attempt is None:
        return Verdict(sentence, "", "", "")
    anchor = f"s{run.blocking_step}a{run.blocking_attempt}"
    # The planner begins its sentences with the step: that is what the reader will want to click.
    name = steps[run.blocking_step - 1].name if 1 <= run.blocking_step <= len(steps) else ""
    opening = f"Step {run.blocking_step} “{name}”"
    if sentence.startswith(opening):
        return Verdict("", opening, sentence[len(opening) :], anchor)
    return Verdict(f"{sentence} See ", f"step {run.blocking_step}, attempt {run.blocking_attempt}", ".", anchor)
