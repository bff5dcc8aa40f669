"""Two runs of a flow beside each other, as plain values for the page that compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from flows.engine.differences import Change, compare_specs, summarise_changes
from flows.engine.history import TokenUsage
from runs.history.output_diff import OutputDiff, compare_outputs
from runs.history.texts import MAX_SENTENCE_LENGTH, CutText, cut_text
from runs.models import Run
from runs.pages.attempt_view import list_output
from runs.pages.compared_figures import Figure, compare_counts, compare_durations, compare_issues, compare_usage
from runs.pages.compared_rows import RunRows, load_rows
from runs.pages.compared_steps import StepComparison, compare_steps
from runs.pages.run_page import run_duration, run_issue_counts, run_state


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of the two runs. ``sentence`` says how it ended."""

    run: Run
    state: str
    sentence: CutText


@dataclass(frozen=True, slots=True)
class Definition:
    """What changed from one version to the other. ``changes`` is None where one of them can't be read."""

    changes: Sequence[Change] | None
    summary: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """All that the page shows.

    Without an ``input`` the ``input_sentence`` says why; runs of one version have no ``definition``.
    """

    left: RunSide
    right: RunSide
    figures: tuple[Figure, ...]
    input: OutputDiff | None
    input_sentence: str
    definition: Definition | None
    steps: tuple[StepComparison, ...]

    @property
    def sides(self) -> tuple[RunSide, RunSide]:
        return self.left, self.right


def compare_runs(left: Run, right: Run, now: datetime) -> RunComparison:
    """Compare two runs of a flow, read with flow, version and user. Costs five queries."""
    rows = load_rows(left), load_rows(right)
    compared_input, input_sentence = _compare_inputs(left, right)
    return RunComparison(
        left=_view_side(left),
        right=_view_side(right),
        figures=_list_figures(left, right, now),
        input=compared_input,
        input_sentence=input_sentence,
        definition=_compare_definitions(*rows),
        steps=compare_steps(*rows),
    )


def _compare_inputs(left: Run, right: Run) -> tuple[OutputDiff | None, str]:
    """What differs in the inputs; a sentence where that can't be told."""
    removed = [f"#{run.pk}" for run in (left, right) if run.outputs_removed_at is not None]
    if removed:
        whose = f"input of {removed[0]}" if len(removed) == 1 else f"inputs of {' and '.join(removed)}"
        return None, f"Removed by the retention policy: the {whose}."
    diff = compare_outputs(left.input, right.input, list_output(left.input), list_output(right.input))
    return diff, "" if diff else "These inputs are too long to be compared here; open the runs instead."


def _view_side(run: Run) -> RunSide:
    return RunSide(run, run_state(run), cut_text(run.end_sentence, MAX_SENTENCE_LENGTH))


def _list_figures(left: Run, right: Run, now: datetime) -> tuple[Figure, ...]:
    steps = left.step_count, right.step_count
    return (
        compare_counts("Steps passed", left.steps_passed, right.steps_passed, good="more", of=steps),
        compare_counts("Attempts", left.attempt_count, right.attempt_count),
        compare_issues("Issues of all attempts", run_issue_counts(left), run_issue_counts(right)),
        compare_durations(run_duration(left, now), run_duration(right, now)),
        *compare_usage(_read_usage(left), _read_usage(right)),
    )


def _read_usage(run: Run) -> TokenUsage:
    return TokenUsage(
        prompt=run.prompt_tokens, completion=run.completion_tokens, cost=run.cost, unpriced=run.unpriced_count
    )


def _compare_definitions(left: RunRows, right: RunRows) -> Definition | None:
    if left.run.version_id == right.run.version_id:
        return None
    if left.spec is None or right.spec is None:
        number = (left if left.spec is None else right).run.version.number
        return Definition(None, f"The definition of version {number} can’t be read by this version of ToolFlow.")
    changes = compare_specs(left.spec, right.spec)
    return Definition(changes, summarise_changes(changes))
