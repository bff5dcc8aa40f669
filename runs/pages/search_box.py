"""The search box of every page: runs by number, flows by name, pages by word, and searches in all runs and issues."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlencode

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, path, reverse
from django.views.decorators.http import require_safe

from flows.models import Flow
from runs.filter_fields import parse_run_number
from runs.history.json_lines import show_invisible
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


class Hit(NamedTuple):
    """One entry of the results: ``hint`` follows its title."""

    title: str
    hint: str
    url: str
    icon: str


@require_safe
@require_sign_in
def show_search(request: HttpRequest) -> HttpResponse:
    """Where a text may lead: a page of results, or a fragment of it for the dialog. A run number leads to its run."""
    text = request.GET.get("q", "").replace("\x00", "").strip()[:MAX_QUERY]
    is_fragment = request.headers.get("HX-Request") == "true"
    runs = list(_find_run(text, request.user))
    if runs and not is_fragment:
        return redirect(runs[0].url)
    groups = (
        ("Runs", runs),
        ("Flows", list(_find_flows(text, request.user))),
        ("Pages", list(_find_pages(text, request.user))),
        ("Docs", list(_find_guides(text))),
        ("Search", list(_list_searches(text, request.user))),
    )
    context = {"q": text, "groups": [group for group in groups if group[1]]}
    return render(request, f"runs/search_{'results' if is_fragment else 'page'}.html", context)


def _find_run(text: str, user: User | AnonymousUser) -> Iterator[Hit]:
    number = parse_run_number(text)
    if number is None or not user.has_perm("runs.view_run"):
        return
    for title, status in Run.objects.filter(pk=number).values_list("flow__title", "status"):
        hint = f"{title}, {STATES[status].word.lower()}"
        yield Hit(f"Run #{number}", hint, reverse("runs:page", args=[number]), "hashtag")


def _find_flows(text: str, user: User | AnonymousUser) -> Iterator[Hit]:
    if not text or not user.has_perm("runs.view_run"):
        return
    flows = Flow.objects.filter(Q(name__icontains=text) | Q(title__icontains=text)).order_by("title", "pk")
    for name, title in flows.values_list("name", "title")[:MAX_FLOWS]:
        yield Hit(show_invisible(title), name, reverse("runs:flow", args=[name]), "rectangle-stack")


def _find_pages(text: str, user: User | AnonymousUser) -> Iterator[Hit]:
    words = text.lower().split()
    for title, name, query, icon, permission, more in _PAGES:
        is_allowed = not permission or (user.is_staff if permission == _STAFF else user.has_perm(permission))
        if not is_allowed or not all(word in f"{title} {more}".lower() for word in words):
            continue
        if name.startswith("admin:") and not user.is_staff:
            continue
        try:
            yield Hit(title, "", reverse(name) + query, icon)
        except NoReverseMatch:
            continue


def _find_guides(text: str) -> Iterator[Hit]:
    words = text.lower().split()
    if words:
        found = (guide for guide in list_guides() if all(word in guide.title.lower() for word in words))
        yield from (Hit(guide.title, "guide", guide.url, "book-open") for guide in islice(found, MAX_GUIDES))


def _list_searches(text: str, user: User | AnonymousUser) -> Iterator[Hit]:
    if not text or not user.has_perm("runs.view_run"):
        return
    for title, name in (("Search runs for", "runs:list"), ("Search issues for", "runs:issues")):
        try:
            url = reverse(name)
        except NoReverseMatch:
            continue
        yield Hit(title, f"“{show_invisible(text)}”", f"{url}?{urlencode({'q': text})}", "magnifying-glass")


urls = [path("search/", show_search, name="search")]
