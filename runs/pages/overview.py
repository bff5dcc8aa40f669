"""The home page and the page of workers: health, recent failures by cause, flows, the queue. Both keep up to date."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Min, Q
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from flows.engine.history import Outcome, Severity
from flows.engine.settling import list_blocking
from flows.models import Flow
from flows.providers import describe_providers
from runs.formatting import NOTHING, format_age, format_cost, format_count, format_duration, format_large, format_share
from runs.history.issues import address_attempt, address_issue, name_issue
from runs.history.texts import SHORT_TEXT, cut_text
from runs.models import Attempt, Issue, Run, RunStatus
from runs.pages.access import require_permission, require_viewer
from runs.pages.addresses import build_issues_url, link_runs
from runs.pages.badges import SEVERITIES, STATES, find_run_state
from runs.pages.flow_figures import plot_sparkline
from runs.pages.flow_version import load_specs
from runs.pages.samples import is_without_runs
from runs.seeding import fetch_sample_flows
from runs.statistics.figures import CHART_DAYS, MEDIAN_DAYS, FlowDay, compare_today, load_flow_days
from runs.statistics.queue_state import MAX_SHOWN, QueueState, fetch_queue_state
from runs.statistics.sums import Period, RunSums, last_days, sum_by_slot

MAX_FLOWS = 8
MAX_RUNNING = 10
MAX_CAUSES = 8
SAMPLE_SIZE = 50
"""The newest failed runs that causes are counted among, and as many errored ones."""
_MAX_COUNTED = 1_000
"""Running runs that are counted: more than a worker or two have slots for."""
_MAX_ADMINISTRATORS = 5


# Live parts


Parts = Mapping[str, tuple[object, Callable[[], Mapping[str, Any]]]]
"""Parts of a page that are replaced on their own, by name: a value that stays the same while the part reads alike, but
for passing time, and a function that gives what its template shows."""


def _describe_parts(page: str, parts: Parts, known: Sequence[str] = ()) -> dict[str, Any]:
    """The context of a page with live parts, and of its updates: what ``changed`` has another digest than is known."""
    seen = [hashlib.blake2s(repr(what).encode(), digest_size=6).hexdigest() for what, _ in parts.values()]
    loads = {name: load for name, (_, load) in parts.items()}
    return {
        "parts": loads,
        "changed": [item for item, old, new in zip(loads.items(), known, seen, strict=False) if old != new],
        "page_name": page,
        "live_url": reverse(f"runs:{page}-live", query={"seen": ".".join(seen)}),
    }


@require_viewer
def show_changes(request: HttpRequest, page: str) -> HttpResponse:
    """The parts of ``page`` that changed since those that ``?seen`` names by their digests; 204 if none did."""
    parts, seen = PARTS[page](), request.GET.get("seen", "")
    if not re.fullmatch(rf"[0-9a-f]{{12}}(\.[0-9a-f]{{12}}){{{len(parts) - 1}}}", seen):
        words = f"Ask with ?seen={'.'.join(['DIGEST'] * len(parts))}."
        return HttpResponse(words, status=400, content_type="text/plain")
    context = _describe_parts(page, parts, seen.split("."))
    return render(request, "runs/live_parts.html", context) if context["changed"] else HttpResponse(status=204)


# The overview


@require_safe
@never_cache
def show_home(request: HttpRequest) -> HttpResponseBase:
    """The overview; a user who may not see runs gets a page that names the missing permission and whom to ask."""
    if request.user.is_authenticated and not request.user.has_perm("runs.view_run"):
        can_help = Q(is_superuser=True) | Q(groups__name="Administrator")
        users = User.objects.filter(can_help, is_active=True).order_by("username").distinct()
        names = list(users.values_list("username", flat=True)[:_MAX_ADMINISTRATORS])
        return render(request, "runs/no_access.html", {"administrators": names}, status=403)
    return show_overview(request)


@require_permission("runs.view_run")
def show_overview(request: HttpRequest) -> HttpResponse:
    """Health, failures, flows and the queue; how to get started where nothing ever ran."""
    if is_without_runs():
        first = {"is_first": True, "flow_count": Flow.objects.runnable().count()}
        return render(request, "runs/overview.html", first)
    wanted = request.GET.get("runs", "")
    context = {
        **_describe_parts("overview", load_overview_parts()),
        "health": load_health(timezone.now().astimezone(UTC).date(), wants_simulated=wanted == "simulated"),
        "warnings": () if wanted in {"", "real", "simulated"} else ("“runs” can be real or simulated.",),
        "running_url": link_runs(status="running"),
        "failed_url": link_runs(status="failed,errored"),
        "has_samples": fetch_sample_flows().exists(),
    }
    return render(request, "runs/overview.html", context)


def load_overview_parts() -> Parts:
    """The live parts of the overview. Each query reads the few rows that are shown off an index."""
    queue = fetch_queue_state(limit=MAX_SHOWN)
    columns = ("status", "cancel_requested", "revision", "started_at", "step_count", "steps_passed", "attempt_count")
    newest = Run.objects.running().select_related("flow", "version").order_by("-created_at", "-pk")
    running = list(newest.only(*columns, "flow__title", "version__number")[: MAX_RUNNING + 1])
    failed = _fetch_failed()
    figures = _build_queue_figures(queue, Run.objects.running().order_by()[:_MAX_COUNTED].count())
    figures["scheduled"] = _format_backlog(queue, "later", "waiting")
    return {
        "notice": (queue.is_unattended, lambda: {"has_no_worker": queue.is_unattended}),
        "failures": ([run.pk for run in failed], lambda: {"causes": list_causes(failed), "failed": failed}),
        "running": (
            [(run.pk, run.revision) for run in running],
            lambda: {
                "runs": [(run, STATES[find_run_state(run)]) for run in running[:MAX_RUNNING]],
                "has_more": len(running) > MAX_RUNNING,
            },
        ),
        "queue": (figures, lambda: figures),
    }


def _build_queue_figures(queue: QueueState, running: int = 0) -> dict[str, Any]:
    """Workers and backlog; ``running`` is how many runs are known to be so.

    Workers report their slots with each heartbeat; until the next one the runs themselves know better. Those whose
    worker died are running too, in no slot.
    """
    silent = sum(worker.state == "silent" for worker in queue.workers)
    return {
        "running": f"{format_count(min(max(queue.in_flight, running), queue.slots))} / {format_count(queue.slots)}",
        "queued": _format_backlog(queue, "ready"),
        "scheduled": _format_backlog(queue, "later"),
        "online": len(queue.workers) - silent,
        "silent": silent,
    }


def _format_backlog(queue: QueueState, *kinds: str) -> str:
    """How many runs of these kinds are queued; at least how many of a long backlog."""
    count = sum(getattr(queue, kind) for kind in kinds)
    return f"{'≥ ' if count >= MAX_SHOWN else ''}{format_count(count)}"


def _fetch_failed() -> list[Any]:
    """The newest runs that failed or ended with an error."""
    columns = ("ended_at", "status", "end_reason", "blocking_step", "blocking_attempt", "flow__name", "flow__title")
    joined = Run.objects.select_related("flow", "version").only(*columns, "version__digest")
    runs = joined.annotate(sentence=Left("end_sentence", SHORT_TEXT + 1))
    ended = runs.filter(ended_at__isnull=False).order_by("-ended_at")
    # One status at a time: both together are in no order of an index.
    statuses = (RunStatus.FAILED, RunStatus.ERRORED)
    found: list[Any] = [run for status in statuses for run in ended.filter(status=status)[:SAMPLE_SIZE]]
    return sorted(found, key=attrgetter("ended_at"), reverse=True)


def list_causes(failed: Sequence[Any]) -> list[dict[str, Any]]:
    """Failures by flow, end reason and what blocked: the most frequent first. At most four queries."""
    blocking = _fetch_blocking(failed)
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for run in failed:
        step_name, issue = blocking.get(run.pk, ("", None))
        key = (run.flow_id, run.status, run.end_reason, step_name, issue and (issue.audit or issue.code))
        groups.setdefault(key, []).append(run)
    largest = sorted(groups.values(), key=lambda runs: (-len(runs), -runs[0].pk))[:MAX_CAUSES]
    return [_build_cause(runs, *blocking.get(runs[0].pk, ("", None))) for runs in largest]


def _build_cause(runs: Sequence[Any], step_name: str, issue: Any) -> dict[str, Any]:
    """Runs that failed for one reason; ``url`` leads to what blocked the newest, at the offending value."""
    newest = runs[0]
    url = reverse("runs:page", args=[newest.pk])
    if issue is not None:
        url += address_issue(newest.blocking_step, newest.blocking_attempt, issue.position)
    elif newest.blocking_attempt is not None:
        url += address_attempt(newest.blocking_step, newest.blocking_attempt)
    about = {} if issue is None else {"audit": issue.audit} if issue.audit else {"code": issue.code}
    return {
        "run": newest,
        "count": len(runs),
        "title": name_issue(issue) if issue else newest.get_end_reason_display() or "No reason was recorded",
        "badge": SEVERITIES[issue.severity] if issue else STATES[newest.status],
        "step_name": step_name,
        "message": cut_text((issue and issue.beginning) or newest.sentence, SHORT_TEXT),
        "url": url,
        "issues_url": issue and build_issues_url(newest.flow.name, **about, step=newest.blocking_step, period="90d"),
    }


def _fetch_blocking(failed: Sequence[Any]) -> dict[int, tuple[str, Any]]:
    """The name of the step that decided a run and, of a failed one, the worst issue that blocked it, by run.

    The attempt after which a run errored, such as one that used up the budget, may have issues that had no part in it.
    At most four queries.
    """
    runs = {run.pk: run for run in failed if run.blocking_step is not None}
    specs = load_specs({run.version for run in runs.values()})
    decided = Attempt.objects.filter(
        step__run__in=runs, step__index=F("step__run__blocking_step"), number=F("step__run__blocking_attempt")
    )
    attempts = decided.select_related("step").only("outcome", "step__run", "step__name").in_bulk()
    kinds = Issue.objects.filter(attempt__in=attempts).order_by().values_list("attempt", "audit", "severity")
    issues: dict[int, list[Issue]] = {}
    for key, audit, severity, first in kinds.annotate(first=Min("pk")):
        issues.setdefault(key, []).append(Issue(pk=first, audit=audit, severity=severity))
    worst = dict[int, int]()
    for key, found in issues.items():
        run = runs[attempts[key].step.run_id]
        if run.status == RunStatus.FAILED:
            ended: Any = SimpleNamespace(outcome=Outcome(attempts[key].outcome), issues=found)
            spec = specs[run.version_id]
            blocking = list_blocking(spec.step(run.blocking_step), ended) if spec else found
            worst[run.pk] = max(blocking, key=lambda one: (Severity(one.severity).weight, -one.pk)).pk
    shown = Issue.objects.only("audit", "code", "severity", "position")
    rows = shown.annotate(beginning=Left("description", SHORT_TEXT + 1)).in_bulk(list(worst.values()))
    names = {one.step.run_id: one.step.name for one in attempts.values()}
    return {run_id: (name, rows.get(worst.get(run_id, 0))) for run_id, name in names.items()}


# Health


def load_health(today: date, *, wants_simulated: bool) -> dict[str, Any] | None:
    """Today beside the days before over all flows; None if no run ended. Two queries.

    Simulated runs are summed up if they are asked for, or if there are no others.
    """
    period = last_days(CHART_DAYS, today)
    by_kind = load_flow_days(period)
    if not by_kind:
        return None
    is_simulated = wants_simulated if len(by_kind) == 2 else True in by_kind
    rows = by_kind[is_simulated]
    so_far, median = compare_today(today, is_simulated=is_simulated)
    days = sum_by_slot(period, ((row.day, row.sums) for row in rows))
    # Trends of flows show tokens where no price is known.
    is_by_cost = not is_simulated and any(row.sums.cost for row in rows)
    return {
        "figures": _build_figures(so_far, median, days, is_simulated=is_simulated),
        "median": median,
        "median_days": MEDIAN_DAYS,
        "days": period.slots,
        "flows": _list_flows(rows, period, is_by_cost=is_by_cost, is_simulated=is_simulated),
        "is_by_cost": is_by_cost,
        "is_simulated": is_simulated,
        "has_both": len(by_kind) == 2,
    }


_FIGURES: tuple[tuple[str, str, str, Callable[..., str], float | None], ...] = (
    ("Pass rate", "pass_rate", "pass_rate", format_share, 1.0),
    ("Cost", "known_cost", "cost", format_cost, None),
    ("First-attempt pass rate", "first_rate", "first_rate", format_share, 1.0),
    ("Runs", "runs", "runs", format_large, None),
    ("Median duration", "median", "duration_p50", format_duration, None),
    ("Tokens", "total_tokens", "total_tokens", format_large, None),
)
"""Label, name of the sum, name of its median, how it reads, and the value of full height in its trend."""


def _build_figures(
    so_far: RunSums, median: Mapping[str, Any] | None, days: Sequence[RunSums | None], *, is_simulated: bool
) -> list[dict[str, Any]]:
    figures = []
    for label, name, median_name, format_value, most in _FIGURES:
        if is_simulated and name == "known_cost":
            continue
        usual = median and median[median_name]
        values = [value and float(value) for value in (getattr(day, name, None) for day in days)]
        # A cost is a lower bound where prices are missing.
        so_far_unpriced = [so_far.unpriced] if name == "known_cost" else []
        usual_unpriced = [median["unpriced"]] if median and name == "known_cost" else []
        figures.append(
            {
                "label": label,
                "value": format_value(getattr(so_far, name), *so_far_unpriced),
                "baseline": "" if usual is None else format_value(usual, *usual_unpriced),
                "trend": plot_sparkline(values, most=most) if any(values) else None,
            }
        )
    return figures


def _list_flows(
    rows: Sequence[FlowDay], period: Period, *, is_by_cost: bool, is_simulated: bool
) -> list[dict[str, Any]]:
    """The use of each flow, the most expensive first; those beyond the first few are added up."""
    by_flow: dict[int, list[FlowDay]] = {}
    for row in rows:
        by_flow.setdefault(row.flow_id, []).append(row)
    groups = [(own[0].name, own[0].title, own, RunSums.join(row.sums for row in own)) for own in by_flow.values()]
    groups.sort(key=lambda group: (-group[3].cost, -group[3].total_tokens, group[1]))
    if len(groups) > MAX_FLOWS + 1:
        others = groups[MAX_FLOWS:]
        joined = [row for group in others for row in group[2]]
        groups[MAX_FLOWS:] = [("", f"{len(others)} other flows", joined, RunSums.join(row.sums for row in joined))]
    slots = [sum_by_slot(period, ((row.day, row.sums) for row in group[2])) for group in groups]
    # One scale for all, so that flows can be compared.
    most_cost = max((float(sums.cost) for own in slots for sums in own if sums), default=0.0)
    most_tokens = max((sums.total_tokens for own in slots for sums in own if sums), default=0)
    uses = []
    for (name, title, _, total), days in zip(groups, slots, strict=True):
        shows_cost = is_by_cost and total.known_cost is not None
        values = [None if day is None else float(day.cost if shows_cost else day.total_tokens) for day in days]
        most, kind = (most_cost, "value") if shows_cost else (float(most_tokens), "tokens")
        uses.append(
            {
                "name": name,
                "title": title,
                "trend": plot_sparkline(values, most=most, kind=kind),
                "runs": total.runs,
                "pass_rate": format_share(total.pass_rate),
                "tokens": format_large(total.total_tokens),
                "cost": NOTHING if is_simulated else format_cost(total.known_cost, total.unpriced),
                "cells": [_format_day(day, by_cost=shows_cost) for day in days],
            }
        )
    return uses


def _format_day(sums: RunSums | None, *, by_cost: bool) -> str:
    if sums is None:
        return NOTHING
    return format_cost(sums.known_cost, sums.unpriced) if by_cost else f"{format_count(sums.total_tokens)} tokens"


# Workers


@require_viewer
def show_workers(request: HttpRequest) -> HttpResponse:
    """The workers, the queue and the model providers."""
    context = {**_describe_parts("workers", load_worker_parts()), "providers": describe_providers()}
    return render(request, "runs/workers.html", context)


def load_worker_parts() -> Parts:
    """The live parts of the page of workers."""
    queue = fetch_queue_state(limit=MAX_SHOWN)
    figures = {
        **_build_queue_figures(queue),
        "oldest": format_age(queue.oldest_ready),
        "blocked": _format_backlog(queue, "waiting"),
    }
    rows = [
        {
            **{name: getattr(worker, name) for name in ("host", "pid", "version", "slots", "in_flight")},
            "state": STATES[worker.state],
            "uptime": format_age(worker.running_for),
            "heartbeat": f"{format_age(worker.silent_for)} ago",
        }
        for worker in queue.workers
    ]
    return {
        "notice": (queue.is_unattended, lambda: {"has_no_worker": queue.is_unattended}),
        "figures": (figures, lambda: figures),
        "table": (rows, lambda: {"workers": rows}),
    }


PARTS: Mapping[str, Callable[[], Parts]] = {"overview": load_overview_parts, "workers": load_worker_parts}
