"""Writing runs to a file."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from django.utils import timezone

from flows import __version__
from flows.models import FlowVersion
from runs.archive import FORMAT, VERSION
from runs.archive.building import Misfits, Trial
from runs.archive.reading import check_archive
from runs.archive.records import build_version_record, read_run_records
from runs.models import Run

_LOOK_AHEAD = 200
_MOST_ATTEMPTS = 200
"""Attempts that are in memory at a time, unless one run has more."""


@dataclass(slots=True)
class Archive:
    """What a file holds."""

    runs: int = 0
    attempts: int = 0
    run_ids: array[int] = field(default_factory=lambda: array("q"))
    """Of these runs it is known that they can be restored."""
    misfits: Misfits = field(default_factory=Misfits)
    """Runs that are in the file, but could not be restored as they stand there."""

    def leave_out(self, misfits: Misfits) -> None:
        """Take note of runs that could not be restored."""
        self.misfits = misfits
        if misfits:
            bad = set(misfits.run_ids)
            self.run_ids = array("q", (run_id for run_id in self.run_ids if run_id not in bad))


def write_archive(path: Path, *, run_ids: Iterable[int], report: Callable[[int], None] = lambda _runs: None) -> Archive:
    """Write those of the runs that have ended to a new file, and read it again to see that it is whole.

    Of each run in the file the rows are made that a restoration would make; which of them can't be made is told by
    ``misfits``. The file appears when it is complete, readable by its owner only. ``report`` is told now and then how
    many runs are written. Raises ``OSError``, ``FileExistsError`` if the file is there already, and ``BadArchiveError``
    if it can't be read back.
    """
    if path.exists():
        raise FileExistsError("it exists already")
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as raw:
        whole = Path(raw.name)
        try:
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6) as packed:
                archive = _Writer(packed, report).write(run_ids)
            raw.flush()
            os.fsync(raw.fileno())
            trial = Trial()
            found = check_archive(whole, look=trial.look)
            if (found.runs, found.attempts) != (archive.runs, archive.attempts):
                raise OSError("it does not hold what was written")
            archive.leave_out(trial.misfits)
            # Fails if somebody else was faster.
            path.hardlink_to(whole)
        finally:
            whole.unlink()
    return archive


class _Writer:
    def __init__(self, packed: gzip.GzipFile, report: Callable[[int], None]) -> None:
        self._packed = packed
        self._report = report
        self._digest = hashlib.sha256()
        self._versions: dict[int, tuple[str, int]] = {}
        self._archive = Archive()

    def write(self, run_ids: Iterable[int]) -> Archive:
        archive = self._archive
        self._write_line(
            {"format": FORMAT, "version": VERSION, "toolflow": __version__, "made_at": timezone.now().isoformat()}
        )
        for chunk in _chunk(run_ids):
            for version_id, record in read_run_records(chunk):
                flow, number = self._write_version(version_id)
                # The flow may have been renamed since its version was written.
                self._write_line({"run": {**record, "flow": flow, "version": number}})
                archive.run_ids.append(record["id"])
                archive.runs += 1
                archive.attempts += sum(len(step["attempts"]) for step in record["steps"])
            self._report(archive.runs)
        self._write_line(
            {"end": {"runs": archive.runs, "attempts": archive.attempts, "sha256": self._digest.hexdigest()}}
        )
        return archive

    def _write_version(self, version_id: int) -> tuple[str, int]:
        """Write a version once; gives by what the file knows it."""
        if version_id not in self._versions:
            version = FlowVersion.objects.select_related("flow").get(pk=version_id)
            self._write_line({"flow_version": build_version_record(version)})
            self._versions[version_id] = version.flow.name, version.number
        return self._versions[version_id]

    def _write_line(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        self._digest.update(line)
        self._packed.write(line)


def _chunk(run_ids: Iterable[int]) -> Iterator[list[int]]:
    """The runs in portions of few attempts: outputs may be large."""
    rest = iter(run_ids)
    while found := list(islice(rest, _LOOK_AHEAD)):
        sizes = dict(Run.objects.filter(pk__in=found).values_list("pk", "attempt_count"))
        chunk: list[int] = []
        attempts = 0
        for run_id in found:
            if chunk and attempts + sizes.get(run_id, 0) > _MOST_ATTEMPTS:
                yield chunk
                chunk, attempts = [], 0
            chunk.append(run_id)
            attempts += sizes.get(run_id, 0)
        yield chunk
