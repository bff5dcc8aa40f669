"""Standard input, output and errors: tables, JSON, progress, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

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


def prepare_streams() -> None:
    """Make the streams UTF-8, as JSON is; a closed stream is empty, or drops its text."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name) or open(os.devnull, mode)  # noqa: SIM115, PTH123  # until the process ends
        setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            encoding, errors = ("utf-8-sig", "strict") if mode == "r" else ("utf-8", "backslashreplace")
            stream.reconfigure(encoding=encoding, errors=errors)


def silence(stream: TextIO) -> None:
    """Drop what is still to be written to a standard stream: Python would retry, and fail, when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write(text: str, *, is_error: bool = False) -> None:
    """Write text as it is. A pipe that was closed is not a failure: the exit status still says what became of a run.

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

    _print(Text.assemble(*(_paint(part, style) for part in parts)), is_error=is_error)


def print_result(value: Any, *parts: Any, as_json: bool) -> None:
    """Print a value as JSON, or parts that say it in words."""
    if as_json:
        print_json(value)
    else:
        print_line(*parts)


def print_error(message: str, details: Sequence[str] = ()) -> None:
    """Print what is wrong on standard error, details below."""
    print_line("\n  ".join((f"toolflow: {message}", *details)), is_error=True)


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


def _print(content: Any, *, is_error: bool = False) -> None:
    from rich.console import Console

    is_terminal = (sys.stderr if is_error else sys.stdout).isatty()
    rendered = io.StringIO()
    # A file or another program gets lines of any length.
    width = None if is_terminal else 10_000
    console = Console(file=rendered, force_terminal=is_terminal, highlight=False, emoji=False, width=width)
    console.print(content, soft_wrap=True)
    write(rendered.getvalue(), is_error=is_error)


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Give what shows the progress of a command, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(task, description=clean(text), completed=done, total=total)


@contextmanager
def show_waiting(remark: str) -> Iterator[Progress]:
    """The same, and print ``remark``, on what goes on without the command, when Ctrl-C ends it."""
    try:
        with show_progress() as show:
            yield show
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
    return f"{seconds:.1f} s" if seconds < 60 else f"{timedelta(seconds=round(seconds))} h"


def format_cost(cost: Any) -> str:
    """An amount of USD; an unknown one is not zero."""
    return NONE if cost is None else f"${float(cost):.4f}"


def format_count(count: int | None, noun: str = "") -> str:
    """A number, with a noun that takes an “s” if they are many."""
    if count is None:
        return NONE
    return f"{count:,} {noun}{'' if count == 1 else 's'}" if noun else f"{count:,}"
