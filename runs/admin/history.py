"""What the lists and pages of history share: nothing can be changed, and no list counts a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.text import slugify

from runs import formatting
from runs.filters import RunFilters
from runs.history.json_lines import list_json
from runs.history.texts import show_invisible
from runs.models import Run

MAX_LISTED = 10_000
"""Rows that pages of one list lead to. Filters find older ones."""

# ---------------------------------------------------------------------------------------------------------------------
# Values


def column(title: str, source: str | Callable[[Any], Any]) -> Callable[[Any], str]:
    """A column of a list, or a field of a page: what a path with dots leads to from a row, or what a function says."""
    read = attrgetter(source) if isinstance(source, str) else source

    @admin.display(description=title)
    def show(row: Any) -> str:
        return _format_value(read(row))

    show.__name__ = slugify(title).replace("-", "_")
    return show


def document(title: str, path: str) -> Callable[[Any], str]:
    """A field of a page with a JSON value as numbered lines, cut where it is very long."""
    return column(title, lambda row: _list_lines(getattr(row, path)))


def _format_value(value: Any) -> str:
    match value:
        case None | "":
            return formatting.NOTHING
        case SafeString():
            return value
        case datetime():
            return render_to_string("runs/moment.html", {"at": value})
        case int():
            return formatting.format_count(value)
    return show_invisible(str(value))


def _list_lines(value: Any) -> SafeString | None:
    if value in (None, {}, []):
        return None
    return render_to_string("admin/runs/lines.html", {"listing": list_json(value)})


def section(title: str | None, *fields: Any, classes: Sequence[str] = ("documents",)) -> Any:
    """A part of the page of a row."""
    return title, {"fields": fields, "classes": classes}


# ---------------------------------------------------------------------------------------------------------------------
# Lists


class HistoryList(ChangeList):
    """A page of the newest rows. Whether there is another one is read with it: to count takes the whole table."""

    model_admin: HistoryAdmin
    is_cut = False
    """Whether there are more rows than pages lead to."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """Always the newest first: other orders have no index."""
        return list(self.model_admin.ordering or ())

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """The rows that match all filters. Raises ``IncorrectLookupParameters`` if one of them is not valid."""
        rows = super().get_queryset(request, exclude_parameters)
        filters = self.model_admin.filters(request.GET)
        if filters.problems:
            raise IncorrectLookupParameters
        return rows.filter(filters.build_condition())

    def get_results(self, request: HttpRequest) -> None:
        """Read the page. Raises ``IncorrectLookupParameters`` if there is none of that number."""
        begin = (self.page_num - 1) * self.list_per_page
        if not 0 <= begin < MAX_LISTED:
            raise IncorrectLookupParameters
        rows = list(self.queryset[begin : begin + self.list_per_page + 1])
        if begin and not rows:
            raise IncorrectLookupParameters
        self.result_list = rows[: self.list_per_page]
        self.result_count = begin + len(self.result_list)
        self.is_cut = begin + len(rows) > MAX_LISTED
        # As many pages as are known: up to this one, and one more if there is.
        self.paginator = Paginator(range(min(begin + len(rows), MAX_LISTED)), self.list_per_page)
        self.multi_page = self.paginator.num_pages > 1
        self.full_result_count = None
        self.show_full_result_count = self.show_admin_actions = self.can_show_all = False

    def list_periods(self) -> Iterator[tuple[str, str]]:
        """The years, the months of the chosen year or the days of the chosen month, each with the query for it.

        They are those of the calendar: to list only those that have rows takes the whole table.
        """
        first = Run.objects.order_by("created_at", "pk").values_list("created_at", flat=True).first()
        today = timezone.localdate()
        years = range(timezone.localdate(first).year if first else today.year, today.year + 1)
        since, until = (self.params.get(name, "").strip() for name in ("from", "to"))
        year = since[:4] if since[:4] == until[:4] else ""
        if year and since[:7] == until[:7]:
            month = date.fromisoformat(f"{since[:7]}-01")
            days = (month + timedelta(days=index) for index in range(31))
            periods = [(day, day, "j M") for day in days if day.month == month.month]
        elif year or len(years) == 1:
            months = [date(int(year or today.year), number, 1) for number in range(1, 13)]
            periods = [(month, (month + timedelta(days=31)).replace(day=1), "F Y") for month in months]
            periods = [(month, behind - timedelta(days=1), form) for month, behind, form in periods]
        else:
            periods = [(date(number, 1, 1), date(number, 12, 31), "Y") for number in years]
        for begin, end, form in (period for period in periods if period[0] <= today):
            yield date_format(begin, form), self.get_query_string({"from": begin, "to": end})


class HistoryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for type checkers only
    """A read-only list, the newest first, and a read-only page for each row."""

    actions = None
    sortable_by = ()
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    filters: type[RunFilters]
    """What the list is filtered by; ``list_filter`` shows some of it."""
    list_select_related: ClassVar[tuple[str, ...]] = ()
    documents: Sequence[str] = ()
    """Large columns that lists don't read, with the path over relations."""

    class Media:
        css = {"all": ["toolflow/css/output.css", "toolflow/css/attempts.css", "toolflow/admin/history.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list's class."""
        return HistoryList

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """The list, without documents."""
        request.leaves_documents = True  # type: ignore[attr-defined]  # read by ``get_queryset``
        return super().get_changelist_instance(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows with what their columns name."""
        rows = super().get_queryset(request).select_related(*self.list_select_related)
        return rows.defer(*self.documents) if hasattr(request, "leaves_documents") else rows

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; after an address that was not valid it says so."""
        return super().changelist_view(request, {"was_refused": ERROR_FLAG in request.GET, **(extra_context or {})})

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """The page of a row, whose name shows invisible characters."""
        context["title"], context["subtitle"] = show_invisible(str(context["original"])), None
        return super().render_change_form(request, context, *args, **kwargs)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only filters of the list: a look-up written by hand may take any time, or show what it compares with."""
        return any(lookup == getattr(one, "parameter_name", None) for one in self.list_filter or ())

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: history is written by workers."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: what happened has happened."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: history is deleted by the retention policy."""
        return False
