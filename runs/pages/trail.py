"""The trail: who did what, with filters in the address, and as a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from runs.exports.formats import format_json_cell, format_rows, format_text_cell, format_time_cell
from runs.exports.streaming import TooManyFilesError, require_free_slot, send_file
from runs.models import TrailEntry
from runs.pages.access import require_permission
from runs.pages.exporting import answer_too_many
from runs.pages.json_lines import show_invisible
from runs.pages.trail_query import load_page, read_trail_query, walk_entries
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail
from runs.trail.finding import KINDS

SEE_TRAIL = "runs.view_trailentry"
MOST_EXPORTED = 100_000
"""Entries that one file holds, the newest."""
BATCH = 2_000
NOBODY = "Command line"
"""Who is named for what was done without a request, and by no user."""

_LINKS: Mapping[str, str] = {
    "run": "runs:page",
    "flow": "admin:flows_flow_change",
    "user": "admin:auth_user_change",
    "group": "admin:auth_group_change",
    "bulkaction": "runs:bulk",
    "webhookdelivery": "runs:webhook",
    "webhookendpoint": "admin:runs_webhookendpoint_change",
    "ratelimit": "admin:runs_ratelimit_change",
}
_HEAD = (
    "at", "actor", "token", "address", "action", "object_kind", "object_id", "object", "details", "request_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrailRow:
    """One entry as the list shows it."""

    entry: TrailEntry
    actor: str
    action: str
    kind: str
    url: str
    """Where what it is about is shown; empty for what is gone."""
    details: tuple[tuple[str, str], ...]


@require_safe
@require_permission(SEE_TRAIL)
def show_trail(request: HttpRequest) -> HttpResponse:
    """The list of entries, the newest first."""
    query, problems = read_trail_query(request.GET)
    page = load_page(query)
    context = {
        "query": query,
        "problems": problems,
        "page": page.turns,
        "rows": [_view(entry) for entry in page.rows],
        "actions": TrailAction.choices,
        "kinds": KINDS.items(),
        "export_url": query.build_url("runs:trail-export"),
        "most_exported": f"{MOST_EXPORTED:,}",
        "is_filtered": bool(query.to_values()),
    }
    return render(request, "runs/trail.html", context)


@require_safe
@require_permission(SEE_TRAIL)
def export_trail(request: HttpRequest) -> HttpResponseBase:
    """The entries that match as CSV. Filters that make no sense are refused: a file looks right whatever it holds."""
    query, problems = read_trail_query(request.GET)
    if problems:
        return render(request, "runs/export_refused.html", {"problems": problems}, status=400)
    name, content_type = f"toolflow-trail-{timezone.localdate().isoformat()}.csv", "text/csv; charset=utf-8"
    try:
        if request.method != "HEAD":
            require_free_slot()
            leave_trail(action=TrailAction.TRAIL_EXPORTED, details={"filters": query.to_values()})
    except TooManyFilesError as error:
        return answer_too_many(request, error)
    # Days are the viewer's, whose zone is active while a request is answered; what is read goes on after that.
    batches = walk_entries(query.to_filters(), batch=BATCH, most=MOST_EXPORTED)
    return send_file(request, _read_parts(batches), name=name, content_type=content_type)


def _read_parts(batches: Iterable[Sequence[TrailEntry]]) -> Iterator[bytes]:
    """A CSV file of the entries, a part for each batch."""
    yield format_rows([_HEAD]).encode()
    for entries in batches:
        yield format_rows(map(_list_cells, entries)).encode()


def _list_cells(entry: TrailEntry) -> list[Any]:
    return [
        format_time_cell(entry.at),
        *map(format_text_cell, (entry.actor_name, entry.token_name, entry.address, entry.action)),
        *map(format_text_cell, (entry.object_kind, entry.object_id, entry.object_label)),
        format_json_cell(entry.details) if entry.details else "",
        format_text_cell(entry.request_id),
    ]


def _view(entry: TrailEntry) -> TrailRow:
    actions = dict(TrailAction.choices)
    # Whoever did something by a request and is unknown is somebody else than nobody.
    actor = entry.actor_name or ("Somebody" if entry.address else NOBODY)
    is_there = entry.object_kind in _LINKS and entry.object_id.isdigit() and not entry.action.endswith("_deleted")
    return TrailRow(
        entry,
        actor,
        str(actions.get(entry.action, entry.action)),
        KINDS.get(entry.object_kind, ""),
        reverse(_LINKS[entry.object_kind], args=[entry.object_id]) if is_there else "",
        tuple(
            (show_invisible(name.replace("_", " ")), show_invisible(_tell(value)))
            for name, value in entry.details.items()
        ),
    )


def _tell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "—"}[value]
    if isinstance(value, dict) and value.keys() == {"from", "to"}:
        return " → ".join(_tell(part) or "—" for part in (value["from"], value["to"]))
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "all"
    if isinstance(value, dict):
        return ", ".join(f"{name}={part}" for name, part in value.items()) or "none"
    return str(value)


urls: list[URLPattern] = [
    path("trail/", show_trail, name="trail"),
    path("trail/export.csv", export_trail, name="trail-export"),
]
