"""Reading runs for a download, a bounded part at a time, for as long as somebody takes what is read.

The runs of a part are found by the number of the last one: runs that begin, end or go meanwhile neither repeat nor
displace any other. Nothing is open between two parts, neither a transaction nor a cursor.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any
from uuid import UUID

from django.db import OperationalError, transaction
from django.db.models.functions import Length
from django.utils import timezone

from runs.bulk_actions.run_range import find_range
from runs.models import Run, RunExport, WorkState
from runs.pages.export_files import ExportFile
from runs.pages.part_stream import PartStream, require_room
from runs.run_filters import RunFilters, find_runs
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail

logger = logging.getLogger(__name__)

BATCH = 500
"""Runs that are looked for at a time."""
MOST_BYTES = 4_000_000
"""About as much as a part may come to, unless a single run is larger."""
ATTEMPT_BYTES = 40_000
"""What an attempt is taken for beforehand, with its output and its request."""
NOTE_EVERY = 0.5
"""Seconds between notes of how far it is."""


def begin_export(filters: RunFilters, *, token: UUID, format: str, has_attempts: bool, asked_by_id: Any) -> RunExport:
    """An export of the runs that match at this moment, and the trail's entry of who takes them. ``token`` names it.

    Raises ``TooManyFilesError`` if this process sends enough files already.
    """
    require_room()
    limits = find_range(filters)
    with transaction.atomic():
        export = RunExport.objects.create(
            token=token,
            format=format,
            has_attempts=has_attempts,
            query=filters.to_query(),
            asked_by_id=asked_by_id,
            newest=limits.newest,
            oldest=limits.oldest,
            position=limits.newest + 1,
        )
        details = {"query": export.query[:500], "attempts": has_attempts, "newest": limits.newest}
        leave_trail(action=TrailAction.EXPORTED, kind="run", label=format, details=details)
    return export


class RunStream(PartStream):
    """The bytes of one export; ``export`` is the row where it notes how far it is."""

    def __init__(self, file: ExportFile, filters: RunFilters, export: RunExport, *, has_attempts: bool) -> None:
        self.head = file.head.encode()
        self._file = file
        self._filters = filters
        self._export = export
        self._attempt_bytes = ATTEMPT_BYTES if has_attempts else 0
        # The viewer's zone is active while a request is answered; this goes on after that.
        self._time_zone: tzinfo = timezone.get_current_timezone()
        self._looked_to = self._reached = export.newest + 1
        self._written = 0
        self._parts: list[list[int]] = []
        self._is_last = False
        self._has_ended = False
        self._noted_at = time.monotonic()

    def read_part(self) -> bytes | None:
        """The next part, which may be empty; None at the end."""
        try:
            return self._read_part()
        except Exception:
            self._end(WorkState.FAILED)
            raise

    def close(self) -> None:
        """Stop: what is not read by now is not wanted. Does nothing at the end."""
        self._end(WorkState.STOPPED)

    def _read_part(self) -> bytes | None:
        if not self._parts:
            if self._is_last:
                self._end(WorkState.DONE)
                return None
            self._look_further()
        part = b""
        if self._parts:
            run_ids = self._parts.pop(0)
            part = self._file.write(run_ids).encode()
            self._written += len(run_ids)
            self._reached = run_ids[-1]
        else:
            self._reached = self._looked_to
        self._note()
        return part

    def _look_further(self) -> None:
        with timezone.override(self._time_zone):
            found = find_runs(self._filters, before=self._looked_to, limit=BATCH)
        self._is_last = found.looked_to is None and len(found.ids) < BATCH
        if found.looked_to is not None:
            self._looked_to = found.looked_to
        elif found.ids:
            self._looked_to = found.ids[-1]
        self._parts = self._divide(found.ids)

    def _divide(self, run_ids: Sequence[int]) -> list[list[int]]:
        """Put together as many runs as make a part."""
        sizes = {
            run_id: (length or 0) + attempts * self._attempt_bytes
            for run_id, length, attempts in Run.objects.filter(pk__in=run_ids).values_list(
                "pk", Length("input"), "attempt_count"
            )
        }
        parts: list[list[int]] = []
        room = 0
        for run_id in run_ids:
            size = sizes.get(run_id)
            if size is None:
                continue
            if size > room or not parts:
                parts.append([])
                room = MOST_BYTES
            parts[-1].append(run_id)
            room -= size
        return parts

    def _note(self) -> None:
        if time.monotonic() - self._noted_at < NOTE_EVERY:
            return
        self._noted_at = time.monotonic()
        try:
            self._export.come_to(position=self._reached, written=self._written)
        except OperationalError as error:
            # The file is what counts; the next note may find the database free again.
            logger.warning("How far export %s is could not be noted: %s", self._export.pk, error)

    def _end(self, state: WorkState) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._export.end(state, position=self._reached, written=self._written)
