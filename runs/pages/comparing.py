"""Two runs side by side: choosing them, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_safe

from runs.models import Run
from runs.pages.access import require_permission
from runs.pages.compared_runs import compare_runs

CHOICES = 10
"""Other runs of the flow that are offered to be compared with."""


@require_safe
@require_permission("runs.view_run")
def show_comparison(request: HttpRequest) -> HttpResponse:
    """Runs ``a`` and ``b`` side by side; with one of them or none a page to choose the rest."""
    texts = {name: request.GET.get(name, "").strip().removeprefix("#") for name in ("a", "b")}
    numbers = {name: _read_number(text) for name, text in texts.items() if text}
    found = _find_runs(number for number in numbers.values() if number)
    runs = {name: found.get(number or 0) for name, number in numbers.items()}
    problem, status = _find_problem(texts, numbers, runs)
    left, right = runs.get("a"), runs.get("b")
    if not problem and left is not None and right is not None:
        comparison = compare_runs(left, right, timezone.now())
        return render(request, "runs/compare.html", {"page": comparison})
    # One number is enough to offer others; whichever it is stays on the left.
    chosen = left or right
    context = {
        "chosen": chosen,
        "others": _list_others(chosen) if chosen is not None else (),
        "numbers": texts,
        "problem": problem,
        "runs": [run for run in (left, right) if run is not None],
        "now": timezone.now(),
    }
    return render(request, "runs/compare_choice.html", context, status=status)


def _read_number(text: str) -> int | None:
    """The number of a run; None for what can't be one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _find_runs(numbers: Iterable[int]) -> dict[int, Run]:
    runs = Run.objects.select_related("flow", "version", "started_by").filter(pk__in=list(numbers))
    return {run.pk: run for run in runs}


def _find_problem(
    texts: Mapping[str, str], numbers: Mapping[str, int | None], runs: Mapping[str, Run | None]
) -> tuple[str, int]:
    """A sentence about what can't be compared, and the status of the answer; an empty one if all is well."""
    for name, number in numbers.items():
        if number is None:
            return f"“{texts[name][:40]}” is not a run number.", 400
        if runs[name] is None:
            return f"There is no run #{number}.", 404
    left, right = runs.get("a"), runs.get("b")
    if left is None or right is None:
        return "", 200
    if left.pk == right.pk:
        return f"Both numbers are #{left.pk}; a run is compared with another one.", 400
    if left.flow_id != right.flow_id:
        return (
            f"#{left.pk} is a run of {left.flow.title}, #{right.pk} one of {right.flow.title}: only runs of the same "
            "flow can be compared."
        ), 400
    return "", 200


def _list_others(run: Run) -> list[Run]:
    """The run that ``run`` repeats, if it is still there, and the latest other runs of the flow."""
    runs = Run.objects.filter(flow=run.flow_id).exclude(pk=run.pk).select_related("version", "started_by")
    runs = runs.defer("input", "version__spec")
    originals = list(runs.filter(pk=run.again_of)) if run.again_of is not None else []
    return originals + [other for other in runs.order_by("-created_at", "-pk")[:CHOICES] if other not in originals]


urls: list[URLPattern] = [path("runs/compare/", show_comparison, name="compare")]
