"""The audit log: a list with filters in the address, and the same as a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from runs.audit_log.entries import KINDS, fetch_entries, filter_entries, iterate_entries
from runs.audit_log.events import AuditAction, log_audit_event
from runs.exports.formats import format_json_cell, format_rows, format_text_cell, format_time_cell
from runs.exports.streaming import TooManyFilesError, require_free_slot, send_file
from runs.formatting import format_count
from runs.history.texts import show_invisible
from runs.models import AuditEntry
from runs.pages.access import refuse, require_permission
from runs.pages.addresses import paginate, parse_paging
from runs.pages.exporting import NOT_EXPORTED, WRONG_ROWS, refuse_for_now
from runs.paging import Found, Position

PAGE_SIZE = 100
MAX_EXPORTED = 100_000
"""Entries that one file holds, the newest."""
BATCH_SIZE = 2_000

FILTERS = ("actor", "action", "kind", "id", "from", "to")
_LINKS: Mapping[str, str] = {
    "run": "runs:page",
    "flow": "admin:flows_flow_change",
    "user": "admin:auth_user_change",
    "group": "admin:auth_group_change",
    "bulkaction": "runs:bulk",
    "backtest": "runs:backtest",
    "webhookdelivery": "runs:webhook",
    "webhookendpoint": "admin:runs_webhookendpoint_change",
    "ratelimit": "admin:runs_ratelimit_change",
}
_ACTIONS: Mapping[str, str] = dict(AuditAction.choices)
_HEAD = (
    "at", "actor", "token", "address", "action", "object_kind", "object_id", "object", "details", "request_id",
)  # fmt: skip


_DAYS = [MinValueValidator(date(1970, 1, 1)), MaxValueValidator(date(2199, 12, 31))]


class FilterForm(forms.Form):
    """What the address asks for. Days are those of the active time zone, both included."""

    actor = forms.CharField(max_length=150, required=False)
    action = forms.ChoiceField(choices=[("", "All"), *AuditAction.choices], required=False)
    kind = forms.ChoiceField(choices=[("", "All"), *KINDS.items()], required=False)
    id = forms.CharField(max_length=64, required=False)

    def __init__(self, data: Mapping[str, str]) -> None:
        super().__init__(data)
        for name in ("from", "to"):
            self.fields[name] = forms.DateField(input_formats=["%Y-%m-%d"], required=False, validators=_DAYS)
        self.is_valid()

    def list_problems(self) -> list[str]:
        """A sentence for each value that is not valid; its filter is left out."""
        return [f"“{name}”: {sentence}" for name, sentences in self.errors.items() for sentence in sentences]

    def list_values(self) -> dict[str, str]:
        """The filters as an address has them."""
        return {name: str(self.cleaned_data[name]) for name in FILTERS if self.cleaned_data.get(name)}

    def filter_entries(self) -> QuerySet[AuditEntry]:
        """The entries that match."""
        values = self.cleaned_data
        return filter_entries(
            actor=values.get("actor", ""),
            actions=[action] if (action := values.get("action")) else [],
            kind=values.get("kind", ""),
            object_id=values.get("id", "").removeprefix("#"),
            since=_begin(values.get("from")),
            until=_begin(values.get("to"), days=1),
        )

    def build_url(self, view: str = "runs:trail", **position: int) -> str:
        """An address with these filters."""
        return reverse(view, query={**self.list_values(), **position})


def _begin(day: date | None, *, days: int = 0) -> datetime | None:
    return None if day is None else timezone.make_aware(datetime.combine(day + timedelta(days=days), time.min))


@require_safe
@require_permission("runs.view_trailentry")
def show_audit_log(request: HttpRequest) -> HttpResponse:
    """The list of entries, the newest first."""
    form = FilterForm(request.GET)
    problems = form.list_problems()
    before, after = parse_paging(request.GET, problems)
    found = fetch_entries(form.filter_entries(), limit=PAGE_SIZE + 1, before=before, after=after)
    entries = {entry.pk: entry for entry in found}
    positions = Found([Position("", key) for key in entries])
    keys, links = paginate(positions, page_size=PAGE_SIZE, before=before, after=after, build_url=form.build_url)
    context = {
        "form": form,
        "values": form.list_values(),
        "warnings": problems,
        "page": links,
        "rows": [_describe(entries[key]) for key in keys],
        "export_url": form.build_url("runs:trail-export"),
        "max_exported": format_count(MAX_EXPORTED),
    }
    return render(request, "runs/audit_log.html", context)


@require_safe
@require_permission("runs.view_trailentry")
def export_audit_log(request: HttpRequest) -> HttpResponseBase:
    """The entries that match as CSV. A filter that is not valid is refused: a file looks right whatever it holds."""
    form = FilterForm(request.GET)
    if problems := form.list_problems():
        return refuse(request, NOT_EXPORTED, reason=WRONG_ROWS, problems=problems, back_url=form.build_url())
    name, content_type = f"toolflow-trail-{timezone.localdate().isoformat()}.csv", "text/csv; charset=utf-8"
    try:
        if request.method != "HEAD":
            require_free_slot()
            log_audit_event(action=AuditAction.TRAIL_EXPORTED, details={"filters": form.list_values()})
    except TooManyFilesError as error:
        return refuse_for_now(request, error)
    # The filters are made while the viewer's time zone is active; the file is read later.
    batches = iterate_entries(form.filter_entries(), batch_size=BATCH_SIZE, limit=MAX_EXPORTED)
    return send_file(request, _write_parts(batches), name=name, content_type=content_type)


def _write_parts(batches: Iterable[Sequence[AuditEntry]]) -> Iterator[bytes]:
    """A CSV file of the entries, a part for each batch."""
    yield format_rows([_HEAD]).encode()
    for entries in batches:
        yield format_rows(map(_list_cells, entries)).encode()


def _list_cells(entry: AuditEntry) -> list[Any]:
    return [
        format_time_cell(entry.at),
        *map(format_text_cell, (entry.actor_name, entry.token_name, entry.address, entry.action)),
        *map(format_text_cell, (entry.object_kind, entry.object_id, entry.object_label)),
        format_json_cell(entry.details) if entry.details else "",
        format_text_cell(entry.request_id),
    ]


def _describe(entry: AuditEntry) -> Mapping[str, Any]:
    """An entry as the list shows it, with the page of what it is about, unless that is gone."""
    is_there = entry.object_kind in _LINKS and entry.object_id.isdigit() and not entry.action.endswith("_deleted")
    return {
        "entry": entry,
        # A request without a user is an anonymous one.
        "actor": entry.actor_name or ("Anonymous" if entry.address else "Command line"),
        "action": _ACTIONS.get(entry.action, entry.action),
        "kind": KINDS.get(entry.object_kind, ""),
        "url": reverse(_LINKS[entry.object_kind], args=[entry.object_id]) if is_there else "",
        "details": [(show_invisible(name.replace("_", " ")), _format(value)) for name, value in entry.details.items()],
    }


def _format(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "—"}[value]
    if isinstance(value, dict) and value.keys() == {"from", "to"}:
        return " → ".join(_format(part) or "—" for part in (value["from"], value["to"]))
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "all"
    if isinstance(value, dict):
        return ", ".join(f"{name}={part}" for name, part in value.items()) or "none"
    return str(value)
