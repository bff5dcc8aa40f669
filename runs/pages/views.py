"""Pages that show runs. Each view reads one view model and renders it; nothing here changes a row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from flows.engine.issues import Severity
from runs import models
from runs.models import Run
from runs.pages.access import require_permission
from runs.pages.attempt_view import AttemptView
from runs.pages.badges import STATES
from runs.pages.documents import build_attempt_document, build_run_document
from runs.pages.json_lines import list_json, list_text
from runs.pages.model_request import read_model_request
from runs.pages.run_list import load_run_list
from runs.pages.run_page import RunPage, StepView, is_unattended, load_run_page
from runs.pages.severity_filter import build_toggles, read_hidden
from runs.stored_history import read_attempt

SHORT_INPUT = 12
"""Lines; an input of at most so many is open from the start."""

PARTS = {"request": "What the model saw", "input": "Input of the step", "raw_output": "Raw output"}


@require_GET
@require_permission("runs.view_run")
def show_runs(request: HttpRequest) -> HttpResponse:
    """The list of runs."""
    return render(request, "runs/run_list.html", {"page": load_run_list(request.GET, timezone.now())})


@require_GET
@require_permission("runs.view_run")
def show_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """One run with its attempts; it keeps itself up to date until the run has ended."""
    page = _load_page(run_id)
    hidden, problem = read_hidden(request.GET.get("hide", ""))
    context = {
        "page": page,
        "hidden": hidden,
        "filter_problem": problem,
        "toggles": build_toggles(hidden, page.counts),
        "is_input_open": len(page.input.lines) <= SHORT_INPUT or not page.attempts,
    }
    return render(request, "runs/run_page.html", context)


@dataclass(frozen=True, slots=True)
class StepChange:
    """What a live update brings to one step: attempts that ended, and attempts that are new."""

    step: StepView
    replaced: tuple[AttemptView, ...]
    added: tuple[AttemptView, ...]


@require_GET
@require_permission("runs.view_run")
def show_run_changes(request: HttpRequest, run_id: int) -> HttpResponse:
    """What changed since ``revision``; ``seen`` is the last attempt on the reader's page. 204 if nothing did.

    History only grows at its end, so that those two say which parts of the page are out of date. ``unattended`` says
    whether the page tells that no worker is alive.
    """
    seen = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,6})(r?)", request.GET.get("seen", ""))
    revision = request.GET.get("revision", "")
    if not seen or not revision.isdecimal() or len(revision) > 10:
        return HttpResponse("Ask with ?revision=NUMBER&seen=STEP.ATTEMPT.", status=400, content_type="text/plain")
    current = Run.objects.filter(pk=run_id).values_list("revision", is_unattended()).first()
    if current is None:
        raise Http404
    if current == (int(revision), "unattended" in request.GET):
        return HttpResponse(status=204)
    page = _load_page(run_id)
    last, was_running = (int(seen[1]), int(seen[2])), bool(seen[3])
    changes = [
        StepChange(
            step=step,
            replaced=tuple(a for a in step.attempts if was_running and (a.step, a.number) == last),
            added=tuple(a for a in step.attempts if (a.step, a.number) > last),
        )
        for step in page.steps
        if step.attempts and step.index >= last[0]
    ]
    context = {"page": page, "changes": changes, "announcement": _announce(page), "is_update": True}
    return render(request, "runs/live.html", context)


def _announce(page: RunPage) -> str:
    words = [f"{STATES[page.state].word}."]
    if page.attempts:
        last = page.attempts[-1]
        words.append(f"Step {last.step}, attempt {last.number}: {STATES[last.state].word.lower()}.")
    return " ".join(words)


@require_GET
@require_permission("runs.view_run")
def show_run_document(request: HttpRequest, run_id: int) -> JsonResponse:
    """The run as JSON; ``?min_severity=`` filters issues, ``?attempts=final`` leaves out earlier attempts."""
    severity, attempts = request.GET.get("min_severity", "low"), request.GET.get("attempts", "all")
    if severity not in list(Severity):
        return JsonResponse({"error": "min_severity must be low, medium, high or critical."}, status=400)
    if attempts not in ("all", "final"):
        return JsonResponse({"error": "attempts must be all or final."}, status=400)
    run = Run.objects.select_related("flow", "version", "started_by").filter(pk=run_id).first()
    if run is None:
        raise Http404
    document = build_run_document(run, minimum=Severity(severity), only_final_attempts=attempts == "final")
    return JsonResponse(document, json_dumps_params={"indent": 2})


@require_GET
@require_permission("runs.view_run")
def show_attempt_document(request: HttpRequest, run_id: int, step: int, number: int) -> JsonResponse:
    """One attempt as JSON, whole, as a download."""
    row = _find_attempt(run_id, step, number)
    if not row.outcome:
        raise Http404
    response = JsonResponse(build_attempt_document(read_attempt(row)), json_dumps_params={"indent": 2})
    response["Content-Disposition"] = f'attachment; filename="run-{run_id}-step-{step}-attempt-{number}.json"'
    return response


@require_GET
@require_permission("runs.view_run")
def show_attempt_part(request: HttpRequest, run_id: int, step: int, number: int, part: str) -> HttpResponse:
    """What the model saw, the step's input or the raw output: folded away on the run page, read when opened."""
    if part not in PARTS:
        raise Http404
    row = _find_attempt(run_id, step, number)
    value = getattr(row, part)
    context: dict[str, Any] = {"run": row.step.run, "step": row.step, "number": number, "title": PARTS[part]}
    if part == "request" and value is not None:
        context["model_request"] = read_model_request(value)
    elif value is not None:
        context["lines"] = list_text(value) if isinstance(value, str) else list_json(value)
    is_fragment = request.headers.get("HX-Request") == "true"
    return render(request, "runs/attempt_part.html" if is_fragment else "runs/attempt_part_page.html", context)


def _load_page(run_id: int) -> RunPage:
    try:
        return load_run_page(run_id, timezone.now())
    except Run.DoesNotExist as error:
        raise Http404 from error


def _find_attempt(run_id: int, step: int, number: int) -> models.Attempt:
    attempts = models.Attempt.objects.select_related("step__run__flow", "usage").filter(step__run_id=run_id)
    row = attempts.filter(step__index=step, number=number).first()
    if row is None:
        raise Http404
    return row
