"""Reading a file of history: record by record, each checked for its shape, the whole by count and checksum."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

from runs.archive import FORMAT, VERSION

MOST_BYTES = 512 * 1024 * 1024
"""Of one line: a run with all that it read and wrote."""
_MAGIC = b"\x1f\x8b"
_File: TypeAlias = "IO[bytes] | gzip.GzipFile"


class BadArchiveError(Exception):
    """The file is not what it should be; the sentence says where."""


@dataclass(slots=True)
class Contents:
    """What a whole file holds."""

    runs: int = 0
    attempts: int = 0
    highest: int = 0
    """The highest number of a run."""
    versions: list[dict[str, Any]] = field(default_factory=list)
    """The versions of flows, without what they define."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line: ``flow_version`` or ``run``."""

    line: int
    kind: str
    value: dict[str, Any]


def check_archive(path: Path, *, look: Callable[[Record], None] = lambda _record: None) -> Contents:
    """Read the whole file; ``look`` is shown each record.

    Raises ``BadArchiveError`` with a sentence if it is cut, changed or something else.
    """
    contents = Contents()
    for record in read_records(path):
        look(record)
        if record.kind == "flow_version":
            contents.versions.append({name: value for name, value in record.value.items() if name != "spec"})
        else:
            contents.runs += 1
            contents.attempts += _count_attempts(record)
            contents.highest = max(contents.highest, record.value["id"])
    return contents


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file; at its end it is known whether it was whole. Raises ``BadArchiveError``."""
    digest = hashlib.sha256()
    runs = attempts = number = 0
    end: dict[str, Any] | None = None
    with _open(path) as file:
        while line := _read_line(file, number + 1):
            number += 1
            if end is not None:
                raise BadArchiveError(f"Line {number}: the file goes on after its end.")
            value = _parse(line, number)
            if number == 1:
                _check_head(value)
            elif "end" in value:
                end = {**_take(value, "end", number), "found": digest.hexdigest()}
            else:
                record = _read_record(value, number)
                if record.kind == "run":
                    runs += 1
                    attempts += _count_attempts(record)
                yield record
            digest.update(line)
    if end is None:
        raise BadArchiveError(f"The file is cut off after line {number}." if number else "The file is empty.")
    if (end.get("runs"), end.get("attempts")) != (runs, attempts):
        raise BadArchiveError(
            f"Line {number}: it should hold {end.get('runs')} runs with {end.get('attempts')} attempts, but holds "
            f"{runs} with {attempts}."
        )
    if end.get("sha256") != end["found"]:
        raise BadArchiveError("The file was changed since it was written: its checksum is another one.")


@contextmanager
def _open(path: Path) -> Iterator[_File]:
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == _MAGIC
            raw.seek(0)
            if is_packed:
                with gzip.GzipFile(fileobj=raw) as file:
                    yield file
            else:
                yield raw
    except OSError as error:
        raise BadArchiveError(f"“{path}” can’t be read: {error.strerror or error}.") from error


def _read_line(file: _File, number: int) -> bytes:
    try:
        line = file.readline(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadArchiveError(f"Line {number}: the file is cut off or damaged.") from None
    if len(line) > MOST_BYTES:
        raise BadArchiveError(f"Line {number} has more than {MOST_BYTES // 1024**2} MB.")
    return line


def _parse(line: bytes, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise BadArchiveError(f"Line {number} is no JSON.") from None
    if not isinstance(value, dict):
        raise BadArchiveError(f"Line {number} is no JSON object.")
    return value


def _check_head(value: dict[str, Any]) -> None:
    if value.get("format") != FORMAT:
        raise BadArchiveError("Line 1 does not say that this is an archive of ToolFlow.")
    if value.get("version") != VERSION:
        raise BadArchiveError(
            f"Line 1: the file has version {str(value.get('version'))[:20]} of the format, and this ToolFlow reads "
            f"version {VERSION}. Use a newer ToolFlow."
        )


def _read_record(value: dict[str, Any], number: int) -> Record:
    for kind in ("run", "flow_version"):
        if kind in value:
            record = Record(number, kind, _take(value, kind, number))
            if kind == "run":
                _check_run(record)
            return record
    raise BadArchiveError(f"Line {number} holds neither a run nor a version of a flow.")


def _take(value: dict[str, Any], name: str, number: int) -> dict[str, Any]:
    content = value[name]
    if not isinstance(content, dict):
        raise BadArchiveError(f"Line {number}: “{name}” is no object.")
    return content


def _check_run(record: Record) -> None:
    run_id, steps = record.value.get("id"), record.value.get("steps")
    # JavaScript's whole numbers end there; none that ToolFlow gave comes near.
    if not isinstance(run_id, int) or isinstance(run_id, bool) or not 0 < run_id < 2**53:
        raise BadArchiveError(f"Line {record.line}: the run has no number.")
    if not isinstance(steps, list) or not all(
        isinstance(step, dict)
        and isinstance(step.get("attempts"), list)
        and all(isinstance(attempt, dict) for attempt in step["attempts"])
        for step in steps
    ):
        raise BadArchiveError(f"Line {record.line}: the steps of run {run_id} are no list of steps with attempts.")


def _count_attempts(record: Record) -> int:
    return sum(len(step["attempts"]) for step in record.value["steps"])
