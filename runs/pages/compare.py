"""Two runs side by side: choosing them, and what differs. The older one is always on the left, and first in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from flows.engine.differences import compare_specs, summarise_changes
from flows.engine.history import TokenUsage
from runs.filter_fields import parse_run_number
from runs.formatting import format_count
from runs.history.output_diff import compare_outputs
from runs.history.output_view import View, parse_view
from runs.models import Run
from runs.pages.access import require_viewer
from runs.pages.badges import STATES, Badge, count_run_issues, find_run_state
from runs.pages.compare_steps import compare_amounts, compare_figures, compare_steps
from runs.pages.run_head import measure_run

MAX_CHOICES = 10
"""Other runs of the flow that are offered for comparison."""


def compare_runs(first: Run, second: Run, now: datetime, view: View = View.TEXT) -> dict[str, Any]:
    """Compare two runs of a flow, loaded with flow, version and user, whichever of them is older. Costs six queries.

    ``changes`` of the definition are None for runs of one version, and where one of both can't be read.
    """
    old, new = runs = sorted((first, second), key=lambda run: (run.created_at, run.pk))
    specs = [run.version.readable_spec for run in runs]
    removed = [f"#{run.pk}" for run in runs if run.outputs_removed_at is not None]
    compared_input, sentence = None, ""
    if removed:
        sentence = f"Removed by the retention policy: the input{'s'[: len(removed) - 1]} of {' and '.join(removed)}."
    else:
        compared_input = compare_outputs(old.input, new.input)
        sentence = "" if compared_input else "These inputs are too long to compare here. Open the runs instead."
    changes, summary = None, ""
    if old.version_id != new.version_id:
        if specs[0] is not None and specs[1] is not None:
            changes = compare_specs(specs[0], specs[1])
            summary = summarise_changes(changes)
        else:
            number = runs[specs.index(None)].version.number
            summary = f"The definition of version {number} can’t be read by this version of ToolFlow."
    usages = [
        TokenUsage(
            prompt=run.prompt_tokens, completion=run.completion_tokens, cost=run.cost, unpriced=run.unpriced_count
        )
        for run in runs
    ]
    passed = compare_amounts("Steps passed", [run.steps_passed for run in runs], is_more_better=True)
    passed |= {name: f"{passed[name]} of {format_count(run.step_count)}" for name, run in (("old", old), ("new", new))}
    figures = compare_figures(
        [run.attempt_count for run in runs],
        [count_run_issues(run) for run in runs],
        [measure_run(run, now) for run in runs],
        usages,
    )
    return {
        "old": old,
        "new": new,
        "sides": [(label, run, STATES[find_run_state(run)]) for label, run in (("Older", old), ("Newer", new))],
        "figures": [passed, *figures],
        "input": compared_input,
        "input_sentence": sentence,
        "changes": changes,
        "changes_summary": summary,
        "steps": compare_steps(runs, specs, view),
    }


@require_viewer
def show_comparison(request: HttpRequest) -> HttpResponse:
    """Runs ``a`` and ``b`` side by side, in either order; with one of them or none a page to choose the rest.

    ``?view=`` is that of outputs that have no counterpart.
    """
    texts = {name: request.GET.get(name, "").strip() for name in ("a", "b")}
    numbers = {name: parse_run_number(text) for name, text in texts.items() if text}
    found = Run.objects.select_related("flow", "version", "started_by").in_bulk(list(filter(None, numbers.values())))
    runs = {name: found.get(number or 0) for name, number in numbers.items()}
    problem, status = _validate(texts, numbers, runs)
    first, second = runs.get("a"), runs.get("b")
    if not problem and first is not None and second is not None:
        view = parse_view(request.GET.get("view"), request.COOKIES.get("toolflow_view"))
        return render(request, "runs/compare.html", compare_runs(first, second, timezone.now(), view))
    chosen = first or second
    context = {
        "chosen": chosen,
        "others": _list_others(chosen) if chosen is not None else (),
        "numbers": texts,
        "problem": problem,
        "runs": [run for run in (first, second) if run is not None],
    }
    return render(request, "runs/compare_choice.html", context, status=status)


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


def _list_others(run: Run) -> list[tuple[Run, Badge]]:
    """The run that ``run`` repeats, if it is still there, and the latest other runs of the flow."""
    runs = Run.objects.filter(flow=run.flow_id).exclude(pk=run.pk).select_related("version", "started_by")
    runs = runs.defer("input", "version__spec")
    found = list(runs.filter(pk=run.again_of)) if run.again_of is not None else []
    found += [other for other in runs.order_by("-created_at", "-pk")[:MAX_CHOICES] if other not in found]
    return [(other, STATES[find_run_state(other)]) for other in found]
