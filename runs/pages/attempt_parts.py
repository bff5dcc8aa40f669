"""Parts of an attempt that are folded away on the page of its run, and read when somebody opens them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from runs import models
from runs.history.issue_links import anchor_attempt
from runs.history.json_lines import list_json, list_text
from runs.pages.access import require_permission
from runs.pages.call_history import load_call_history
from runs.pages.model_request import read_model_request
from runs.pages.severity_filter import read_hidden

PARTS = {"request": "What the model saw", "input": "Input of the step", "raw_output": "Raw output"}


@require_safe
@require_permission("runs.view_run")
def show_attempt_part(request: HttpRequest, run_id: int, step: int, number: int, part: str) -> HttpResponse:
    """What the model saw, the step's input or the raw output: folded away on the run page, read when opened.

    With ``?download`` the stored value as it is, as a JSON file. ``?hide=`` is the run page's own: the way back to it
    keeps it.
    """
    if part not in PARTS:
        raise Http404
    row = find_attempt(run_id, step, number)
    value = getattr(row, part)
    if "download" in request.GET:
        return _download(value, f"run-{run_id}-step-{step}-attempt-{number}-{part.replace('_', '-')}.json")
    is_fragment = request.headers.get("HX-Request") == "true"
    hidden, _ = read_hidden(request.GET.get("hide", ""))
    back = reverse("runs:page", args=[run_id]) + (f"?hide={','.join(hidden)}" if hidden else "")
    context: dict[str, Any] = {
        "run": row.step.run,
        "step": row.step,
        "number": number,
        "title": PARTS[part],
        "prefix": f"{anchor_attempt(step, number)}-{part}",
        "back": f"{back}#{anchor_attempt(step, number)}",
        "run_url": "" if is_fragment and is_on_page_of(request, run_id) else back,
        "download": f"{reverse('runs:attempt-part', args=[run_id, step, number, part])}?download",
    }
    if part == "request" and value is not None:
        call = load_call_history(row)
        context.update(model_request=read_model_request(value, call.told), told=call.feedback)
    elif value is not None:
        context["lines"] = list_text(value) if isinstance(value, str) else list_json(value)
    return render(request, "runs/attempt_part.html" if is_fragment else "runs/attempt_part_page.html", context)


def find_attempt(run_id: int, step: int, number: int) -> models.Attempt:
    """The row of one attempt with its step, run, version and usage. Raises ``Http404`` if there is none."""
    attempts = models.Attempt.objects.select_related("step__run__flow", "step__run__version", "usage", "sent")
    row = attempts.filter(step__run_id=run_id, step__index=step, number=number).first()
    if row is None:
        raise Http404
    return row


def is_on_page_of(request: HttpRequest, run_id: int) -> bool:
    """Whether a part that was asked for will stand on the page of its run, where links to its other parts stay."""
    path = urlsplit(request.headers.get("HX-Current-URL", "")).path
    return path in ("", reverse("runs:page", args=[run_id]))


def _download(value: Any, name: str) -> JsonResponse:
    if value is None:
        raise Http404
    response = JsonResponse(value, safe=False, json_dumps_params={"indent": 2})
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
