"""Standard input, output and errors: tables, JSON, progress, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from runs.client.server import ClientError

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    "succeeded": "green",
    "passed": "green",
    "failed": "red",
    "invalid": "red",
    "errored": "magenta",
    "cancelled": "dim",
    "interrupted": "dim",
    "running": "cyan",
    "critical": "bold red",
    "high": "red",
    "medium": "yellow",
    "low": "dim",
}
"""Colours of the words for states and severities."""
NONE = "—"
NUMBER_COLUMNS = {"RUN", "VERSION", "ATTEMPTS", "TOKENS", "COST", "DURATION", "LIVE", "LATEST"}
"""Columns that are aligned to the right."""
Columns = Mapping[str, Callable[[Any], Any]]
"""Headings of a table, each with what gives an item's cell."""
Progress = Callable[[str, int, int | None], None]
"""Shows a text, how much is done, and of how much."""
LOG_INTERVAL = 10.0
"""Seconds between two lines of progress where no terminal shows a bar."""


def prepare_streams() -> None:
    """Make the streams UTF-8, as JSON is; a closed stream is empty, or drops its text."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # until the process ends
    out = ("utf-8", "backslashreplace")
    streams = ((sys.stdin, "utf-8-sig", "strict"), (sys.stdout, *out), (sys.stderr, *out))
    for stream, encoding, errors in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors=errors)


def silence(stream: TextIO) -> None:
    """Drop what is still to be written to a standard stream: Python would try once more, and fail, when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write(text: str, *, is_error: bool = False) -> None:
    """Write text as it is. A pipe that was closed is no failure: the exit status still says what became of a run.

    Raises ``OSError`` if standard output can't be written.
    """
    stream = sys.stderr if is_error else sys.stdout
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        silence(stream)
        if not is_error and not isinstance(error, BrokenPipeError):
            raise


def clean(text: str) -> str:
    """Replace characters that a terminal would obey."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def dump_json(value: Any, indent: int | None = None) -> str:
    """JSON that a terminal does not obey: it escapes only the first 32 of such characters by itself."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text) + "\n"


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    write(dump_json(value, indent=2))


def print_line(*parts: Any, style: str = "", is_error: bool = False) -> None:
    """Print parts one after the other; a part that is a state or a severity has its colour."""
    from rich.text import Text

    _print(Text.assemble(*(_paint(part, style) for part in parts)), is_error=is_error, soft_wrap=True)


def print_error(error: ClientError, place: str = "") -> None:
    """Print what is wrong on standard error, details below; ``place`` is what it is wrong with."""
    print_line("\n  ".join((f"toolflow: {place}{error.message}", *error.details)), is_error=True)


def print_items(items: Sequence[Any], columns: Columns, *, as_json: bool = False) -> None:
    """Print a table with a row for each item, or JSON."""
    if as_json:
        print_json(items)
        return
    if not items:
        print_line("Nothing is found.", is_error=True)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in NUMBER_COLUMNS else "left", overflow="fold")
    for item in items:
        table.add_row(*(_paint(render(item)) for render in columns.values()))
    _print(table)


def _paint(part: Any, style: str = "") -> Text:
    from rich.text import Text

    text = clean(str(part))
    return Text(text, style=style or STYLES.get(text, ""))


def _print(content: Any, *, is_error: bool = False, **options: Any) -> None:
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    # A file or another program gets lines of any length.
    width = None if stream.isatty() else 10_000
    rendered = io.StringIO()
    console = Console(file=rendered, force_terminal=stream.isatty(), highlight=False, emoji=False, width=width)
    console.print(content, **options)
    write(rendered.getvalue(), is_error=is_error)


@contextmanager
def show_progress(*, is_quiet: bool = False) -> Iterator[Progress]:
    """Give what shows the progress of a command: a bar on a terminal, elsewhere a line per ``LOG_INTERVAL``."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    shown_at = time.monotonic()

    def log(text: str, done: int, total: int | None) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= LOG_INTERVAL and not is_quiet:
            print_line(text, is_error=True)
            shown_at = time.monotonic()

    if is_quiet or not sys.stderr.isatty():
        yield log
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(task, description=clean(text), completed=done, total=total)


@contextmanager
def print_on_interrupt(remark: str) -> Iterator[None]:
    """Print what goes on without the command when Ctrl-C ends it."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(f"\n{remark}", is_error=True)
        raise


def format_time(text: str | None) -> str:
    """A time of the API in the time zone of this machine, to the second."""
    return NONE if text is None else f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S}"


def format_seconds(seconds: float | None) -> str:
    """A duration."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def format_cost(cost: Any) -> str:
    """An amount of USD; an unknown one is not zero."""
    return NONE if cost is None else f"${float(cost):.4f}"


def format_count(count: int | None, noun: str = "") -> str:
    """A number, with a noun that takes an “s” if they are many."""
    if count is None:
        return NONE
    return f"{count:,} {noun}{'' if count == 1 else 's'}" if noun else f"{count:,}"
