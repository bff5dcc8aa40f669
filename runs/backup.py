"""Copies of the embedded database while it is in use, and the way back.

A copy is made with SQLite's own backup: one state of the whole database, whatever is written meanwhile. PostgreSQL
comes with tools of its own (``docs/backup.md``).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import connections
from django.db.migrations.loader import MigrationLoader

PAGES = 2_000
"""Pages copied between two looks at how far it is."""
COUNTED = ("runs_run", "runs_attempt", "flows_flowversion")
"""Tables whose rows are counted in the original and in the copy."""


class BackupError(Exception):
    """It can't be done; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a copy holds."""

    runs: int
    attempts: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Restoration:
    """What was put in place."""

    backup: Backup
    kept: Path | None
    """Where the database that was there lies now; None if there was none."""
    is_older: bool
    """Whether the copy has to be migrated before it can be used."""


def find_database() -> Path:
    """The file of the embedded database. Raises ``BackupError`` if the installation has another one."""
    database = settings.DATABASES["default"]
    if database["ENGINE"] != "django.db.backends.sqlite3":
        raise BackupError(
            "This installation keeps its data in PostgreSQL: use pg_dump and pg_restore, as docs/backup.md says."
        )
    return Path(database["NAME"])


def write_backup(
    target: Path, *, replaces: bool = False, report: Callable[[int, int], None] = lambda _done, _all: None
) -> Backup:
    """Copy the database to a new file, also while workers write, and check the copy; it appears when it is whole.

    ``report`` is told how many pages are done, of how many. Raises ``BackupError``.
    """
    path = find_database()
    if target.exists() and not replaces:
        raise BackupError(f"“{target}” exists already. Take another name, or give --replace.")
    if not path.exists():
        raise BackupError(f"There is no database at “{path}” yet.")
    with _new_file(target) as whole:
        with closing(_open(path)) as original, closing(sqlite3.connect(whole, isolation_level=None)) as copy:
            # A transaction that has begun to read sees one state, and keeps no writer waiting.
            original.execute("BEGIN")
            counts = _count(original)
            original.backup(copy, pages=PAGES, progress=lambda _status, left, pages: report(pages - left, pages))
            original.execute("ROLLBACK")
            # One file, without a log beside it.
            copy.execute("PRAGMA journal_mode=DELETE")
            if _check(copy) != counts:
                raise BackupError("The copy does not hold what the database holds; nothing was written.")
        _put(whole, target)
    return Backup(counts[0], counts[1], target.stat().st_size)


def restore_backup(source: Path, *, now: datetime) -> Restoration:
    """Put a copy in the place of the database, which is kept beside it. Raises ``BackupError``.

    Refuses while any process has the database open, and whatever is no whole database of this ToolFlow or an older one.
    """
    path = find_database()
    if not source.is_file():
        raise BackupError(f"There is no file “{source}”.")
    is_older = _check_source(source)
    with _new_file(path) as whole:
        shutil.copyfile(source, whole)
        with closing(_open(whole)) as copy:
            counts = _check(copy)
        kept = None
        if path.exists():
            _close_for_others(path)
            kept = path.with_name(f"{path.name}.before-{now:%Y%m%dT%H%M%S}")
            path.rename(kept)
        _put(whole, path)
    return Restoration(Backup(counts[0], counts[1], path.stat().st_size), kept, is_older)


def _check_source(source: Path) -> bool:
    """Whether the database is one of an older ToolFlow; raises ``BackupError`` for what can't be used at all."""
    try:
        with closing(_open(source)) as database:
            rows = database.execute("SELECT app, name FROM django_migrations WHERE app IN ('flows', 'runs')").fetchall()
            _check(database)
    except sqlite3.DatabaseError as error:
        raise BackupError(f"“{source}” is no database of ToolFlow ({error}).") from error
    known = {key for key in MigrationLoader(None).disk_migrations if key[0] in ("flows", "runs")}
    applied = set(rows)
    if not applied:
        raise BackupError(f"“{source}” is no database of ToolFlow.")
    if newer := sorted(applied - known):
        raise BackupError(
            f"“{source}” was made by a newer ToolFlow: this one does not know {'.'.join(newer[-1])}. Upgrade first."
        )
    return bool(known - applied)


def _close_for_others(path: Path) -> None:
    """Make sure that nobody has the database open, and that all of it is in one file. Raises ``BackupError``."""
    connections.close_all()
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as database:
            # Whoever has it open holds a lock on the log, and the log can't be given up.
            (mode,) = database.execute("PRAGMA journal_mode=DELETE").fetchone()
            database.execute("BEGIN EXCLUSIVE")
            database.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise BackupError(f"“{path}” can’t be used ({error}).") from error
        mode = ""
    except sqlite3.DatabaseError:
        # What is broken is put aside as it is.
        return
    if mode != "delete":
        raise BackupError(
            f"Processes have “{path}” open{_name_processes(path)}. Stop the web server and all workers first."
        )


def _name_processes(path: Path) -> str:
    """The workers that were heard of last, for the sentence."""
    try:
        with closing(_open(path)) as database:
            rows = database.execute("SELECT DISTINCT pid FROM runs_worker ORDER BY pid LIMIT 5").fetchall()
    except sqlite3.DatabaseError:
        return ""
    return f" (workers: {', '.join(str(pid) for (pid,) in rows)})" if rows else ""


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=20, isolation_level=None)
    database.execute("PRAGMA query_only=1")
    return database


def _check(database: sqlite3.Connection) -> list[int]:
    """Check every page and index; gives how many rows the tables have that are counted."""
    found = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise BackupError(f"The database is damaged: {found}.")
    return _count(database)


def _count(database: sqlite3.Connection) -> list[int]:
    return [database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in COUNTED]  # noqa: S608  # our own


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A file beside ``target``, readable by its owner only, that goes unless it is put in its place."""
    try:
        handle, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")
    except OSError as error:
        raise BackupError(f"“{target}” can’t be written: {error.strerror}.") from error
    os.close(handle)
    whole = Path(name)
    try:
        yield whole
    except (OSError, sqlite3.Error) as error:
        raise BackupError(f"“{target}” can’t be written: {getattr(error, 'strerror', None) or error}.") from error
    finally:
        whole.unlink(missing_ok=True)


def _put(whole: Path, target: Path) -> None:
    """Put a file in its place, for good."""
    with whole.open("rb") as file:
        os.fsync(file.fileno())
    whole.replace(target)
    folder = os.open(target.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
