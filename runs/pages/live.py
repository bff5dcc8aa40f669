"""What changed on a run's page since the reader's browser last asked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from runs.models import Run, RunStatus
from runs.pages.access import require_permission
from runs.pages.attempt_view import AttemptView
from runs.pages.badges import STATES
from runs.pages.run_head import name_head
from runs.pages.run_page import RunPage, StepView, find_run_page
from runs.pages.wanted_attempts import Wanted
from runs.statistics.queue_state import runs_without_worker


@dataclass(frozen=True, slots=True)
class StepChange:
    """What a live update brings to one step: attempts that ended, and attempts that are new."""

    step: StepView
    replaced: tuple[AttemptView, ...]
    added: tuple[AttemptView, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    known: tuple[int, bool]
    """The revision of the page, and whether it tells that no worker is alive."""
    last: tuple[int, int]
    """Step and number of the last attempt on it, zeros for none."""
    was_running: bool
    head: str
    """The name of the head that it shows."""


@require_safe
@require_permission("runs.view_run")
def show_run_changes(request: HttpRequest, run_id: int) -> HttpResponse:
    """What changed since ``revision``; ``seen`` is the last attempt on the reader's page. 204 if nothing did.

    History only grows at its end, so that those two say which parts of the page are out of date. ``head`` is the name
    of its head, which is left out of the answer where it is still the same. ``unattended`` says whether the page tells
    that no worker is alive.
    """
    question = _read_question(request)
    if question is None:
        return HttpResponse("Ask with ?revision=NUMBER&seen=STEP.ATTEMPT.", status=400, content_type="text/plain")
    if _read_current(run_id) == question.known:
        return HttpResponse(status=204)
    last = question.last
    page = find_run_page(run_id, Wanted(since=last, is_since_new=question.was_running))
    changes = [
        StepChange(
            step=step,
            replaced=tuple(a for a in step.attempts if question.was_running and (a.step, a.number) == last),
            added=tuple(a for a in step.attempts if (a.step, a.number) > last),
        )
        for step in page.steps
        if step.attempts and step.index >= last[0]
    ]
    head = name_head(page, request.user)
    context = {
        "page": page,
        "changes": changes,
        "head": head,
        "is_head_new": head != question.head,
        "announcement": _announce(page),
        "is_update": True,
    }
    return render(request, "runs/live.html", context)


def _read_question(request: HttpRequest) -> _Question | None:
    """What a page asks; None if it makes no sense."""
    seen = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,6})(r?)", request.GET.get("seen", ""))
    revision = request.GET.get("revision", "")
    if not seen or not revision.isdecimal() or len(revision) > 10:
        return None
    known = (int(revision), "unattended" in request.GET)
    return _Question(
        known, last=(int(seen[1]), int(seen[2])), was_running=bool(seen[3]), head=request.GET.get("head", "")
    )


def _read_current(run_id: int) -> tuple[int, bool] | None:
    """The revision of a run, and whether it waits though no worker is alive; None if there is no such run."""
    found = Run.objects.filter(pk=run_id).values_list("revision", "status").first()
    if found is None:
        return None
    revision, status = found
    # Only a run in the queue waits for anybody.
    return revision, status == RunStatus.QUEUED and runs_without_worker().filter(pk=run_id).exists()


def _announce(page: RunPage) -> str:
    words = [f"{STATES[page.state].word}."]
    if page.attempts:
        last = page.attempts[-1]
        words.append(f"Step {last.step}, attempt {last.number}: {STATES[last.state].word.lower()}.")
    return " ".join(words)
