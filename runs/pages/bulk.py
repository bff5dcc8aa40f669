"""Cancelling and running again many runs at once: asking to confirm it, and showing how far it is."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from flows.providers import is_simulated
from runs.bulk_actions.requesting import MOST_STARTED, request_bulk_action
from runs.models import BulkAction, BulkKind, Worker, WorkState
from runs.pages.access import require_permission
from runs.pages.bulk_choice import BulkChoice, BulkForm, read_choice
from runs.pages.figures import format_plural
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

SHOWN = 50
"""Actions that the list of them shows."""


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.view_run")
@require_permission("runs.change_run")
def cancel_runs(request: HttpRequest) -> HttpResponse:
    """Ask whether to cancel runs, and do it."""
    return _confirm(request, BulkKind.CANCEL)


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.view_run")
@require_permission("runs.add_run")
def run_again(request: HttpRequest) -> HttpResponse:
    """Ask whether to run runs again, and do it."""
    return _confirm(request, BulkKind.RUN_AGAIN)


def _confirm(request: HttpRequest, kind: BulkKind) -> HttpResponse:
    choice = read_choice(request.POST if request.method == "POST" else request.GET)
    if choice.problems:
        return _refuse(request, choice, choice.problems)
    if request.method != "POST":
        return _ask(request, kind, choice, None)
    form = BulkForm.from_post(request.POST)
    if form is None:
        return _refuse(request, choice, ("The form has no number of its own. Begin again from the list.",))
    most = None
    if kind == BulkKind.RUN_AGAIN and choice.is_all:
        try:
            most = form.read_most()
        except ValueError as error:
            return _ask(request, kind, choice, form, problem=str(error))
    action = request_bulk_action(
        token=form.token,
        kind=kind,
        run_ids=None if choice.is_all else choice.run_ids,
        query=choice.query if choice.is_all else "",
        newest=choice.newest,
        uses_live_version=form.uses_live_version,
        most=most,
        expected=form.expected if choice.is_all and kind == BulkKind.CANCEL else None,
        asked_by=request.user if request.user.pk else None,
    )
    return redirect("runs:bulk", action_id=action.pk)


def _ask(
    request: HttpRequest, kind: BulkKind, choice: BulkChoice, form: BulkForm | None, *, problem: str = ""
) -> HttpResponse:
    preview = choice.preview(kind)
    context = {
        "kind": kind,
        "choice": choice,
        "preview": preview,
        "form": form or BulkForm.begin(preview),
        "most_started": MOST_STARTED,
        "problem": problem,
        "is_simulated": is_simulated(),
    }
    return render(request, "runs/bulk_confirm.html", context, status=422 if problem else 200)


def _refuse(request: HttpRequest, choice: BulkChoice, problems: tuple[str, ...]) -> HttpResponse:
    return render(request, "runs/bulk_refused.html", {"choice": choice, "problems": problems}, status=400)


@require_safe
@require_permission("runs.view_run")
def show_bulk_actions(request: HttpRequest) -> HttpResponse:
    """The bulk actions of late."""
    actions = BulkAction.objects.select_related("asked_by").defer("notes")[:SHOWN]
    return render(request, "runs/bulk_list.html", {"actions": [(action, describe(action)) for action in actions]})


@require_safe
@require_permission("runs.view_run")
def show_bulk_action(request: HttpRequest, action_id: int) -> HttpResponse:
    """One bulk action; the page keeps itself up to date until it has ended."""
    action = _find_action(action_id)
    return render(request, "runs/bulk_page.html", _describe_progress(action))


@require_safe
@require_permission("runs.view_run")
def show_bulk_changes(request: HttpRequest, action_id: int) -> HttpResponse:
    """What a page with the revision ``seen`` has to change. 204 if nothing has."""
    action = _find_action(action_id)
    if request.GET.get("seen") == str(action.revision):
        return HttpResponse(status=204)
    # What is being read stays in place as long as it is the same.
    shows_notes = request.GET.get("left_out") != str(action.left_out)
    context = {**_describe_progress(action), "is_update": True, "shows_notes": shows_notes}
    return render(request, "runs/bulk_progress.html", context)


@require_POST
@require_permission("runs.view_run")
@require_permission("runs.change_run")
def stop_bulk_action(request: HttpRequest, action_id: int) -> HttpResponse:
    """End an action where it stands. One that has ended meanwhile stays as it is."""
    action = _find_action(action_id)
    with transaction.atomic():
        if action.stop():
            leave_trail(action=TrailAction.BULK_STOPPED, about=action, details={"done": action.done})
    return redirect("runs:bulk", action_id=action_id)


def describe(action: BulkAction) -> str:
    """What an action is for: ``Cancel 12 chosen runs``, ``Run again all runs that match``."""
    verb = "Cancel" if action.kind == BulkKind.CANCEL else "Run again"
    if action.run_ids is not None:
        return f"{verb} {format_plural(len(action.run_ids), 'chosen run')}"
    return f"{verb} all runs that match" if action.query else f"{verb} all runs"


def _find_action(action_id: int) -> BulkAction:
    action = BulkAction.objects.select_related("asked_by").filter(pk=action_id).first()
    if action is None:
        raise Http404
    return action


def _describe_progress(action: BulkAction) -> dict[str, Any]:
    is_waiting = action.state in (WorkState.WAITING, WorkState.WORKING)
    return {
        "action": action,
        "title": describe(action),
        "notes_left": action.left_out - len(action.notes),
        "is_unattended": is_waiting and not Worker.objects.alive().exists(),
    }


urls = [
    path("runs/bulk/", show_bulk_actions, name="bulk-list"),
    path("runs/bulk/cancel/", cancel_runs, name="bulk-cancel"),
    path("runs/bulk/run-again/", run_again, name="bulk-run-again"),
    path("runs/bulk/<int:action_id>/", show_bulk_action, name="bulk"),
    path("runs/bulk/<int:action_id>/live", show_bulk_changes, name="bulk-live"),
    path("runs/bulk/<int:action_id>/stop/", stop_bulk_action, name="bulk-stop"),
]
