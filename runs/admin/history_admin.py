"""What all lists of history share: nothing can be changed, and no list counts or sorts a big table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from flows.engine.issues import Severity
from runs.pages import figures
from runs.pages.json_lines import list_json
from runs.templatetags.toolflow import listing

MOST_LISTED = 10_000
"""Rows of one list that pages lead to. Older ones are found by filters."""

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:  # Django's classes are generic for type checkers only.
    _ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator


class BoundedPaginator(_Paginator):
    """Counts no further than it lets anybody turn pages."""

    most = MOST_LISTED

    @cached_property
    def count(self) -> int:
        """How many rows there are, at most ``most``."""
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]  # lists of the admin are querysets
        return rows[: self.most].count()


class HistoryList(ChangeList):
    """A list that reads the columns it shows and leaves big documents where they are."""

    model_admin: HistoryAdmin

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """The rows that the filters leave."""
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return rows.defer(*self.model_admin.big_fields)


class HistoryAdmin(_ModelAdmin):
    """A read-only list, the newest first, and a read-only page for each row."""

    actions = None
    ordering = ("-pk",)
    sortable_by = ()
    list_per_page = 50
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    paginator = BoundedPaginator
    big_fields: Sequence[str] = ()
    """Columns that lists don't read, with the way over relations."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list's class."""
        return HistoryList

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: history is written by workers."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: what happened has happened."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: history goes by the retention policy."""
        return False


class SeverityFilter(admin.SimpleListFilter):
    """Filters by “at least this severity”; subclasses say what must have it."""

    title = "severity"
    parameter_name = "severity"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        """The gravest first."""
        *higher, lowest = reversed(Severity)
        top = higher[0]
        return [
            (top.value, f"{top.value.capitalize()} only"),
            *((one.value, f"{one.value.capitalize()} and above") for one in higher[1:]),
            (lowest.value, "Any issue"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that reach the severity; all of them for one that there isn't."""
        value = self.value()
        return self.narrow(queryset, Severity(value)) if value in list(Severity) else queryset

    def narrow(self, rows: QuerySet[Any], severity: Severity) -> QuerySet[Any]:
        """The rows that reach ``severity``."""
        raise NotImplementedError


def show_json(value: Any) -> SafeString | str:
    """A JSON value as numbered lines, cut where it is very long."""
    if value is None:
        return figures.NOTHING
    lines = list_json(value)
    note = format_html('<p class="listing-note">{}</p>', "Only the beginning is shown.") if lines.is_cut else ""
    return format_html('<div class="code-block">{}{}</div>', listing(lines), note)
