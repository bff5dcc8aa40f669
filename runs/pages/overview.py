"""The home page: what runs now, what failed lately, today beside the 7-day median, cost by flow and day."""

from __future__ import annotations

import re

from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from flows.models import Flow
from runs.models import DailyRuns, Run
from runs.pages.access import require_permission
from runs.pages.flow_query import REAL, SIMULATED
from runs.pages.overview_now import PARTS, name_parts, read_parts
from runs.pages.recent_days import load_recent_days

_MOST_NAMES = 5


@require_safe
@never_cache
def show_home(request: HttpRequest) -> HttpResponseBase:
    """The overview; whoever signed in and may not see runs is told what is missing and whom to ask."""
    if request.user.is_authenticated and not request.user.has_perm("runs.view_run"):
        return _explain_access(request)
    return show_overview(request)


@require_permission("runs.view_run")
def show_overview(request: HttpRequest) -> HttpResponse:
    """What goes on and how it went lately; where nothing ever ran the way to the first run."""
    # Statistics stay when retention deletes runs.
    if not Run.objects.order_by("-pk").values_list("pk")[:1] and not DailyRuns.objects.exists():
        return render(request, "runs/first_run.html", {"has_flow": Flow.objects.runnable().exists()})
    now = timezone.now()
    parts = read_parts(now)
    wanted = request.GET.get("runs", "")
    recent = load_recent_days(now, wants_simulated=wanted == SIMULATED)
    context = {
        "parts": {part.name: part for part in parts},
        "seen": name_parts(parts),
        "recent": recent,
        "is_simulated": recent is not None and recent.is_simulated,
        "is_choice_unknown": wanted not in {"", REAL, SIMULATED},
        "now": now,
    }
    return render(request, "runs/overview.html", context)


@require_safe
@require_permission("runs.view_run")
def show_overview_changes(request: HttpRequest) -> HttpResponse:
    """The parts that changed since those that ``seen`` names by their digests. 204 if none did."""
    seen = request.GET.get("seen", "")
    if not re.fullmatch(rf"[0-9a-f]{{12}}(\.[0-9a-f]{{12}}){{{len(PARTS) - 1}}}", seen):
        return HttpResponse(
            f"Ask with ?seen={'.'.join(['DIGEST'] * len(PARTS))}.", status=400, content_type="text/plain"
        )
    parts = read_parts(timezone.now())
    changed = [part for part, known in zip(parts, seen.split("."), strict=True) if part.digest != known]
    if not changed:
        return HttpResponse(status=204)
    return render(request, "runs/overview_live.html", {"changed": changed, "seen": name_parts(parts)})


def _explain_access(request: HttpRequest) -> HttpResponse:
    may_help = Q(is_superuser=True) | Q(groups__name="Administrator")
    users = User.objects.filter(may_help, is_active=True).order_by("username").distinct()
    names = list(users.values_list("username", flat=True)[:_MOST_NAMES])
    return render(request, "runs/no_access.html", {"administrators": names}, status=403)


urls: list[URLPattern] = [
    path("", show_home, name="home"),
    path("overview/live", show_overview_changes, name="home-live"),
]
