"""What all benchmarks of one call share: how long they take, where servers are, and where their files go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Setting:
    """Options of the command line, and the folder that is thrown away afterwards."""

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
