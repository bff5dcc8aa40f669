"""Copies of the embedded database while it is in use, and the way back.

A copy is made with SQLite's own backup: one state of the whole database, whatever is written meanwhile. What is put
back is checked where it will be renamed from, and nothing of an earlier database is left beside it: SQLite would add
the writes of a log that a crash left to any file of that name. PostgreSQL has tools of its own (``docs/backup.md``).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import connections
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader

from runs.older_databases import OWN_APPS

PAGES = 2_000
"""Pages copied between two looks at how far it is."""
COUNTED = ("runs_run", "runs_attempt", "flows_flowversion")
"""Tables whose rows are counted in the original and in the copy."""
LOGS = ("-wal", "-shm", "-journal")
"""How the files end that SQLite keeps beside a database."""
_MAGIC = b"SQLite format 3\0"
_CONNECTED = 128
"""The byte of the “-shm” file that every connection of SQLite holds a lock on as long as it lasts."""


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
    kept_logs: tuple[Path, ...]
    """Where the logs lie that a crash had left beside it."""
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
    away = path.with_name(f"{path.name}.before-{now:%Y%m%dT%H%M%S}")
    if away.exists():
        raise BackupError(f"“{away}” exists already. Try again in a second.")
    with _new_file(path) as whole:
        _copy(source, whole)
        is_older, counts = _check_source(whole, name=source)
        _close_for_others(path)
        with _put_aside(path, away) as kept:
            _put(whole, path)
    # SQLite makes the third kind of file anew.
    logs = tuple(kept[ending] for ending in ("-wal", "-journal") if ending in kept and kept[ending].stat().st_size)
    return Restoration(Backup(counts[0], counts[1], path.stat().st_size), kept.get(""), logs, is_older)


def _copy(source: Path, target: Path) -> None:
    """Copy a database to one file, with what only its log holds."""
    try:
        with closing(_open(source)) as original, closing(sqlite3.connect(target, isolation_level=None)) as copy:
            original.backup(copy, pages=PAGES)
            copy.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError as error:
        raise BackupError(f"“{source}” can’t be copied to “{target.parent}” ({error}).") from error
    except sqlite3.DatabaseError as error:
        raise BackupError(f"“{source}” is no database of ToolFlow ({error}).") from error


def _check_source(copy: Path, *, name: Path) -> tuple[bool, list[int]]:
    """Whether the database is one of an older ToolFlow, and what it holds; sentences call it ``name``.

    Raises ``BackupError`` for what can't be used at all.
    """
    try:
        with closing(_open(copy)) as database:
            applied = set(database.execute("SELECT app, name FROM django_migrations").fetchall())
            counts = _check(database)
    except sqlite3.DatabaseError as error:
        raise BackupError(f"“{name}” is no database of ToolFlow ({error}).") from error
    if not any(app in OWN_APPS for app, _ in applied):
        raise BackupError(f"“{name}” is no database of ToolFlow.")
    known = MigrationLoader(None).disk_migrations
    if unknown := _find_unknown(applied, known):
        raise BackupError(
            f"“{name}” was made by another version of ToolFlow, which is needed to restore it: this one does not "
            f"know {'.'.join(unknown[-1])}."
        )
    return not all(_is_applied(key, migration, applied) for key, migration in known.items()), counts


def _find_unknown(applied: set[tuple[str, str]], known: Mapping[tuple[str, str], Migration]) -> list[tuple[str, str]]:
    """Migrations that were applied there and that this ToolFlow does not have yet."""
    latest: dict[str, str] = {}
    for app, name in known:
        latest[app] = max(name, latest.get(app, ""))
    # Apps that ToolFlow no longer has leave their migrations behind, and libraries drop old ones that they replaced.
    return sorted(
        (app, name) for app, name in applied - known.keys() if app in OWN_APPS or (app in latest and name > latest[app])
    )


def _is_applied(key: tuple[str, str], migration: Migration, applied: set[tuple[str, str]]) -> bool:
    replaced = [tuple(one) for one in migration.replaces]
    return key in applied or (bool(replaced) and applied.issuperset(replaced))


def _close_for_others(path: Path) -> None:
    """Make sure that nobody has the database open, and that all of it is in one file. Raises ``BackupError``.

    What is broken stays as it is, with its log: whoever wants to save something of it needs both.
    """
    connections.close_all()
    if _is_broken(path):
        if _is_log_in_use(path):
            raise _in_use(path)
        return
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
        raise _in_use(path)


def _is_broken(path: Path) -> bool:
    """Whether there is no database that SQLite could open: it must not try, since that does away with the log."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return True
    except FileNotFoundError:
        return True
    try:
        with closing(_open(path)) as database:
            database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # It is locked, or a transaction that a crash broke off must be rolled back first.
        return False
    except sqlite3.DatabaseError:
        return True
    return False


def _is_log_in_use(path: Path) -> bool:
    """Whether another process has a connection that keeps a log, also where the database itself is gone or broken."""
    try:
        with path.with_name(f"{path.name}-shm").open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _CONNECTED)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _in_use(path: Path) -> BackupError:
    return BackupError(
        f"Processes have “{path}” open{_name_processes(path)}. Stop the web server and all workers first."
    )


def _name_processes(path: Path) -> str:
    """The workers that were heard of last, for the sentence."""
    try:
        with closing(_open(path)) as database:
            rows = database.execute("SELECT DISTINCT pid FROM runs_worker ORDER BY pid LIMIT 5").fetchall()
    except sqlite3.Error:
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
        for ending in ("", *LOGS):
            whole.with_name(whole.name + ending).unlink(missing_ok=True)


@contextmanager
def _put_aside(path: Path, away: Path) -> Iterator[Mapping[str, Path]]:
    """Rename the database and its logs; gives their new paths by ending. They come back if the block fails."""
    kept: dict[str, Path] = {}
    try:
        # The database first: if this is broken off, no log is missing to a database that somebody opens.
        for ending in ("", *LOGS):
            there = path.with_name(path.name + ending)
            if there.exists():
                kept[ending] = there.rename(away.with_name(away.name + ending))
        yield kept
    except BaseException:
        for ending in reversed(kept):
            kept[ending].rename(path.with_name(path.name + ending))
        raise


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
