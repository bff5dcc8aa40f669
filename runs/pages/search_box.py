"""The search box of every page: runs by number, flows by name, pages by word, and searches in all runs and issues."""

from __future__ import annotations

from itertools import islice

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from flows.models import Flow
from runs.filter_fields import parse_run_number
from runs.models import Run
from runs.pages.access import require_sign_in
from runs.pages.badges import STATES
from runs.pages.guides import list_guides

MAX_QUERY = 200
MAX_FLOWS = 6
MAX_GUIDES = 5

_ANY, _STAFF = "", "staff"
_PAGES = (
    ("Overview", "runs:home", "", "home", "runs.view_run", "health failures cost"),
    ("Runs", "runs:list", "", "queue-list", "runs.view_run", "history list"),
    ("Failed and errored runs", "runs:list", "?status=failed,errored", "x-circle", "runs.view_run", "failures errors"),
    ("Running runs", "runs:list", "?status=running", "arrow-path", "runs.view_run", "active"),
    ("Issues", "runs:issues", "", "exclamation-triangle", "runs.view_run", "audits findings"),
    ("Flows", "runs:flows", "", "rectangle-stack", "runs.view_run", ""),
    ("Run a flow", "runs:choose-flow", "", "play", "runs.add_run", "start new run"),
    ("New flow", "admin:flows_flow_add", "", "plus", "flows.add_flow", "create add editor"),
    ("Workers", "runs:workers", "", "cpu-chip", "runs.view_run", "queue providers models"),
    ("Bulk actions", "runs:bulk-list", "", "queue-list", "runs.view_run", "cancel re-run many"),
    ("Webhooks", "runs:webhooks", "", "paper-airplane", "runs.view_run", "deliveries endpoints"),
    ("Audit log", "runs:trail", "", "clipboard-document-list", "runs.view_trailentry", "trail who"),
    ("Admin", "admin:index", "", "cog-6-tooth", _STAFF, "users groups limits"),
    ("API tokens", "runs:tokens", "", "key", _ANY, "access rest"),
    ("Your account", "runs:account", "", "user-circle", _ANY, "password sessions"),
    ("Docs", "runs:guides", "", "question-mark-circle", _ANY, "guides help documentation"),
    ("API reference", "api:docs", "", "code-bracket", _ANY, "rest openapi documentation"),
)
"""Title, name and query of an address, icon, the permission it takes, and further words to find it by."""


Hit = tuple[str, str, str, str]
"""One result: title, what follows it, address and icon."""


@require_safe
@require_sign_in
def show_search(request: HttpRequest) -> HttpResponse:
    """Where a text may lead: a page of results, or a part of it for the dialog. A run number leads to its run."""
    text = request.GET.get("q", "").replace("\x00", "").strip()[:MAX_QUERY]
    is_part = request.headers.get("HX-Request") == "true"
    runs: list[Hit] = []
    groups = [("Pages", _find_pages(text, request.user)), ("Docs", _find_guides(text))]
    if text and request.user.has_perm("runs.view_run"):
        runs = _find_run(text)
        searches: list[Hit] = [
            (f"Search {what} for", f"“{text}”", reverse(name, query={"q": text}), "magnifying-glass")
            for what, name in (("runs", "runs:list"), ("issues", "runs:issues"))
        ]
        groups = [("Runs", runs), ("Flows", _find_flows(text)), *groups, ("Search", searches)]
    if runs and not is_part:
        return redirect(runs[0][2])
    return render(request, "runs/search.html", {"q": text, "groups": groups, "is_part": is_part})


def _find_run(text: str) -> list[Hit]:
    number = parse_run_number(text)
    found = Run.objects.filter(pk=number).values_list("flow__title", "status") if number is not None else ()
    return [
        (f"Run #{number}", f"{title}, {STATES[status].word.lower()}", reverse("runs:page", args=[number]), "hashtag")
        for title, status in found
    ]


def _find_flows(text: str) -> list[Hit]:
    flows = Flow.objects.filter(Q(name__icontains=text) | Q(title__icontains=text)).order_by("title", "pk")
    names = flows.values_list("name", "title")[:MAX_FLOWS]
    return [(title, name, reverse("runs:flow", args=[name]), "rectangle-stack") for name, title in names]


def _find_pages(text: str, user: User | AnonymousUser) -> list[Hit]:
    words = text.lower().split()
    hits: list[Hit] = []
    for title, name, query, icon, permission, more in _PAGES:
        is_allowed = user.is_staff if permission == _STAFF else not permission or user.has_perm(permission)
        is_meant = all(word in f"{title} {more}".lower() for word in words)
        if is_allowed and is_meant and (user.is_staff or not name.startswith("admin:")):
            hits.append((title, "", reverse(name) + query, icon))
    return hits


def _find_guides(text: str) -> list[Hit]:
    words = text.lower().split()
    found = (guide for guide in list_guides() if words and all(word in guide["title"].lower() for word in words))
    return [(guide["title"], "guide", guide["url"], "book-open") for guide in islice(found, MAX_GUIDES)]
