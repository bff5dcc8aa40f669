"""The home page and the page of workers: health, recent failures by cause, flows, the queue. Both keep up to date."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from flows.models import Flow
from flows.providers import describe_providers
from runs.formatting import Moment, build_moment, format_age, format_count, format_duration, format_plural
from runs.history.issue_links import anchor_issue
from runs.history.texts import SHORT_TEXT, CutText, cut_text
from runs.models import Attempt, DailyRuns, Issue, Run, RunStatus
from runs.models.run import EndReason
from runs.pages.access import require_permission
from runs.pages.addresses import find_address, link_runs
from runs.pages.badges import SEVERITIES, STATES, Badge
from runs.pages.health import load_health
from runs.statistics.queue_state import MAX_SHOWN, QueueState, fetch_queue_state

REAL, SIMULATED = "real", "simulated"
MAX_RUNNING = 10
MAX_CAUSES = 8
SAMPLE_SIZE = 50
"""The newest failed runs that causes are counted among, and as many errored ones."""
_MAX_COUNTED = 1_000
"""Running runs that are counted: more than a worker or two have slots for."""
_MAX_ADMINISTRATORS = 5


# Live parts


class Part(NamedTuple):
    """A part of a page that is replaced on its own. Parts of one ``digest`` read alike, but for passing time."""

    name: str
    digest: str
    load: Callable[[], Mapping[str, Any]]

    @property
    def content(self) -> Mapping[str, Any]:
        """What the template of the part shows."""
        return self.load()


def _digest(what: object) -> str:
    return hashlib.blake2s(repr(what).encode(), digest_size=6).hexdigest()


def _describe_parts(page: str, parts: Sequence[Part]) -> dict[str, Any]:
    """The context of a page with live parts, and of its updates."""
    seconds, live_url = (5, "runs:home-live") if page == "overview" else (2, "runs:workers-live")
    seen = ".".join(part.digest for part in parts)
    return {
        "parts": {part.name: part for part in parts},
        "page_name": page,
        "part_template": f"runs/{page}_part.html",
        "live_url": f"{find_address(live_url)}?seen={seen}",
        "interval": f"{seconds}s",
    }


def _answer_changes(request: HttpRequest, page: str, parts: Sequence[Part]) -> HttpResponse:
    """The parts that changed since those that ``?seen`` names by their digests; 204 if none did."""
    seen = request.GET.get("seen", "")
    if not re.fullmatch(rf"[0-9a-f]{{12}}(\.[0-9a-f]{{12}}){{{len(parts) - 1}}}", seen):
        words = f"Ask with ?seen={'.'.join(['DIGEST'] * len(parts))}."
        return HttpResponse(words, status=400, content_type="text/plain")
    changed = [part for part, known in zip(parts, seen.split("."), strict=True) if part.digest != known]
    if not changed:
        return HttpResponse(status=204)
    return render(request, "runs/live_parts.html", {**_describe_parts(page, parts), "changed": changed})


# The overview


@require_safe
@never_cache
def show_home(request: HttpRequest) -> HttpResponseBase:
    """The overview; a user who may not see runs is told which permission is missing and whom to ask."""
    if request.user.is_authenticated and not request.user.has_perm("runs.view_run"):
        can_help = Q(is_superuser=True) | Q(groups__name="Administrator")
        users = User.objects.filter(can_help, is_active=True).order_by("username").distinct()
        names = list(users.values_list("username", flat=True)[:_MAX_ADMINISTRATORS])
        return render(request, "runs/no_access.html", {"administrators": names}, status=403)
    return show_overview(request)


@require_permission("runs.view_run")
def show_overview(request: HttpRequest) -> HttpResponse:
    """Health, failures, flows and the queue; how to get started where nothing ever ran."""
    # Statistics stay when retention deletes runs.
    if not Run.objects.order_by("-pk").values_list("pk")[:1] and not DailyRuns.objects.exists():
        return render(request, "runs/first_run.html", {"flow_count": Flow.objects.runnable().count()})
    now = timezone.now()
    wanted = request.GET.get("runs", "")
    context = {
        **_describe_parts("overview", load_parts(now)),
        "health": load_health(now, wants_simulated=wanted == SIMULATED),
        "is_choice_unknown": wanted not in {"", REAL, SIMULATED},
        "running_url": link_runs(status="running"),
        "failed_url": link_runs(status="failed,errored"),
    }
    return render(request, "runs/overview.html", context)


@require_safe
@require_permission("runs.view_run")
def show_overview_changes(request: HttpRequest) -> HttpResponse:
    """The parts of the overview that changed."""
    return _answer_changes(request, "overview", load_parts(timezone.now()))


def load_parts(now: datetime) -> tuple[Part, ...]:
    """The live parts of the overview. Each query reads the few rows that are shown off an index."""
    queue = fetch_queue_state(limit=MAX_SHOWN)
    running = list(_select_running()[: MAX_RUNNING + 1])
    failed = _fetch_failed()
    figures = _build_queue_figures(queue)
    return (
        Part("notice", _digest(queue.is_unattended), lambda: {"has_no_worker": queue.is_unattended}),
        Part("failures", _digest([row.pk for row in failed]), lambda: {"causes": list_causes(failed, now)}),
        Part(
            "running",
            _digest([(run.pk, run.revision) for run in running]),
            lambda: {
                "runs": [_build_running(run, now) for run in running[:MAX_RUNNING]],
                "has_more": len(running) > MAX_RUNNING,
            },
        ),
        Part("queue", _digest(figures), lambda: figures),
    )


def _build_queue_figures(queue: QueueState) -> dict[str, Any]:
    # Workers report their slots with each heartbeat; until the next one the runs themselves know better. Those whose
    # worker died are running too, in no slot.
    running = Run.objects.running().order_by()[:_MAX_COUNTED].count()
    silent = sum(worker.state == "silent" for worker in queue.workers)
    return {
        "running": f"{format_count(min(max(queue.in_flight, running), queue.slots))} / {format_count(queue.slots)}",
        "queued": _format_backlog(queue, "ready"),
        "scheduled": _format_backlog(queue, "later", "waiting"),
        "online": len(queue.workers) - silent,
        "silent": silent,
    }


def _format_backlog(queue: QueueState, *kinds: str) -> str:
    """How many runs of these kinds are queued; at least how many of a long backlog."""
    count = format_count(sum(getattr(queue, kind) for kind in kinds))
    return f"≥ {count}" if queue.more.intersection(kinds) else count


class RunningRun(NamedTuple):
    """A run under way; ``progress`` is the share of its steps that passed, in per cent."""

    number: int
    title: str
    version: int
    url: str
    state: Badge
    progress: int
    words: str
    started: Moment | None
    elapsed: str


def _select_running() -> Any:
    runs = Run.objects.select_related("flow", "version").only(
        *("status", "cancel_requested", "revision", "started_at", "step_count", "steps_passed", "attempt_count"),
        *("flow__title", "version__number"),
    )
    return runs.running().order_by("-created_at", "-pk")


def _build_running(run: Run, now: datetime) -> RunningRun:
    passed = f"{run.steps_passed} of {format_plural(run.step_count, 'step')} passed"
    begun = run.started_at
    return RunningRun(
        number=run.pk,
        title=run.flow.title,
        version=run.version.number,
        url=reverse("runs:page", args=[run.pk]),
        state=STATES["cancelling" if run.cancel_requested else str(run.status)],
        progress=round(100 * run.steps_passed / run.step_count) if run.step_count else 0,
        words=f"{passed}, {format_plural(run.attempt_count, 'attempt')}",
        started=build_moment(begun, now, timezone.get_current_timezone()) if begun else None,
        elapsed=format_duration((now - begun).total_seconds()) if begun else "",
    )


# Recent failures by cause


class FailedRow(NamedTuple):
    pk: int
    ended_at: datetime
    flow_id: int
    status: str
    end_reason: str
    blocking_step: int | None
    blocking_attempt: int | None


@dataclass(frozen=True, slots=True)
class Blocking:
    """The attempt that decided a run, and its most severe issue if it has any."""

    step_name: str
    audit: str = ""
    """Its name, or the code of an issue of ToolFlow's own in words."""
    severity: Badge | None = None
    message: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Runs that failed for one reason. ``url`` leads to the blocking attempt of the newest."""

    title: str
    state: Badge
    flow_title: str
    place: str
    message: CutText
    severity: Badge | None
    count: str
    number: int
    """The newest run."""
    url: str
    run_url: str
    ended: Moment
    age: str


def _fetch_failed() -> list[FailedRow]:
    """The newest runs that failed or ended with an error."""
    rows: list[FailedRow] = []
    # One status at a time: both together are in no order of an index.
    for status in (RunStatus.FAILED, RunStatus.ERRORED):
        newest = Run.objects.filter(status=status, ended_at__isnull=False).order_by("-ended_at")
        rows += map(FailedRow._make, newest.values_list(*FailedRow._fields)[:SAMPLE_SIZE])
    return sorted(rows, key=lambda row: row.ended_at, reverse=True)


def list_causes(failed: Sequence[FailedRow], now: datetime) -> list[Cause]:
    """Failures by flow, end reason and what blocked: the most frequent first. Four queries."""
    blocking = _fetch_blocking([row.pk for row in failed if row.blocking_step is not None])
    groups: dict[tuple[Any, ...], list[FailedRow]] = {}
    for row in failed:
        one = blocking.get(row.pk)
        key = (row.flow_id, row.status, row.end_reason, one and one.step_name, one and one.audit)
        groups.setdefault(key, []).append(row)
    largest = sorted(groups.values(), key=lambda rows: (-len(rows), -rows[0].pk))[:MAX_CAUSES]
    newest = [rows[0] for rows in largest]
    titles = dict(Flow.objects.filter(pk__in={row.flow_id for row in newest}).values_list("pk", "title"))
    runs = Run.objects.filter(pk__in=[row.pk for row in newest])
    texts = dict(runs.values_list("pk", Left("end_sentence", SHORT_TEXT + 1)))
    return [
        _build_cause(rows, blocking.get(rows[0].pk), titles.get(rows[0].flow_id, ""), texts.get(rows[0].pk, ""), now)
        for rows in largest
    ]


def _build_cause(
    rows: Sequence[FailedRow], blocking: Blocking | None, title: str, sentence: str, now: datetime
) -> Cause:
    newest = rows[0]
    run_url = url = reverse("runs:page", args=[newest.pk])
    place = ""
    if newest.blocking_step is not None and newest.blocking_attempt is not None:
        url = reverse("runs:attempt", args=[newest.pk, newest.blocking_step, newest.blocking_attempt])
        place = f"Step {newest.blocking_step}"
        if blocking is not None:
            url += f"#{blocking.anchor}" if blocking.anchor else ""
            place += f", {blocking.step_name}"
    reason = str(EndReason(newest.end_reason).label) if newest.end_reason else "No reason was recorded"
    return Cause(
        title=(blocking and blocking.audit) or reason,
        state=STATES[newest.status],
        flow_title=title,
        place=place,
        message=cut_text((blocking and blocking.message) or sentence, SHORT_TEXT),
        severity=blocking.severity if blocking else None,
        count=format_plural(len(rows), "run"),
        number=newest.pk,
        url=url,
        run_url=run_url,
        ended=build_moment(newest.ended_at, now, timezone.get_current_timezone()),
        age=f"{format_age(max(now - newest.ended_at, timedelta(0)))} ago",
    )


def _fetch_blocking(run_ids: Sequence[int]) -> dict[int, Blocking]:
    """The blocking attempts of runs, by run. Two queries."""
    rank = Case(*(When(severity=name, then=Value(place)) for place, name in enumerate(SEVERITIES)))
    issues = Issue.objects.filter(attempt=OuterRef("pk")).order_by(rank, "position")
    attempts = Attempt.objects.filter(
        step__run__in=run_ids,
        step__index=F("step__run__blocking_step"),
        number=F("step__run__blocking_attempt"),
    )
    rows = attempts.order_by().values_list(
        "step__run_id", "step__name", "step__index", "number", Subquery(issues.values("pk")[:1])
    )
    found = list(rows)
    columns = ("pk", "audit", "code", "severity", "position", Left("description", SHORT_TEXT + 1))
    worst = {row[0]: row[1:] for row in Issue.objects.filter(pk__in=[row[4] for row in found]).values_list(*columns)}
    blocking = {}
    for run_id, name, step, number, issue_id in found:
        blocking[run_id] = Blocking(name)
        if issue_id in worst:
            audit, code, severity, position, message = worst[issue_id]
            anchor = anchor_issue(step, number, position)
            words = audit or code.replace("_", " ").capitalize()
            blocking[run_id] = Blocking(name, words, SEVERITIES[severity], message, anchor)
    return blocking


# Workers


class WorkerRow(NamedTuple):
    """One worker, as text."""

    host: str
    state: Badge
    in_flight: str
    slots: str
    pid: int
    version: str
    running_for: str
    heartbeat: str


@require_safe
@require_permission("runs.view_run")
def show_workers(request: HttpRequest) -> HttpResponse:
    """The workers, the queue and the model providers."""
    context = {**_describe_parts("workers", _load_worker_parts()), "providers": describe_providers()}
    return render(request, "runs/workers.html", context)


@require_safe
@require_permission("runs.view_run")
def show_worker_changes(request: HttpRequest) -> HttpResponse:
    """The parts of the page of workers that changed."""
    return _answer_changes(request, "workers", _load_worker_parts())


def _load_worker_parts() -> tuple[Part, ...]:
    queue = fetch_queue_state(limit=MAX_SHOWN)
    silent = sum(worker.state == "silent" for worker in queue.workers)
    figures = {
        "online": len(queue.workers) - silent,
        "silent": silent,
        "running": f"{format_count(queue.in_flight)} / {format_count(queue.slots)}",
        "queued": _format_backlog(queue, "ready"),
        "oldest": format_age(queue.oldest_ready),
        "scheduled": _format_backlog(queue, "later"),
        "blocked": _format_backlog(queue, "waiting"),
    }
    rows = [
        WorkerRow(
            worker.host,
            STATES[worker.state],
            format_count(worker.in_flight),
            format_count(worker.slots),
            worker.pid,
            worker.version,
            format_age(worker.running_for),
            f"{format_age(worker.silent_for)} ago",
        )
        for worker in queue.workers
    ]
    return (
        Part("notice", _digest(queue.is_unattended), lambda: {"has_no_worker": queue.is_unattended}),
        Part("figures", _digest(figures), lambda: figures),
        Part("table", _digest(rows), lambda: {"workers": rows}),
    )


urls = [
    path("", show_home, name="home"),
    path("overview/live", show_overview_changes, name="home-live"),
    path("workers/", show_workers, name="workers"),
    path("workers/live", show_worker_changes, name="workers-live"),
]
