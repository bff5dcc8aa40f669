"""Copies of the embedded database: taken while others write, checked, and put back only when no process uses it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from runs import backup
from runs.backup import BackupError, restore_backup, write_backup
from runs.models import AuditEntry

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


def add_migrations(path: Path, *migrations: tuple[str, str]) -> None:
    """Say that these were applied, too."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO django_migrations (app, name) VALUES (?, ?)", migrations)


def use_database(monkeypatch: pytest.MonkeyPatch, kind: str, name: str) -> None:
    """Make it the database of the installation."""
    entry = {"ENGINE": f"django.db.backends.{kind}", "NAME": name}
    monkeypatch.setattr(backup, "settings", SimpleNamespace(DATABASES={"default": entry}))


def read_notes(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [note for (note,) in connection.execute("SELECT note FROM runs_run ORDER BY id")]


def read_folder(path: Path) -> dict[str, bytes]:
    """The database and what lies beside it."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.startswith("copy")}


def crash(path: Path, note: str) -> None:
    """Leave a database as a crash does: the last note is in its log only."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0")
        with connection:
            connection.execute("INSERT INTO runs_run (note) VALUES (?)", [note])
        left = {file: file.read_bytes() for file in path.parent.iterdir() if file.name.startswith(path.name)}
    for file, content in left.items():
        file.write_bytes(content)
    assert path.with_name(f"{path.name}-wal").stat().st_size


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
        monkeypatch.setattr(backup, "PAGES_PER_STEP", 10)
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
        with pytest.raises(BackupError, match="already exists"):
            write_backup(target)
        assert target.read_text() == "mine"
        assert write_backup(target, replaces=True).runs == 1

    def test_where_it_is_not_possible_there_is_a_sentence(
        self, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(CommandError, match="can’t be written: No such file or directory"):
            call_command("backup", str(tmp_path / "none" / "copy.sqlite3"))
        use_database(monkeypatch, "postgresql", "toolflow")
        with pytest.raises(CommandError, match="pg_dump"):
            call_command("backup", str(tmp_path / "copy"))


@pytest.fixture
def copy(database: Path, tmp_path: Path) -> Path:
    """A copy of the database, which has one more note since."""
    target = tmp_path / "copy.sqlite3"
    write_backup(target)
    add_note(database, "later")
    return target


class TestRestore:
    def test_the_copy_takes_the_place_of_the_database_which_is_kept(self, database: Path, copy: Path) -> None:
        _, kept, is_older = restore_backup(copy, now=NOW)
        assert read_notes(database) == ["first"] and copy.exists() and is_older
        with pytest.raises(BackupError, match="already exists"):
            restore_backup(copy, now=NOW)
        assert kept is not None and read_notes(kept) == ["first", "later"]

    @pytest.mark.parametrize("state", ["whole", "gone", "broken"])
    def test_nothing_happens_while_a_process_has_the_database_open(
        self, database: Path, copy: Path, state: str
    ) -> None:
        hold = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('DELETE FROM runs_run'); "
            "print(1, flush=True); input()"
        )
        command = [sys.executable, "-c", hold, str(database)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            if state == "gone":
                database.unlink()
            elif state == "broken":
                database.write_bytes(b"broken" + database.read_bytes()[6:])
            before = read_folder(database)
            with pytest.raises(BackupError, match="Stop the web server and all workers first"):
                restore_backup(copy, now=NOW)
            assert read_folder(database) == before
            process.communicate(b"\n", timeout=60)
        assert restore_backup(copy, now=NOW)[0].runs == 1 and read_notes(database) == ["first"]

    def test_what_is_no_database_of_toolflow_is_refused(self, database: Path, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("nothing of the kind, though it is long enough to be looked at" * 100)
        with closing(sqlite3.connect(tmp_path / "other.sqlite3")) as other:
            other.execute("CREATE TABLE other (id integer)")
        for name in ("text", "other.sqlite3"):
            with pytest.raises(BackupError, match="can’t be restored"):
                restore_backup(tmp_path / name, now=NOW)
        with pytest.raises(BackupError, match="No such file"):
            restore_backup(tmp_path / "none", now=NOW)
        assert read_notes(database) == ["first"]

    def test_a_copy_of_a_later_toolflow_is_refused_and_other_apps_keep_nothing_out(
        self, database: Path, copy: Path
    ) -> None:
        add_migrations(copy, ("gone", "0001_initial"), ("flows", "9999_later"))
        with pytest.raises(BackupError, match=r"another version of ToolFlow, .* flows\.9999_later"):
            restore_backup(copy, now=NOW)
        assert read_notes(database) == ["first", "later"]

    def test_a_damaged_copy_is_refused(self, database: Path, copy: Path) -> None:
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.executemany("INSERT INTO runs_run (note) VALUES (?)", [("x" * 3_000,)] * 50)
        content = bytearray(copy.read_bytes())
        middle = len(content) // 2 // 4096 * 4096
        content[middle : middle + 4096] = b"\xff" * 4096
        copy.write_bytes(content)
        with pytest.raises(BackupError, match=r"damaged|can’t be restored"):
            restore_backup(copy, now=NOW)
        assert read_notes(database) == ["first", "later"]


class TestRestoreAfterACrash:
    @pytest.mark.parametrize("state", ["whole", "gone", "broken"])
    def test_the_log_is_kept_and_changes_nothing_of_the_copy(self, database: Path, copy: Path, state: str) -> None:
        crash(database, "last")
        if state == "gone":
            database.unlink()
        elif state != "whole":
            database.write_bytes(b"broken" + database.read_bytes()[6:])
        before = read_folder(database)
        kept = restore_backup(copy, now=NOW)[1]
        assert read_notes(database) == ["first"]
        away = database.with_name(f"{database.name}.before-20241120T120000")
        assert kept == (None if state == "gone" else away)
        assert away.with_name(f"{away.name}-wal").read_bytes() == before["toolflow.sqlite3-wal"]
        if state == "whole":
            assert read_notes(away) == ["first", "later", "last"]

    def test_a_file_is_restored_with_what_only_its_log_holds(self, database: Path, copy: Path) -> None:
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        crash(copy, "last")
        assert restore_backup(copy, now=NOW)[0].runs == 2
        assert read_notes(database) == ["first", "last"]


class TestWhatFails:
    @pytest.mark.parametrize("state", ["whole", "crashed", "gone"])
    def test_all_is_where_it_was(self, database: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
        if state != "whole":
            crash(database, "last")
        if state == "gone":
            database.unlink()
        before = read_folder(database)

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(backup, "_put", refuse)
        with pytest.raises(CommandError, match="can’t be written: No space left on device"):
            call_command("restore", str(copy))
        assert read_folder(database) == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL has tools of its own")
def test_the_trail_tells_of_copies_and_of_what_was_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The test's own database: what was put back is read by whatever reads it otherwise.
    path = Path(connection.settings_dict["NAME"])
    use_database(monkeypatch, "sqlite3", str(path))
    call_command("backup", str(tmp_path / "copy.sqlite3"))
    made = AuditEntry.objects.get(action="backup_made")
    assert (made.actor_name, made.object_label) == ("", "copy.sqlite3")
    assert made.details == {"runs": 0, "attempts": 0, "bytes": (tmp_path / "copy.sqlite3").stat().st_size}
    call_command("restore", str(tmp_path / "copy.sqlite3"))
    (kept,) = path.parent.glob(f"{path.name}.before-*")
    kept.unlink()
    # The entry about the copy is younger than it.
    (entry,) = AuditEntry.objects.all()
    assert (entry.action, entry.object_label) == ("backup_restored", "copy.sqlite3")
    assert entry.details == {"runs": 0, "attempts": 0, "kept": kept.name}
    printed = capsys.readouterr()
    assert "tokens revoked, sessions ended" in printed.out and "migrate" not in printed.out and not printed.err
