"""Saved views above the list of runs: tabs, saving the filters that are set, and values to filter by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST, require_safe

from runs.facets import list_known_values
from runs.filters import PARAMETERS, RunFilters
from runs.history.json_lines import show_invisible
from runs.models import SavedView
from runs.models.saved_view import MAX_VIEWS, NameTakenError, TooManyViewsError, parse_name
from runs.pages.access import require_permission


@dataclass(frozen=True, slots=True)
class ViewTab:
    """A view to choose."""

    id: int
    name: str
    query: str
    url: str
    is_current: bool
    is_shared: bool
    shared_by: str
    """The user who shares it; empty for one's own."""

    @property
    def is_own(self) -> bool:
        return not self.shared_by


@dataclass(frozen=True, slots=True)
class ViewTabs:
    """The user's own views, then those that others share."""

    views: tuple[ViewTab, ...]
    query: str
    """The filters of the page."""

    @property
    def current(self) -> ViewTab | None:
        return next((view for view in self.views if view.is_current), None)

    @property
    def can_save(self) -> bool:
        """Whether the page has filters that the user has not saved."""
        return bool(self.query) and not any(view.is_own and view.query == self.query for view in self.views)


def load_view_tabs(user: User | AnonymousUser, filters: RunFilters, given: Mapping[str, str]) -> ViewTabs:
    """The views that ``user`` sees. One query.

    ``given`` is the query that ``filters`` were read from: a view may hold filters that are no longer valid, such as
    the former name of a flow, and is the current one all the same.
    """
    views = SavedView.objects.seen_by(user.pk or 0)
    rows = list(views.values_list("pk", "name", "query", "is_shared", "owner", "owner__username"))
    written = {name: value for name, value in given.items() if name in PARAMETERS and value}
    current = next((query for _, _, query, *_ in rows if dict(parse_qsl(query)) == written), filters.to_query())
    tabs = [
        ViewTab(
            id=view_id,
            name=show_invisible(name),
            query=query,
            url=_build_url(query),
            is_current=query == current,
            is_shared=is_shared,
            shared_by="" if owner_id == user.pk else show_invisible(owner),
        )
        for view_id, name, query, is_shared, owner_id, owner in rows
    ]
    others = [tab for tab in tabs if not tab.is_own]
    return ViewTabs((*(tab for tab in tabs if tab.is_own), *others[:MAX_VIEWS]), filters.to_query())


@require_POST
@require_permission("runs.view_run")
def save_view(request: HttpRequest) -> HttpResponseRedirect:
    """Save filters under a name, and return to the list with them; a message says what became of it."""
    query = RunFilters(request.POST.get("query", "")).to_query()
    is_shared = request.POST.get("shared") == "yes" and request.user.has_perm("runs.change_run")
    try:
        name = parse_name(request.POST.get("name", ""))
        if not query:
            raise ValueError("Choose filters first: a view without any is the list itself.")
        SavedView.objects.store(owner_id=request.user.pk or 0, name=name, query=query, is_shared=is_shared)
    except (ValueError, TooManyViewsError, NameTakenError) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"The view “{name}” is saved{' and shared with all users' if is_shared else ''}.")
    return HttpResponseRedirect(_build_url(query))


@require_POST
@require_permission("runs.view_run")
def delete_view(request: HttpRequest, view_id: int) -> HttpResponseRedirect:
    """Delete one of the user's own views; the filters stay on."""
    view = get_object_or_404(SavedView, pk=view_id, owner=request.user.pk)
    view.delete()
    messages.success(request, f"The view “{show_invisible(view.name)}” is deleted.")
    return HttpResponseRedirect(_build_url(view.query))


@require_safe
@require_permission("runs.view_run")
def show_known_values(request: HttpRequest) -> HttpResponse:
    """Values that runs have, which the fields of the filters suggest."""
    known = [(kind.value, values) for kind, values in list_known_values().items()]
    return render(request, "runs/filter_values.html", {"known": known})


def _build_url(query: str) -> str:
    return reverse("runs:list") + (f"?{query}" if query else "")


urls: list[URLPattern] = [
    path("runs/views/add/", save_view, name="saved-view-add"),
    path("runs/views/values/", show_known_values, name="saved-view-values"),
    path("runs/views/<number:view_id>/delete/", delete_view, name="saved-view-delete"),
]
