"""Copies of the embedded database while it is in use, and the way back; and databases of an earlier ToolFlow.

PostgreSQL has tools of its own (``docs/backup.md``).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, connections, transaction
from django.db.migrations.loader import MigrationLoader

from runs.audit_log.events import AuditAction, log_audit_event

OWN_APPS = ("flows", "runs")
PAGES_PER_STEP = 2_000
"""Pages that are copied between two reports."""
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""The database and the files that SQLite keeps beside it. It would add a log that is left to any file of that name."""
CONNECTED_BYTE = 128
"""The byte of the “-shm” file on which each open connection of SQLite holds a lock."""


class BackupError(Exception):
    """A backup or a restore is not possible; one sentence says why."""


class Backup(NamedTuple):
    """What a copy holds; ``size`` in bytes."""

    runs: int
    attempts: int
    size: int


def write_backup(
    target: Path, *, replaces: bool = False, report: Callable[[int, int], None] = lambda _done, _all: None
) -> Backup:
    """Copy the database to a new file, also while workers write; it appears when it is whole and checked.

    ``report`` gets the pages that are done, and all of them. Raises ``BackupError``.
    """
    path = find_database()
    if target.exists() and not replaces:
        raise BackupError(f"“{target}” already exists. Choose another name, or use --replace.")
    if not path.exists():
        raise BackupError(f"No database at “{path}” yet.")
    with _new_file(target) as new:
        # Opened to write, so that closing it leaves no empty log behind.
        _copy(path, new, report, mode="rw")
        backup = _check(new)
        _put(new, target)
    return backup


def restore_backup(source: Path, *, now: datetime) -> tuple[Backup, Path | None, bool]:
    """Put a copy in the place of the database, which is kept beside it. Raises ``BackupError``.

    Gives what it holds, where the database lies that was there (None if there was none), and whether the copy has to
    be migrated before it can be used.

    Refuses while a process has the database open, and what is not a whole database of this ToolFlow or an older one.
    """
    path = find_database()
    if not source.is_file():
        raise BackupError(f"No such file: “{source}”.")
    kept = path.with_name(f"{path.name}.before-{now:%Y%m%dT%H%M%S}")
    if kept.exists():
        raise BackupError(f"“{kept}” already exists. Try again in a second.")
    with _new_file(path) as new:
        try:
            _copy(source, new)
            is_older = _find_is_older(new, source)
            backup = _check(new)
        except sqlite3.Error as error:
            raise BackupError(f"“{source}” can’t be restored ({error}).") from error
        connections.close_all()
        with _locked(path), _put_aside(path, kept):
            _put(new, path)
    return backup, kept if kept.exists() else None, is_older


def find_database() -> Path:
    """The file of the embedded database. Raises ``BackupError`` if the installation has another one."""
    database = settings.DATABASES["default"]
    if database["ENGINE"] != "django.db.backends.sqlite3":
        raise BackupError(
            "This installation keeps its data in PostgreSQL: use pg_dump and pg_restore, as docs/backup.md says."
        )
    return Path(database["NAME"])


def _copy(
    source: Path,
    target: Path,
    report: Callable[[int, int], None] = lambda _done, _all: None,
    *,
    mode: str = "ro",
) -> None:
    """Copy a database to one file, with what only its log holds."""
    with closing(_open(source, mode)) as original, closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # A transaction that has begun to read sees one state, and keeps no writer waiting.
        original.execute("BEGIN")
        original.execute("SELECT COUNT(*) FROM sqlite_master")
        original.backup(copy, pages=PAGES_PER_STEP, progress=lambda _, left, pages: report(pages - left, pages))
        copy.execute("PRAGMA journal_mode=DELETE")


def _check(path: Path) -> Backup:
    """Check every page and index, and count what the database holds."""
    with closing(_open(path)) as database:
        (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise BackupError(f"The database is damaged: {found}.")
        (runs,) = database.execute("SELECT COUNT(*) FROM runs_run").fetchone()
        (attempts,) = database.execute("SELECT COUNT(*) FROM runs_attempt").fetchone()
    return Backup(runs, attempts, path.stat().st_size)


def _find_is_older(copy: Path, source: Path) -> bool:
    """Whether migrations are missing in a copy. Raises ``BackupError`` if it has some that this ToolFlow lacks."""
    with closing(_open(copy)) as database:
        applied = set(database.execute("SELECT app, name FROM django_migrations").fetchall())
    known = MigrationLoader(None).disk_migrations.keys()
    if unknown := sorted(key for key in applied - known if key[0] in OWN_APPS):
        raise BackupError(
            f"“{source}” was made by another version of ToolFlow, which is needed to restore it: this one does not "
            f"know {'.'.join(unknown[-1])}."
        )
    return not known <= applied


def _open(path: Path, mode: str = "ro") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=20, isolation_level=None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from opening the database. Raises ``BackupError`` if one has it open."""
    try:
        file = path.with_name(f"{path.name}-shm").open("rb+")
    except FileNotFoundError:
        # The last process that closes a database deletes it.
        yield
        return
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, CONNECTED_BYTE)
        except BlockingIOError:
            raise BackupError(f"Processes have “{path}” open. Stop the web server and all workers first.") from None
        yield


@contextmanager
def _put_aside(path: Path, kept: Path) -> Iterator[None]:
    """Rename the database and its logs, which belong to it; they come back if the block fails."""
    moved: list[tuple[Path, Path]] = []
    try:
        for suffix in SUFFIXES:
            there, away = path.with_name(path.name + suffix), kept.with_name(kept.name + suffix)
            if there.exists():
                moved.append((there, there.rename(away)))
        yield
    except BaseException:
        for there, away in reversed(moved):
            away.rename(there)
        raise


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A file beside ``target``, readable by its owner only, that is deleted unless it is put in its place."""
    try:
        handle, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")
    except OSError as error:
        raise BackupError(f"“{target}” can’t be written: {error.strerror}.") from error
    os.close(handle)
    try:
        yield Path(name)
    except (OSError, sqlite3.Error) as error:
        raise BackupError(f"“{target}” can’t be written: {getattr(error, 'strerror', None) or error}.") from error
    finally:
        for suffix in SUFFIXES:
            Path(name + suffix).unlink(missing_ok=True)


def _put(new: Path, target: Path) -> None:
    """Put a file in its place, for good."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(target)
    folder = os.open(target.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def log_copy(action: AuditAction, path: Path, details: Mapping[str, Any]) -> str:
    """Write to the audit log that a copy was made or restored; gives a sentence if that is not possible.

    The copy is whole nonetheless: the disk may be full, or the tables those of an older ToolFlow.
    """
    try:
        with transaction.atomic():
            log_audit_event(action=action, label=path.name, details=details)
    except DatabaseError as error:
        return f"The audit log has no entry of it: {str(error).strip()}."
    return ""


def refuse_older_database(*, using: str = "default", **kwargs: Any) -> None:
    """Raise ``CommandError`` if the database has migrations of ToolFlow that this one does not have.

    A receiver of ``pre_migrate``: there is no way to update such a database. The database's own errors are raised.
    """
    loader = MigrationLoader(connections[using])
    unknown = sorted(key for key in loader.applied_migrations or () if key not in loader.disk_migrations)
    for app, name in unknown:
        if app in OWN_APPS:
            raise CommandError(
                f"The database was made by another version of ToolFlow ({app}.{name}) and can't be updated: "
                "move it aside (or set another DATABASE_URL) to begin with a new one."
            )
