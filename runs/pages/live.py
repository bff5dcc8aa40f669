"""What changed on a run's page since the reader's browser last asked."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from django.conf import settings
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_GET

from runs.models import Run, RunStatus
from runs.pages.access import require_permission
from runs.pages.attempt_view import AttemptView
from runs.pages.badges import STATES
from runs.pages.run_page import RunPage, StepView, find_run_page
from runs.pages.wanted_attempts import Wanted
from runs.queue_figures import unattended_runs

TRUSTED_FOR = 60
"""Seconds for which a session that may see runs is told without another look that nothing changed."""


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


@require_GET
def show_run_changes(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """What changed since ``revision``; ``seen`` is the last attempt on the reader's page. 204 if nothing did.

    History only grows at its end, so that those two say which parts of the page are out of date. ``unattended`` says
    whether the page tells that no worker is alive.

    Nearly all questions are asked in vain, by every open page again and again. Those cost one query: a session that
    was let in less than ``TRUSTED_FOR`` seconds ago is told that nothing changed without being looked at once more.
    Whatever shows anything of the run does look.
    """
    question = _read_question(request)
    if question and _is_trusted(request) and _read_current(run_id) == question.known:
        return HttpResponse(status=204, headers={"Cache-Control": "no-store"})
    return _show_run_changes(request, run_id, question)


@require_permission("runs.view_run")
def _show_run_changes(request: HttpRequest, run_id: int, question: _Question | None) -> HttpResponse:
    if question is None:
        return HttpResponse("Ask with ?revision=NUMBER&seen=STEP.ATTEMPT.", status=400, content_type="text/plain")
    _trust(request)
    current = _read_current(run_id)
    if current is None:
        raise Http404
    if current == question.known:
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
    context = {"page": page, "changes": changes, "announcement": _announce(page), "is_update": True}
    return render(request, "runs/live.html", context)


def _read_question(request: HttpRequest) -> _Question | None:
    """What a page asks; None if it makes no sense."""
    seen = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,6})(r?)", request.GET.get("seen", ""))
    revision = request.GET.get("revision", "")
    if not seen or not revision.isdecimal() or len(revision) > 10:
        return None
    known = (int(revision), "unattended" in request.GET)
    return _Question(known, last=(int(seen[1]), int(seen[2])), was_running=bool(seen[3]))


def _read_current(run_id: int) -> tuple[int, bool] | None:
    """The revision of a run, and whether it waits though no worker is alive; None if there is no such run."""
    found = list(Run.objects.filter(pk=run_id).values_list("revision", "status"))
    if not found:
        return None
    ((revision, status),) = found
    # Only a run in the queue waits for anybody.
    return revision, status == RunStatus.QUEUED and unattended_runs().filter(pk=run_id).exists()


def _is_trusted(request: HttpRequest) -> bool:
    key = _trust_key(request)
    return bool(key and cache.get(key))


def _trust(request: HttpRequest) -> None:
    if key := _trust_key(request):
        cache.set(key, True, TRUSTED_FOR)


def _trust_key(request: HttpRequest) -> str:
    """Under which a session is kept as one that may see runs; empty without a session.

    The key of a session signs in whoever has it: the cache, which others may look into, gets a digest.
    """
    session = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    if not re.fullmatch(r"[0-9a-z]{8,64}", session):
        return ""
    return f"toolflow:may-see-runs:{hashlib.blake2b(session.encode(), digest_size=16).hexdigest()}"


def _announce(page: RunPage) -> str:
    words = [f"{STATES[page.state].word}."]
    if page.attempts:
        last = page.attempts[-1]
        words.append(f"Step {last.step}, attempt {last.number}: {STATES[last.state].word.lower()}.")
    return " ".join(words)
