"""What all benchmarks of one call share: how long they take, where servers are, and where their files go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Load:
    """What “load” puts on an installation."""

    minutes: float
    users: int
    """Readers, each with a page of a run open."""
    requests_per_second: float
    """To the API."""
    in_flight: int
    """Runs that are under way all the time."""
    call_seconds: float
    """What a model call takes: from half as long to half as long again."""
    web_processes: int
    database: str | None
    """The address of a PostgreSQL server; SQLite without one."""


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
    load: Load
