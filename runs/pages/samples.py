"""Sample history: an installation without runs is filled with it, and one button removes it."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from flows.models import FlowVersion
from runs.audit_log.events import AuditAction, log_audit_event, without_entries
from runs.formatting import format_plural
from runs.locks import hold
from runs.models import DailyRuns, Run
from runs.pages.access import confirm, require_permission
from runs.seeding import SampleError, fetch_sample_flows, remove_samples, seed_history
from runs.seeding.storing import NOTE, USERS

RUNS, PLANTED_RUNS, DAYS = 300, 100, 14
"""What is made within a request: it takes about two seconds."""
MAX_REMOVED = 1_000
"""Runs that are removed within a request, which is one transaction: other writers of SQLite wait for it."""


def is_without_runs() -> bool:
    """Whether nothing ever ran here. Statistics stay when retention deletes runs."""
    return not Run.objects.order_by("-pk").values_list("pk")[:1] and not DailyRuns.objects.exists()


@require_POST
@require_permission("runs.add_run", "flows.add_flow")
def add_samples(request: HttpRequest) -> HttpResponse:
    """Fill an installation without runs with sample history."""
    try:
        with transaction.atomic():
            # Of two requests at the same moment one is the first.
            if not hold("samples") or not is_without_runs():
                raise SampleError("There are runs already. Sample history is for an installation without any.")
            with without_entries():
                seed_history(runs=RUNS, planted=PLANTED_RUNS, until=timezone.now(), days=DAYS, is_simulated=True)
            log_audit_event(action=AuditAction.SAMPLES_ADDED, kind="run", details={"runs": RUNS + PLANTED_RUNS})
    except SampleError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{RUNS + PLANTED_RUNS} sample runs added.")
    return redirect("runs:home")


def describe_samples() -> str:
    """What goes with sample history: “400 sample runs, with 12 runs and 1 version of your own in their flows”."""
    flows = fetch_sample_flows()
    runs, versions = Run.objects.filter(flow__in=flows).order_by(), FlowVersion.objects.filter(flow__in=flows)
    added = runs.exclude(started_by__username__in=USERS).count()
    own = [
        format_plural(count, noun)
        for count, noun in ((added, "run"), (versions.exclude(note__startswith=NOTE).count(), "version"))
        if count
    ]
    words = format_plural(runs.count() - added, "sample run")
    return f"{words}, with {' and '.join(own)} of your own in their flows" if own else words


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("flows.delete_flow")
def delete_samples(request: HttpRequest) -> HttpResponse:
    """Ask whether to remove all sample history, and do it."""
    found = describe_samples()
    if request.method != "POST":
        return confirm(
            request,
            "Remove",
            "sample history",
            reason=f"This deletes {found}.",
            icon_name="trash",
            back="Keep it",
            back_url=reverse("runs:home"),
        )
    try:
        count = Run.objects.filter(flow__in=fetch_sample_flows()).order_by()[: MAX_REMOVED + 1].count()
        if count > MAX_REMOVED:
            words = f"There are more than {MAX_REMOVED:,} sample runs."
            raise SampleError(f"{words} Remove them with “manage.py seed_history --remove”.")
        with transaction.atomic():
            with without_entries():
                remove_samples()
            log_audit_event(action=AuditAction.SAMPLES_REMOVED, kind="run", details={"runs": count})
    except SampleError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Removed: {found}.")
    return redirect("runs:home")
