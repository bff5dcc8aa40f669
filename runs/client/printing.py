"""What is printed: tables and lines on terminals, plain ones elsewhere, and nothing that a terminal would obey."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runs.client.errors import ClientError
from runs.client.standard_streams import silence, writing_remarks, writing_results

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
"""Colours of states and severities; the word itself always stands there too."""
NONE = "—"


class _Console(Console):
    """A console whose reader may go away."""

    def on_broken_pipe(self) -> None:
        """Go on to the end of the command: its exit status tells of more than what was read."""
        self.quiet = True
        silence(self.file)


def make_console(*, is_error: bool = False) -> Console:
    """The console for results, or the one for everything that is said beside them."""
    stream = sys.stderr if is_error else sys.stdout
    # A file or another program gets lines as long as they are.
    width = None if stream.isatty() or "COLUMNS" in os.environ else 10_000
    return _Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False, width=width)


def clean(text: str) -> str:
    """Text of others without characters that a terminal would obey."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def paint(text: Any, style: str = "") -> Text:
    """Text of others, as it is printed; states and severities have their colours by themselves."""
    shown = clean(str(text))
    return Text(shown, style=style or STYLES.get(shown, ""))


def print_json(value: Any) -> None:
    """Print a value as JSON, as it came."""
    # Characters that a terminal would obey are escaped within JSON, but for these.
    text = json.dumps(value, indent=2, ensure_ascii=False)
    text = "".join(one if one.isprintable() or one == "\n" else _escape(one) for one in text)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # It must be JSON still.
        text = json.dumps(value, indent=2)
    write_text(f"{text}\n")


def write_text(text: str) -> None:
    """Write results as they are, where another program may read them."""
    with writing_results():
        sys.stdout.write(text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def print_line(*parts: Any, is_error: bool = False) -> None:
    """Print parts one after the other, in a line of their own."""
    line = Text()
    for part in parts:
        line.append_text(part if isinstance(part, Text) else paint(part))
    with writing_remarks() if is_error else writing_results():
        make_console(is_error=is_error).print(line, soft_wrap=True)


def print_error(error: ClientError, place: str = "") -> None:
    """Say on standard error what is wrong, and in detail below; ``place`` is what it is wrong with."""
    print_line(f"toolflow: {place}{error.sentence}", is_error=True)
    for line in error.details:
        print_line(f"  {line}", is_error=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Print a table; the columns named in ``right`` hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else paint(cell) for cell in row))
    with writing_results():
        make_console().print(table)


def format_time(text: str | None) -> str:
    """A moment in the time zone of this machine, to the second."""
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


def format_cost(cost: str | None) -> str:
    """An amount of USD; what is not known is not nothing."""
    return NONE if cost is None else f"${float(cost):.4f}"


def format_count(count: int | None) -> str:
    """A number of anything."""
    return NONE if count is None else f"{count:,}"


def format_plural(count: int, noun: str) -> str:
    """A number of things with their name, which takes an “s” if they are many."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_issue_counts(counts: dict[str, int]) -> str:
    """Issues by severity, the gravest first."""
    named = [f"{counts[name]} {name}" for name in ("critical", "high", "medium", "low") if counts.get(name)]
    return ", ".join(named) or "none"
