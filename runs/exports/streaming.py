"""Files that are sent while they are read from the database, a batch of rows at a time.

Between two batches no transaction and no cursor is open. A process sends at most ``MAX_FILES`` at a time.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from runs.audit_log.events import AuditAction, log_audit_event
from runs.exports.formats import CONTENT_TYPES, CSV_HEAD, Format, render_csv, render_json_lines
from runs.filters import RunFilters
from runs.matching_runs import fetch_matching_runs
from runs.paging import Position

MAX_FILES = 20
"""Files that one process sends at a time."""
RETRY_AFTER_SECONDS = 30
"""When to retry a file that was refused."""
BATCH_SIZE = 500
"""Runs that are found at a time."""
WHOLE_BATCH_SIZE = 10
"""Runs that are written at a time with all of their attempts, whose outputs may be large."""

_sending: WeakSet[StreamingHttpResponse] = WeakSet()
"""Held weakly: one whose client left before its first byte is never closed."""
_lock = threading.Lock()


class TooManyFilesError(Exception):
    """This process sends ``MAX_FILES`` files already. ``str(error)`` is a sentence."""


def require_free_slot() -> None:
    """Raise ``TooManyFilesError`` if this process sends ``MAX_FILES`` files: before the audit log is written."""
    with _lock:
        if sum(not response.closed for response in _sending) >= MAX_FILES:
            raise TooManyFilesError(
                f"This server is already sending {MAX_FILES} files, the maximum. "
                f"Try again in {RETRY_AFTER_SECONDS} seconds."
            )


def send_file(request: HttpRequest, parts: Iterator[bytes], *, name: str, content_type: str) -> StreamingHttpResponse:
    """The response that is a file called ``name`` with the bytes of ``parts``; to HEAD its headers only."""
    content: Any = iter(()) if request.method == "HEAD" else parts
    if isinstance(request, ASGIRequest):
        # Django would collect all parts of a plain iterator before it sends the first one.
        content = _read_in_threads(content)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    response = StreamingHttpResponse(content, content_type=content_type, headers=headers)
    if request.method != "HEAD":
        with _lock:
            _sending.add(response)
    return response


async def _read_in_threads(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    read_part = sync_to_async(lambda: next(parts, None))
    while (part := await read_part()) is not None:
        if part:
            yield part


def export_runs(
    request: HttpRequest, filters: RunFilters, *, format: Format, has_attempts: bool = False
) -> StreamingHttpResponse:
    """The runs that match as a file, the newest first; JSON Lines may have their attempts. Logs the export.

    Raises ``TooManyFilesError``.
    """
    if request.method != "HEAD":
        require_free_slot()
        details = {"query": filters.to_query()[:500], "attempts": has_attempts}
        log_audit_event(action=AuditAction.EXPORTED, kind="run", label=format, details=details)
    parts = _render_batches(filters, format, has_attempts)
    name = f"toolflow-runs-{timezone.localdate().isoformat()}.{format}"
    return send_file(request, parts, name=name, content_type=CONTENT_TYPES[format])


def _render_batches(filters: RunFilters, format: Format, has_attempts: bool) -> Iterator[bytes]:
    if format == "csv":
        yield CSV_HEAD.encode()
    size = WHOLE_BATCH_SIZE if has_attempts else BATCH_SIZE
    for run_ids in _find_batches(filters):
        for begin in range(0, len(run_ids), size):
            batch = run_ids[begin : begin + size]
            text = render_csv(batch) if format == "csv" else render_json_lines(batch, has_attempts=has_attempts)
            yield text.encode()


def _find_batches(filters: RunFilters) -> Iterator[Sequence[int]]:
    """Numbers of runs that match, searched window by window to the end.

    Each window begins behind the last run of the one before: runs that are created, end or are deleted meanwhile
    neither repeat nor displace another.
    """
    position: Position | None = None
    is_last = False
    while not is_last:
        found = fetch_matching_runs(filters, before=position, limit=BATCH_SIZE)
        is_last = len(found.ids) < BATCH_SIZE and found.searched_to is None
        position = found.last
        yield found.ids
