"""Bulk actions: cancelling and re-running many runs, with a page that asks to confirm and one of the progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from flows.providers import is_simulated
from runs.audit_log.events import AuditAction, log_audit_event
from runs.bulk_actions.requests import (
    MAX_CHOSEN,
    MAX_COUNTED,
    MAX_STARTED,
    fetch_matching,
    preview_chosen,
    preview_matching,
    request_bulk_action,
)
from runs.filter_fields import parse_run_number
from runs.filters import RunFilters
from runs.formatting import format_cost, format_count, format_plural
from runs.matching_runs import fetch_newest_run_number
from runs.models import BulkAction, BulkKind, Worker, WorkState
from runs.pages.access import refuse, require_permission, require_viewer
from runs.pages.addresses import link_runs, read_exact_filters
from runs.pages.badges import STATES, Badge

MAX_LISTED = 50
"""Actions that the list of them shows."""
MAX_PROBLEMS = 10

BADGES: Mapping[str, Badge] = {
    WorkState.WAITING: Badge("Queued", "clock", "quiet"),
    WorkState.WORKING: Badge("In progress", "arrow-path", "running"),
    WorkState.DONE: Badge("Done", "check-circle", "passed"),
    WorkState.STOPPED: Badge("Stopped", "stop-circle", "quiet"),
    WorkState.FAILED: Badge("Failed", "bolt-slash", "errored"),
}


def list_filter_words(query: str) -> list[tuple[str, str]]:
    """The filters of a query string of the list of runs, each with its label and its value."""
    labels = {name: str(one.label) for name, one in RunFilters(QueryDict("")).filters.items()}
    values = [(name, value) for name, values in QueryDict(query).lists() for value in values]
    return [
        (labels.get(name, name), value.replace(",", " or ") if name == "status" else value) for name, value in values
    ]


def parse_choice(data: QueryDict) -> dict[str, Any]:
    """The selected runs, from the form of the list or from the one that asks to confirm; ``is_all`` is all that match.

    Runs that begin later than ``newest`` are not meant. With ``problems`` nothing must be done. The filters are there
    also where runs were selected one by one: the way back leads to them.
    """
    filters, problems = read_exact_filters(QueryDict(data.get("filters", "")))
    is_all = data.get("scope") == "all"
    numbers = {text: parse_run_number(text) for text in ([] if is_all else data.getlist("run"))}
    if not is_all:
        # The filters decide nothing here.
        problems = tuple(f"“{text[:40]}” is not a run number." for text, number in numbers.items() if number is None)
        if not numbers:
            problems = ("No runs are selected. Select runs in the list first.",)
        elif len(numbers) > MAX_CHOSEN:
            problems = (f"Select at most {format_count(MAX_CHOSEN)} runs one by one; for more, filter the list.",)
    newest = parse_run_number(data.get("newest", ""))
    return {
        "is_all": is_all,
        "run_ids": sorted({number for number in numbers.values() if number is not None}, reverse=True),
        "filters": filters,
        "query": filters.to_query(),
        "back_url": link_runs(filters.to_query()),
        "newest": fetch_newest_run_number() if newest is None else newest,
        "problems": problems[:MAX_PROBLEMS],
    }


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.view_run", "runs.change_run")
def cancel_runs(request: HttpRequest) -> HttpResponse:
    """Ask whether to cancel runs, and do it."""
    return _confirm(request, BulkKind.CANCEL)


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.view_run", "runs.add_run")
def run_again(request: HttpRequest) -> HttpResponse:
    """Ask whether to run runs again, and do it."""
    return _confirm(request, BulkKind.RUN_AGAIN)


def _confirm(request: HttpRequest, kind: BulkKind) -> HttpResponse:
    choice = parse_choice(request.POST if request.method == "POST" else request.GET)
    problems = choice["problems"]
    if not problems and request.method != "POST":
        return _ask(request, kind, choice)
    try:
        token = UUID(hex=request.POST.get("token", ""))
    except ValueError:
        problems = problems or ("The form is incomplete. Start again from the list.",)
    if problems:
        return refuse(request, "Nothing was done", problems=problems, back_url=choice["back_url"])
    most, run_ids = None, choice["run_ids"]
    if choice["is_all"]:
        if kind == BulkKind.RUN_AGAIN:
            most = parse_run_number(request.POST.get("most", "").strip())
            if most is None or not 1 <= most <= MAX_STARTED:
                return _ask(request, kind, choice, problem=f"Enter a number from 1 to {MAX_STARTED:,}.")
        run_ids = fetch_matching(kind, choice["filters"], newest=choice["newest"], most=most)
    action = request_bulk_action(
        token=token,
        kind=kind,
        run_ids=run_ids,
        filters=choice["filters"] if choice["is_all"] else None,
        uses_live_version=request.POST.get("version") == "live",
        most=most,
        asked_by=request.user if request.user.pk else None,
    )
    return redirect("runs:bulk", action_id=action.pk)


def _ask(request: HttpRequest, kind: BulkKind, choice: dict[str, Any], *, problem: str = "") -> HttpResponse:
    if choice["is_all"]:
        preview = preview_matching(kind, choice["filters"], newest=choice["newest"])
    else:
        preview = preview_chosen(kind, choice["run_ids"])
    # A link to this page may choose both.
    asked = request.POST if request.method == "POST" else request.GET
    context = {
        "kind": kind,
        "choice": choice,
        "filter_words": list_filter_words(choice["query"]),
        "preview": preview,
        "examples": [(run, STATES[run.status]) for run in preview["examples"]],
        "cost": None if preview["cost"] is None else format_cost(preview["cost"], preview["unpriced"]),
        # Sent twice, the form does it once.
        "token": request.POST.get("token") or uuid4().hex,
        "uses_live_version": asked.get("version") == "live",
        "most": asked.get("most", preview["count"] if preview["is_exact"] else MAX_COUNTED),
        "problems": [("most", "Limit", problem)] if problem else [],
        "limit_problems": [problem] if problem else [],
        "limit_help": f"Up to {format_count(MAX_STARTED)}",
        "is_simulated": is_simulated(),
    }
    return render(request, "runs/bulk_confirm.html", context, status=422 if problem else 200)


@require_viewer
def show_bulk_actions(request: HttpRequest) -> HttpResponse:
    """The last bulk actions."""
    actions = BulkAction.objects.select_related("asked_by").defer("notes", "run_ids")[:MAX_LISTED]
    rows = [(action, _format_title(action), BADGES[action.state]) for action in actions]
    return render(request, "runs/bulk_list.html", {"rows": rows})


@require_viewer
def show_bulk_action(request: HttpRequest, action_id: int, is_update: bool = False) -> HttpResponse:
    """One bulk action. A page with the revision ``seen`` asks for what ``is_update``: 204 if nothing has changed."""
    action = _load_action(action_id)
    if is_update and request.GET.get("seen") == str(action.revision):
        return HttpResponse(status=204)
    context = {
        "action": action,
        "title": _format_title(action),
        "badge": BADGES[action.state],
        "filter_words": list_filter_words(action.query),
        "notes_left": action.left_out - len(action.notes),
        "has_no_worker": action.is_unfinished and not Worker.objects.alive().exists(),
        "is_update": is_update,
        # What is being read stays in place while it is the same.
        "shows_notes": not is_update or request.GET.get("left_out") != str(action.left_out),
    }
    return render(request, "runs/bulk_page.html", context)


@require_POST
@require_permission("runs.view_run", "runs.change_run")
def stop_bulk_action(request: HttpRequest, action_id: int) -> HttpResponse:
    """Stop an action; one that has ended stays as it is."""
    action = _load_action(action_id)
    with transaction.atomic():
        if action.stop():
            log_audit_event(action=AuditAction.BULK_STOPPED, about=action, details={"done": action.done})
    return redirect("runs:bulk", action_id=action_id)


def _load_action(action_id: int) -> BulkAction:
    return get_object_or_404(BulkAction.objects.select_related("asked_by").defer("run_ids"), pk=action_id)


def _format_title(action: BulkAction) -> str:
    """What an action is for: ``Cancel 12 selected runs``, ``Re-run all matching runs``."""
    verb = "Cancel" if action.kind == BulkKind.CANCEL else "Re-run"
    if action.is_chosen:
        return f"{verb} {format_plural(action.run_count, 'selected run')}"
    return f"{verb} all matching runs" if action.query else f"{verb} all runs"
