"""One attempt by itself: what its line on the run page opens, a page of its own, and its output as a file."""

from __future__ import annotations

import json
import re

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from runs.history.issue_links import address_issue, anchor_attempt, find_pages, join_address
from runs.models import Issue, Run
from runs.pages.access import require_permission
from runs.pages.attempt_parts import find_attempt, is_on_page_of
from runs.pages.run_page import find_run_page
from runs.pages.wanted_attempts import Wanted


@require_safe
@require_permission("runs.view_run")
def show_attempt(request: HttpRequest, run_id: int, step: int, number: int) -> HttpResponse:
    """An attempt with its output and issues; with ``?diff`` against the output before it, with ``?download`` a file.

    Of many issues it shows the gravest, with ``?issues=2`` those that come next, and so on. ``?issue=`` with the
    position of one leads to where it is shown. A page of the run asks for the content alone when its reader opens the
    attempt, and so does this one for what changed.
    """
    if "download" in request.GET:
        return _download_output(run_id, step, number)
    if "issue" in request.GET:
        return _go_to_issue(run_id, step, number, request.GET["issue"])
    id = anchor_attempt(step, number)
    issue_page = _read_page(request.GET.get("issues", "1"))
    compared = (id,) if request.GET.get("diff") else ()
    page = find_run_page(run_id, Wanted(only=id, compared=compared, issue_page=issue_page))
    attempt = next((attempt for attempt in page.attempts if attempt.id == id), None)
    if attempt is None or (issue_page > 1 and not attempt.issues):
        raise Http404
    is_fragment = request.headers.get("HX-Request") == "true"
    is_own_page = not (is_fragment and is_on_page_of(request, run_id))
    context = {
        "page": page,
        "step": page.steps[step - 1],
        "attempt": attempt,
        "is_own_page": is_own_page,
        "run_url": page.address if is_own_page else "",
    }
    return render(request, "runs/attempt_content.html" if is_fragment else "runs/attempt_page.html", context)


def _go_to_issue(run_id: int, step: int, number: int, position: str) -> HttpResponse:
    issues = list(
        Issue.objects.filter(attempt__step__run=run_id, attempt__step__index=step, attempt__number=number)
        .only("severity", "position")
        .order_by("position")
    )
    issue = next((issue for issue in issues if str(issue.position) == position), None)
    if issue is None:
        raise Http404
    page = find_pages(issues).get(issue.position, 1)
    run_url = reverse("runs:page", args=[run_id])
    return redirect(join_address(run_url, address_issue(step, number, issue.position, page)))


def _read_page(text: str) -> int:
    """The number of a page. Raises ``Http404`` for what is none."""
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise Http404
    return int(text)


def _download_output(run_id: int, step: int, number: int) -> HttpResponse:
    """The output as it is stored, or what came back instead of one. That of step 0 is the input of the run."""
    if (step, number) == (0, 1):
        run = get_object_or_404(Run.objects.only("input", "outputs_removed_at"), pk=run_id)
        output = run.input if run.outputs_removed_at is None else None
    else:
        row = find_attempt(run_id, step, number)
        output = row.raw_output if row.output is None else row.output
    if output is None:
        raise Http404
    text = json.dumps(output, ensure_ascii=False, indent=2)
    # Rows that others wrote may hold lone surrogates, which have no place in a file.
    response = HttpResponse(text.encode(errors="replace"), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="run-{run_id}-step-{step}-attempt-{number}-output.json"'
    return response


urls = [path("runs/<number:run_id>/steps/<number:step>/attempts/<number:number>/", show_attempt, name="attempt")]
