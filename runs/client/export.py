"""The command that takes runs out as a file, of any size: it is written as it comes."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from errno import EISDIR
from pathlib import Path
from typing import Annotated, Any

import typer

from runs.client.errors import SUCCEEDED, ClientError
from runs.client.options import find_server, with_filters
from runs.client.printing import clean, format_plural, print_line
from runs.client.progress import RARELY, Progress
from runs.client.standard_streams import explain_unwritable

PART = ".part"
"""What the name of a file ends with that is not whole yet."""


class FileFormat(StrEnum):
    """Kinds of files."""

    JSON_LINES = "jsonl"
    CSV = "csv"


_MEDIA_TYPES = {FileFormat.JSON_LINES: "application/x-ndjson", FileFormat.CSV: "text/csv"}


@with_filters
def export_runs(
    context: typer.Context,
    *,
    format: Annotated[
        FileFormat | None, typer.Option("--format", help="jsonl or csv; as the name of the file ends, else jsonl.")
    ] = None,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="With all steps, outputs, issues and usage; JSON Lines only.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Standard output if left out, or “-”.")
    ] = None,
    filters: dict[str, Any],
) -> int:
    """Write all runs that match into a file.

    The newest come first, each as a line of JSON or as a row of a table. While it is being written the name of the file
    ends with “.part”: what has broken off is never taken for whole.
    """
    if format is None:
        format = FileFormat.CSV if output and output.suffix.lower() == ".csv" else FileFormat.JSON_LINES
    query = {**filters, "format": format.value, "attempts": "all" if attempts else None}
    if output == Path("-"):
        output = None
    server = find_server(context)
    size = lines = 0
    with (
        # First: what can't be written need not be asked for.
        _open(output) as write,
        server.download("runs/export", kind=_MEDIA_TYPES[format], query=query) as parts,
        Progress(pause=RARELY, is_quiet=output is None and sys.stdout.isatty()) as progress,
    ):
        for part in parts:
            write(part)
            size += len(part)
            lines += part.count(b"\n")
            progress.tell(_describe(format, lines, size))
    print_line(_describe(format, lines, size), f" in {output}" if output else "", is_error=True)
    return SUCCEEDED


def _describe(format: FileFormat, lines: int, size: int) -> str:
    # A row of a table may have several lines.
    counted = f"{format_plural(lines, 'run')}, " if format is FileFormat.JSON_LINES else ""
    return f"{counted}{_format_size(size)}"


def _format_size(size: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return format_plural(size, "byte")


@contextmanager
def _open(path: Path | None) -> Iterator[Callable[[bytes], object]]:
    """What writes into the file of that name, which is there once it is whole. Raises ``ClientError``."""
    if path is None:
        try:
            yield _make_clean_writer() if sys.stdout.isatty() else sys.stdout.buffer.write
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read along has seen enough: the rest need not come.
            raise
        except OSError as error:
            raise explain_unwritable(error) from None
        return
    part = path.with_name(path.name + PART)
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            yield file.write
        part.replace(path)
    except OSError as error:
        raise ClientError(f"{path} can’t be written: {error.strerror}.") from None
    finally:
        with suppress(OSError):
            # Nothing came at all.
            if part.stat().st_size == 0:
                part.unlink()


def _make_clean_writer() -> Callable[[bytes], object]:
    """What writes on a terminal, without what others wrote to command it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda part: sys.stdout.write(clean(decoder.decode(part)))
