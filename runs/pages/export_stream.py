"""Reading runs for a download, part by part.

The runs of a part are found by the position of the last one: runs that begin, end or go meanwhile neither repeat nor
displace any other. Nothing is open between two parts, neither a transaction nor a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models.functions import Length

from runs.filters import RunFilters, find_newest_run, find_runs
from runs.models import Run
from runs.pages.downloads import require_free_slot
from runs.pages.export_files import ExportFile
from runs.paging import Position
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

BATCH = 500
"""Runs that are looked for at a time."""
MAX_PART_BYTES = 4_000_000
"""About as much as a part may come to, unless a single run is larger."""
ATTEMPT_BYTES = 40_000
"""Estimate for an attempt with its output and its request."""


def begin_export(filters: RunFilters, *, format: str, has_attempts: bool) -> int:
    """Write the audit trail's entry of an export; gives the number of the newest run that it may hold.

    Raises ``TooManyFilesError`` if this process sends enough files already.
    """
    require_free_slot()
    newest = find_newest_run()
    details = {"query": filters.to_query()[:500], "attempts": has_attempts, "newest": newest}
    leave_trail(action=TrailAction.EXPORTED, kind="run", label=format, details=details)
    return newest


def read_parts(file: ExportFile, filters: RunFilters, *, newest: int, has_attempts: bool) -> Iterator[bytes]:
    """The bytes of an export of the runs up to number ``newest``; parts may be empty."""
    attempt_bytes = ATTEMPT_BYTES if has_attempts else 0
    yield file.head.encode()
    position: Position | None = None
    is_last = False
    while not is_last:
        found = find_runs(filters, before=position, newest=newest, limit=BATCH)
        if not found.ids:
            yield b""
        for run_ids in _divide(found.ids, attempt_bytes):
            yield file.write(run_ids).encode()
        is_last = len(found.ids) < BATCH and found.searched_to is None
        position = found.last


def _divide(run_ids: Sequence[int], attempt_bytes: int) -> list[list[int]]:
    """Put together as many runs as make a part."""
    rows = Run.objects.filter(pk__in=run_ids).values_list("pk", Length("input"), "attempt_count")
    sizes = {run_id: (length or 0) + attempts * attempt_bytes for run_id, length, attempts in rows}
    parts: list[list[int]] = []
    room = 0
    for run_id in run_ids:
        size = sizes.get(run_id)
        if size is None:
            continue
        if size > room or not parts:
            parts.append([])
            room = MAX_PART_BYTES
        parts[-1].append(run_id)
        room -= size
    return parts
