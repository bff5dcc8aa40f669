"""What changed on a run's page since the reader's browser last asked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from runs.models import Run
from runs.pages.access import require_permission
from runs.pages.attempt_view import AttemptView
from runs.pages.badges import STATES
from runs.pages.run_page import RunPage, StepView, find_run_page, is_unattended


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
    page = find_run_page(run_id)
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
