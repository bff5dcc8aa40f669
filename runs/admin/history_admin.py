"""What all lists of history share: nothing can be changed, and no list counts or sorts a big table.

A list first reads the keys of the rows that its filters leave, the newest ``MOST_LISTED`` at most, and then the rows
of one page. So there is one search, whose plan doesn't depend on how rare the rows are, and nothing to count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, ChangeList
from django.core.paginator import InvalidPage, Paginator
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import capfirst

from runs.admin.filters import HistoryFilters

MOST_LISTED = 10_000
"""Rows of one list that pages lead to. Older ones are found by filters."""

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _ModelForm = forms.ModelForm[Any]
else:  # Django's classes are generic for type checkers only.
    _ModelAdmin = admin.ModelAdmin
    _ModelForm = forms.ModelForm


class HistoryList(ChangeList):
    """A list with a form of filters, which reads the columns it shows and leaves big documents where they are."""

    model_admin: HistoryAdmin
    filters: HistoryFilters
    is_cut: bool
    """Whether there are more rows than pages lead to."""

    def get_filters(self, request: HttpRequest) -> Any:
        """Read the form. What it has no field for is refused: a look-up made by hand may cost, or fail, as it likes."""
        self.filters = self.model_admin.filters(request.GET)
        if self.get_filters_params():
            raise IncorrectLookupParameters
        return [], False, {}, False, bool(self.filters.chosen)

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Parameters that are no field of the form."""
        others: dict[str, Any] = super().get_filters_params(params)
        return {name: value for name, value in others.items() if name not in self.model_admin.filters.base_fields}

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """The rows that the filters leave."""
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return rows.filter(self.filters.build_condition())

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str | Combinable]:
        """Always the newest first."""
        return list(self.filters.order)

    def get_results(self, request: HttpRequest) -> None:
        """Read one page."""
        keys = list(self.queryset.values_list("pk", flat=True)[:MOST_LISTED])
        self.is_cut = len(keys) == MOST_LISTED
        self.paginator = Paginator(keys, self.list_per_page)
        try:
            page = self.paginator.page(self.page_num).object_list
        except InvalidPage as error:
            raise IncorrectLookupParameters from error
        rows = self.root_queryset.defer(*self.model_admin.big_fields).in_bulk(page)
        self.result_list = [rows[key] for key in page if key in rows]
        self.result_count = len(keys)
        self.full_result_count = None
        self.show_full_result_count = self.show_admin_actions = self.can_show_all = False
        self.multi_page = self.paginator.num_pages > 1


class _PlainForm(_ModelForm):
    """Labels without colons: they stand above what they name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})


class HistoryAdmin(_ModelAdmin):
    """A read-only list, the newest first, and a read-only page for each row."""

    form = _PlainForm
    actions = None
    sortable_by = ()
    list_per_page = 50
    filters: type[HistoryFilters]
    big_fields: Sequence[str] = ()
    """Columns that lists don't read, with the way over relations."""
    optional_fields: Mapping[str, str] = {}
    """What the page of a row leaves out where it is empty: by its name on the page, the column that it shows."""

    class Media:
        css = {"all": ["toolflow/css/listing.css", "toolflow/css/attempts.css", "toolflow/admin/history.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list's class."""
        return HistoryList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list. A form that was sent with empty fields leads to the address without them."""
        if request.method != "POST" and "" in request.GET.values():
            filled = request.GET.copy()
            for name in [name for name, value in request.GET.items() if not value]:
                del filled[name]
            return HttpResponseRedirect(f"{request.path}?{filled.urlencode()}" if filled else request.path)
        title = capfirst(self.opts.verbose_name_plural)
        context = {"title": title, "was_refused": ERROR_FLAG in request.GET, **(extra_context or {})}
        return super().changelist_view(request, context)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The parts of a row's page, without what would be empty."""
        empty = {name for name, column in self.optional_fields.items() if not getattr(obj, column, None)}
        parts = super().get_fieldsets(request, obj)
        kept = [(title, {**part, "fields": [f for f in part["fields"] if f not in empty]}) for title, part in parts]
        return [(title, part) for title, part in kept if part["fields"]]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: history is written by workers."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: what happened has happened."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: history goes by the retention policy."""
        return False
