"""Copies of the embedded database: taken while others write, checked, and put back only when nobody is at it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from runs import backup
from runs.backup import BackupError, restore_backup, write_backup

NOW = datetime(2024, 11, 20, 12, tzinfo=UTC)

_SCHEMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE django_migrations (id integer PRIMARY KEY, app text, name text);
CREATE TABLE runs_run (id integer PRIMARY KEY, note text);
CREATE TABLE runs_attempt (id integer PRIMARY KEY);
CREATE TABLE runs_worker (pid integer);
CREATE TABLE flows_flowversion (id integer PRIMARY KEY);
INSERT INTO django_migrations (app, name) VALUES ('flows', '0001_initial'), ('runs', '0001_initial');
INSERT INTO runs_run (note) VALUES ('first');
"""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database of an installation of its own."""
    path = tmp_path / "toolflow.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_SCHEMA)
    use_database(monkeypatch, "sqlite3", str(path))
    return path


def use_database(monkeypatch: pytest.MonkeyPatch, kind: str, name: str) -> None:
    """Make it the database of the installation."""
    entry = {"ENGINE": f"django.db.backends.{kind}", "NAME": name}
    monkeypatch.setattr(backup, "settings", SimpleNamespace(DATABASES={"default": entry}))


def read_notes(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [note for (note,) in connection.execute("SELECT note FROM runs_run ORDER BY id")]


def add_note(path: Path, note: str) -> None:
    with closing(sqlite3.connect(path, timeout=20)) as connection, connection:
        connection.execute("INSERT INTO runs_run (note) VALUES (?)", [note])


class TestBackup:
    def test_it_holds_what_the_database_held_and_is_one_file_of_the_owner(self, database: Path, tmp_path: Path) -> None:
        target = tmp_path / "copy.sqlite3"
        assert write_backup(target).runs == 1
        add_note(database, "later")
        assert read_notes(target) == ["first"]
        assert oct(target.stat().st_mode & 0o777) == "0o600"
        assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy.sqlite3"]

    def test_others_write_all_the_while_and_it_is_one_state_of_the_whole(
        self, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.executemany("INSERT INTO runs_run (note) VALUES (?)", [("x" * 2_000,)] * 500)
        monkeypatch.setattr(backup, "PAGES", 10)
        began, written = Event(), Event()

        def write() -> None:
            began.wait(20)
            add_note(database, "meanwhile")
            written.set()

        def report(done: int, _pages: int) -> None:
            if done:
                began.set()
                assert written.wait(20), "A writer waits for the copy."

        writer = Thread(target=write)
        writer.start()
        copied = write_backup(tmp_path / "copy.sqlite3", report=report)
        writer.join()
        assert copied.runs == 501 and "meanwhile" not in read_notes(tmp_path / "copy.sqlite3")
        assert "meanwhile" in read_notes(database)

    def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(self, database: Path, tmp_path: Path) -> None:
        target = tmp_path / "copy.sqlite3"
        target.write_text("mine")
        with pytest.raises(BackupError, match="exists already"):
            write_backup(target)
        assert target.read_text() == "mine"
        assert write_backup(target, replaces=True).runs == 1

    def test_a_folder_that_is_not_there_gets_a_sentence(self, database: Path, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="can’t be written: No such file or directory"):
            call_command("backup", str(tmp_path / "none" / "copy.sqlite3"))

    def test_postgresql_has_tools_of_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_database(monkeypatch, "postgresql", "toolflow")
        with pytest.raises(CommandError, match="use pg_dump and pg_restore"):
            call_command("backup", str(tmp_path / "copy"))


class TestRestore:
    @pytest.fixture
    def copy(self, database: Path, tmp_path: Path) -> Path:
        target = tmp_path / "copy.sqlite3"
        write_backup(target)
        add_note(database, "later")
        return target

    def test_the_copy_takes_the_place_of_the_database_which_is_kept(self, database: Path, copy: Path) -> None:
        restoration = restore_backup(copy, now=NOW)
        assert read_notes(database) == ["first"]
        assert restoration.kept is not None and read_notes(restoration.kept) == ["first", "later"]
        assert copy.exists() and restoration.is_older

    def test_nothing_happens_while_a_process_has_the_database_open(self, database: Path, copy: Path) -> None:
        with closing(sqlite3.connect(database)) as other:
            other.execute("INSERT INTO runs_worker VALUES (4711)")
            other.commit()
            with pytest.raises(BackupError, match=r"open \(workers: 4711\)\. Stop the web server and all workers"):
                restore_backup(copy, now=NOW)
        assert read_notes(database) == ["first", "later"]
        assert restore_backup(copy, now=NOW).kept

    def test_where_there_is_no_database_yet_it_is_simply_put_there(self, database: Path, copy: Path) -> None:
        database.unlink()
        assert restore_backup(copy, now=NOW).kept is None and read_notes(database) == ["first"]

    def test_a_broken_database_is_put_aside_as_it_is(self, database: Path, copy: Path) -> None:
        database.write_bytes(b"broken" * 1_000)
        kept = restore_backup(copy, now=NOW).kept
        assert kept is not None and kept.read_bytes().startswith(b"broken") and read_notes(database) == ["first"]

    def test_what_is_no_database_of_toolflow_is_refused(self, database: Path, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("nothing of the kind, though it is long enough to be looked at" * 100)
        with closing(sqlite3.connect(tmp_path / "other.sqlite3")) as other:
            other.execute("CREATE TABLE other (id integer)")
        for name in ("text", "other.sqlite3"):
            with pytest.raises(BackupError, match="is no database of ToolFlow"):
                restore_backup(tmp_path / name, now=NOW)
        with pytest.raises(BackupError, match="There is no file"):
            restore_backup(tmp_path / "none", now=NOW)
        assert read_notes(database) == ["first"]

    def test_a_copy_of_a_newer_toolflow_is_refused(self, database: Path, copy: Path) -> None:
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.execute("INSERT INTO django_migrations (app, name) VALUES ('runs', '9999_later')")
        with pytest.raises(BackupError, match=r"made by a newer ToolFlow: this one does not know runs\.9999_later"):
            restore_backup(copy, now=NOW)

    def test_a_damaged_copy_is_refused(self, database: Path, copy: Path) -> None:
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.executemany("INSERT INTO runs_run (note) VALUES (?)", [("x" * 3_000,)] * 50)
        content = bytearray(copy.read_bytes())
        middle = len(content) // 2 // 4096 * 4096
        content[middle : middle + 4096] = b"\xff" * 4096
        copy.write_bytes(content)
        with pytest.raises(BackupError, match=r"damaged|no database of ToolFlow"):
            restore_backup(copy, now=NOW)
        assert read_notes(database) == ["first", "later"]
