"""Two runs side by side: choosing them, and what differs. The older one is always on the left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_safe

from flows.engine.differences import Change, compare_specs, summarise_changes
from flows.engine.history import TokenUsage
from runs.history.output_diff import OutputDiff, compare_outputs
from runs.history.output_view import View, parse_view
from runs.history.texts import MAX_SENTENCE_LENGTH, cut_text
from runs.models import Run
from runs.pages.access import require_permission
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.pages.compared_runs import (
    Figure,
    RunRows,
    compare_counts,
    compare_durations,
    compare_issues,
    compare_usage,
    load_rows,
)
from runs.pages.compared_steps import StepComparison, compare_steps
from runs.pages.run_page import run_duration, run_state

MAX_CHOICES = 10
"""Other runs of the flow that are offered for comparison."""


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of the two runs. ``sentence`` says how it ended."""

    run: Run
    label: str
    """``Older`` or ``Newer``."""
    badge: Badge
    sentence: str
    relation: str
    """``original of #9``, ``re-run of #7``, or empty."""


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

    old: RunSide
    new: RunSide
    figures: tuple[Figure, ...]
    input: OutputDiff | None
    input_sentence: str
    definition: Definition | None
    steps: tuple[StepComparison, ...]

    @property
    def sides(self) -> tuple[RunSide, RunSide]:
        return self.old, self.new


def compare_runs(first: Run, second: Run, now: datetime, view: View = View.TEXT) -> RunComparison:
    """Compare two runs of a flow, loaded with flow, version and user, whichever of them is older. Costs six queries."""
    old, new = sorted((first, second), key=lambda run: (run.created_at, run.pk))
    rows = load_rows(old), load_rows(new)
    compared_input, input_sentence = _compare_inputs(old, new)
    return RunComparison(
        old=_view_side(old, "Older", f"original of #{new.pk}" if new.again_of == old.pk else ""),
        new=_view_side(new, "Newer", f"re-run of #{old.pk}" if new.again_of == old.pk else ""),
        figures=_list_figures(old, new, now),
        input=compared_input,
        input_sentence=input_sentence,
        definition=_compare_definitions(*rows),
        steps=compare_steps(*rows, view),
    )


def _view_side(run: Run, label: str, relation: str) -> RunSide:
    sentence = str(cut_text(run.end_sentence, MAX_SENTENCE_LENGTH)) or "Not finished yet."
    return RunSide(run, label, STATES[run_state(run)], sentence, relation)


def _compare_inputs(old: Run, new: Run) -> tuple[OutputDiff | None, str]:
    """What differs in the inputs; a sentence where that is not known."""
    removed = [f"#{run.pk}" for run in (old, new) if run.outputs_removed_at is not None]
    if removed:
        return None, f"Removed by the retention policy: the input{'s'[: len(removed) - 1]} of {' and '.join(removed)}."
    diff = compare_outputs(old.input, new.input)
    return diff, "" if diff else "These inputs are too long to compare here. Open the runs instead."


def _list_figures(old: Run, new: Run, now: datetime) -> tuple[Figure, ...]:
    counts, usages = [], []
    for run in (old, new):
        prompt, completion = run.prompt_tokens, run.completion_tokens
        usages.append(TokenUsage(prompt=prompt, completion=completion, cost=run.cost, unpriced=run.unpriced_count))
        counts.append(Counter({name: getattr(run, f"issues_{name}") for name in SEVERITIES}))
    return (
        compare_counts("Steps passed", old.steps_passed, new.steps_passed, of=(old.step_count, new.step_count)),
        compare_counts("Attempts", old.attempt_count, new.attempt_count),
        compare_issues(counts[0], counts[1]),
        compare_durations(run_duration(old, now), run_duration(new, now)),
        *compare_usage(usages[0], usages[1]),
    )


def _compare_definitions(old: RunRows, new: RunRows) -> Definition | None:
    if old.run.version_id == new.run.version_id:
        return None
    if old.spec is None or new.spec is None:
        number = (old if old.spec is None else new).run.version.number
        return Definition(None, f"The definition of version {number} can’t be read by this version of ToolFlow.")
    changes = compare_specs(old.spec, new.spec)
    return Definition(changes, summarise_changes(changes))


@require_safe
@require_permission("runs.view_run")
def show_comparison(request: HttpRequest) -> HttpResponse:
    """Runs ``a`` and ``b`` side by side, in either order; with one of them or none a page to choose the rest.

    ``?view=`` is that of outputs that have no counterpart.
    """
    texts = {name: request.GET.get(name, "").strip().removeprefix("#") for name in ("a", "b")}
    numbers = {name: _parse_number(text) for name, text in texts.items() if text}
    found = Run.objects.select_related("flow", "version", "started_by").in_bulk(
        [one for one in numbers.values() if one]
    )
    runs = {name: found.get(number or 0) for name, number in numbers.items()}
    problem, status = _validate(texts, numbers, runs)
    first, second = runs.get("a"), runs.get("b")
    if not problem and first is not None and second is not None:
        view = parse_view(request.GET.get("view"), request.COOKIES.get("toolflow_view"))
        return render(request, "runs/compare.html", {"page": compare_runs(first, second, timezone.now(), view)})
    chosen = first or second
    context = {
        "chosen": chosen,
        "others": _list_others(chosen) if chosen is not None else (),
        "numbers": texts,
        "problem": problem,
        "runs": [run for run in (first, second) if run is not None],
    }
    return render(request, "runs/compare_choice.html", context, status=status)


def _parse_number(text: str) -> int | None:
    """The number of a run; None for what can't be one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _validate(
    texts: Mapping[str, str], numbers: Mapping[str, int | None], runs: Mapping[str, Run | None]
) -> tuple[str, int]:
    """A sentence about what can't be compared, and the status of the answer; an empty one if all is well."""
    for name, number in numbers.items():
        if number is None:
            return f"“{texts[name][:40]}” is not a run number.", 400
        if runs[name] is None:
            return f"There is no run #{number}.", 404
    first, second = runs.get("a"), runs.get("b")
    if first is None or second is None:
        return "", 200
    if first.pk == second.pk:
        return f"Both numbers are #{first.pk}. Choose two different runs.", 400
    if first.flow_id != second.flow_id:
        names = f"#{first.pk} is a run of {first.flow.title}, #{second.pk} of {second.flow.title}"
        return f"{names}. Only runs of the same flow can be compared.", 400
    return "", 200


@dataclass(frozen=True, slots=True)
class Choice:
    """A run that can be compared with the chosen one."""

    run: Run
    badge: Badge
    relation: str


def _list_others(run: Run) -> list[Choice]:
    """The run that ``run`` repeats, if it is still there, and the latest other runs of the flow."""
    runs = Run.objects.filter(flow=run.flow_id).exclude(pk=run.pk).select_related("version", "started_by")
    runs = runs.defer("input", "version__spec")
    found = list(runs.filter(pk=run.again_of)) if run.again_of is not None else []
    found += [other for other in runs.order_by("-created_at", "-pk")[:MAX_CHOICES] if other not in found]
    return [
        Choice(other, STATES[run_state(other)], f"original of #{run.pk}" if other.pk == run.again_of else "")
        for other in found
    ]


urls: list[URLPattern] = [path("runs/compare/", show_comparison, name="compare")]
