"""Saved views above the list of runs: tabs, saving the filters that are set, and values to filter by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST, require_safe

from runs.facets import list_known_values
from runs.filters import PARAMETERS, RunFilters
from runs.history.texts import show_invisible
from runs.models import SavedView
from runs.models.saved_view import MAX_VIEWS, NameTakenError, TooManyViewsError, parse_name
from runs.pages.access import require_permission
from runs.pages.addresses import link_runs


def load_views(user: User | AnonymousUser, filters: RunFilters, given: Mapping[str, str]) -> dict[str, Any]:
    """What the list shows of the views that ``user`` sees: the user's own, then those that others share. One query.

    ``given`` is the query that ``filters`` were read from: a view may hold filters that are no longer valid, such as
    the former name of a flow, and is the current one all the same.
    """
    seen = SavedView.objects.seen_by(user.pk or 0).select_related("owner")
    rows = list(seen.only("name", "query", "is_shared", "owner__username"))
    own = [view for view in rows if view.owner_id == user.pk]
    views = own + [view for view in rows if view.owner_id != user.pk][:MAX_VIEWS]
    written = {name: value for name, value in given.items() if name in PARAMETERS and value}
    query = filters.to_query()
    current = next((view.query for view in rows if dict(parse_qsl(view.query)) == written), query)
    return {
        "views": [(view, link_runs(view.query)) for view in views],
        "current_view": next((view for view in views if view.query == current), None),
        "query": query,
        "can_save": bool(query) and all(view.query != query for view in own),
    }


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
    return HttpResponseRedirect(link_runs(query))


@require_POST
@require_permission("runs.view_run")
def delete_view(request: HttpRequest, view_id: int) -> HttpResponseRedirect:
    """Delete one of the user's own views; the filters stay on."""
    view = get_object_or_404(SavedView, pk=view_id, owner=request.user.pk)
    view.delete()
    messages.success(request, f"The view “{show_invisible(view.name)}” is deleted.")
    return HttpResponseRedirect(link_runs(view.query))


@require_safe
@require_permission("runs.view_run")
def show_known_values(request: HttpRequest) -> HttpResponse:
    """Values that runs have, which the fields of the filters suggest."""
    return render(request, "runs/filter_values.html", {"known": list_known_values().items()})


urls: list[URLPattern] = [
    path("runs/views/add/", save_view, name="saved-view-add"),
    path("runs/views/values/", show_known_values, name="saved-view-values"),
    path("runs/views/<number:view_id>/delete/", delete_view, name="saved-view-delete"),
]
