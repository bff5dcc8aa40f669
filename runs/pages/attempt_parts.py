"""Parts of an attempt that are folded away on the page of its run, and read when somebody opens them."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from runs import models
from runs.pages.access import require_permission
from runs.pages.json_lines import list_json, list_text
from runs.pages.model_request import read_model_request

PARTS = {"request": "What the model saw", "input": "Input of the step", "raw_output": "Raw output"}


@require_GET
@require_permission("runs.view_run")
def show_attempt_part(request: HttpRequest, run_id: int, step: int, number: int, part: str) -> HttpResponse:
    """What the model saw, the step's input or the raw output: folded away on the run page, read when opened."""
    if part not in PARTS:
        raise Http404
    row = find_attempt(run_id, step, number)
    value = getattr(row, part)
    context: dict[str, Any] = {"run": row.step.run, "step": row.step, "number": number, "title": PARTS[part]}
    if part == "request" and value is not None:
        context["model_request"] = read_model_request(value)
    elif value is not None:
        context["lines"] = list_text(value) if isinstance(value, str) else list_json(value)
    is_fragment = request.headers.get("HX-Request") == "true"
    return render(request, "runs/attempt_part.html" if is_fragment else "runs/attempt_part_page.html", context)


def find_attempt(run_id: int, step: int, number: int) -> models.Attempt:
    """The row of one attempt with its step, run and usage. Raises ``Http404`` if there is none."""
    attempts = models.Attempt.objects.select_related("step__run__flow", "usage").filter(step__run_id=run_id)
    row = attempts.filter(step__index=step, number=number).first()
    if row is None:
        raise Http404
    return row
