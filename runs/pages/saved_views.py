"""Filters of the list of runs that users keep under a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST, require_safe

from runs.facets import list_known_values
from runs.filters import PARAMETERS, RunFilters
from runs.models import SavedView
from runs.models.saved_view import LONGEST_NAME
from runs.pages.access import require_permission
from runs.pages.json_lines import show_invisible

MOST_VIEWS = 50
"""Views that one user may keep, and shared views of others that the list offers."""


@dataclass(frozen=True, slots=True)
class ViewTab:
    """One view to choose from."""

    id: int
    name: str
    query: str
    """The filters that it keeps."""
    url: str
    is_current: bool
    shared_by: str
    """The user name of whoever shares it, if that is somebody else."""
    is_shared: bool

    @property
    def is_own(self) -> bool:
        return not self.shared_by


@dataclass(frozen=True, slots=True)
class ViewTabs:
    """The viewer's own views, then those that others share."""

    views: tuple[ViewTab, ...]
    query: str
    """The filters of the page, which the viewer may keep."""

    @property
    def current(self) -> ViewTab | None:
        return next((view for view in self.views if view.is_current), None)

    @property
    def can_save(self) -> bool:
        """Whether there is something to keep that the viewer has not kept."""
        return bool(self.query) and not any(view.is_own and view.query == self.query for view in self.views)


def load_view_tabs(user: User | AnonymousUser, filters: RunFilters, asked: Mapping[str, str]) -> ViewTabs:
    """The views that ``user`` sees, beside the filters of the page. One query.

    ``asked`` is the query of the address, from which ``filters`` were read. A view may keep what makes no sense any
    more, such as a name that a flow had once: whoever opens it is on that view all the same, and can delete it.
    """
    query = filters.to_query()
    if not isinstance(user, User):
        return ViewTabs((), query)
    views = SavedView.objects.seen_by(user.pk)
    rows = list(views.values_list("pk", "name", "query", "is_shared", "owner", "owner__username"))
    written = {name: value for name, value in asked.items() if name in PARAMETERS and value}
    current = next((kept for _, _, kept, *_ in rows if dict(parse_qsl(kept)) == written), query)
    tabs = [
        ViewTab(
            id=pk,
            name=show_invisible(name),
            query=kept,
            url=_build_url(kept),
            is_current=kept == current,
            shared_by=show_invisible(owner) if owner_id != user.pk else "",
            is_shared=is_shared,
        )
        for pk, name, kept, is_shared, owner_id, owner in rows
    ]
    others = [tab for tab in tabs if not tab.is_own]
    return ViewTabs((*(tab for tab in tabs if tab.is_own), *others[:MOST_VIEWS]), query)


@require_POST
@require_permission("runs.view_run")
def save_view(request: HttpRequest) -> HttpResponseRedirect:
    """Keep filters under a name. Back to the list with these filters, and a sentence about what came of it."""
    filters = RunFilters(request.POST.get("query", ""))
    name = " ".join(request.POST.get("name", "").split())
    is_shared = request.POST.get("shared") == "yes" and request.user.has_perm("runs.change_run")
    user_id = _get_user_id(request)
    problem = _find_problem(name, filters, user_id)
    if not problem:
        try:
            with transaction.atomic():
                SavedView.objects.create(owner_id=user_id, name=name, query=filters.to_query(), is_shared=is_shared)
        except IntegrityError:
            problem = f"You have a view “{name}” already; choose another name, or delete that one first."
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, f"The view “{name}” is saved{' and shared with everybody' if is_shared else ''}.")
    return HttpResponseRedirect(_build_url(filters.to_query()))


@require_POST
@require_permission("runs.view_run")
def delete_view(request: HttpRequest, view_id: int) -> HttpResponseRedirect:
    """Delete one's own view; the filters stay on."""
    view = SavedView.objects.filter(pk=view_id, owner=_get_user_id(request)).first()
    if view is None:
        raise Http404
    view.delete()
    messages.success(request, f"The view “{show_invisible(view.name)}” is deleted.")
    return HttpResponseRedirect(_build_url(view.query))


@require_safe
@require_permission("runs.view_run")
def show_known_values(request: HttpRequest) -> HttpResponse:
    """Values that runs have, which the fields of the filters then suggest."""
    known = [(kind.value, values) for kind, values in list_known_values().items()]
    return render(request, "runs/filter_values.html", {"known": known})


def _find_problem(name: str, filters: RunFilters, user_id: int) -> str:
    """Why these filters can't be kept under that name, in a sentence; empty if they can."""
    if not name:
        return "A view needs a name."
    if len(name) > LONGEST_NAME:
        return f"The name of a view has at most {LONGEST_NAME} characters; this one has {len(name)}."
    if show_invisible(name) != name:
        return "The name of a view can’t have characters that nobody sees."
    if filters.is_empty:
        return "Choose filters first: a view without any is the list itself."
    if SavedView.objects.filter(owner=user_id).count() >= MOST_VIEWS:
        return f"You have {MOST_VIEWS} views already; delete one that you no longer need."
    return ""


def _get_user_id(request: HttpRequest) -> int:
    user_id = request.user.pk
    assert user_id is not None, "Strangers are not let in."
    return user_id


def _build_url(query: str) -> str:
    return reverse("runs:list") + (f"?{query}" if query else "")


urls: list[URLPattern] = [
    path("runs/views/add/", save_view, name="saved-view-add"),
    path("runs/views/values/", show_known_values, name="saved-view-values"),
    path("runs/views/<int:view_id>/delete/", delete_view, name="saved-view-delete"),
]
