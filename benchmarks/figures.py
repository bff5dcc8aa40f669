"""What a benchmark is given and what it gives: options, and figures with their targets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """Options of the command line, and the folder that is deleted afterwards."""

    folder: Path
    work: Path
    """The requests of a run, see ``work.write_work``."""
    rounds: int
    runs: int
    postgres: str | None
    redis: str | None
    peers: Path | None
    """The interpreter of the virtual environment that has the peers; None if there is none."""
    is_long: bool
    """Whether what takes many minutes is measured too."""
    stack: ExitStack
    """Closed at the end of all benchmarks."""
    seeded: dict[str, tuple[dict[str, str], dict[str, Any]]] = field(default_factory=dict)
    """What ``seeded_history.open_installations`` made, by database."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that has a target."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the value reaches its target."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.at_least is None or self.value >= self.at_least

    def describe(self) -> str:
        """One line for the terminal."""
        target = f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"
        return f"  {'✓' if self.is_met else '✗'} {self.name}: {self.value:.3g} {self.unit} ({target})"


def say(line: str = "") -> None:
    """Write a line at once: some figures take minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table in Markdown, ready for the documentation."""
    say(f"\n{title}\n")
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        filler = "-" if line[0] == "---" else " "
        cells = (cell.ljust(width, filler) for cell, width in zip(line, widths, strict=True))
        say(f"| {' | '.join(cells)} |")
    say()
