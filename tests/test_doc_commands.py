"""The commands of README and the guides work as they stand, one after the other, on an installation of a test."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as site
from django.contrib.auth.models import User
from django.db import connection

from benchmarks.__main__ import _build_parser
from flows.examples import load_examples, load_sample_input
from flows.flow_file import parse_flow
from flows.models import Flow
from flows.portability import load_flow
from runs import backup
from runs.management.commands import run_flow
from runs.models import Run, RunStatus
from runs.rollup import count_ended_runs
from runs.submission import submit_run
from tests.doc_shell import Shell
from tests.runs.builders import make_worker
from tests.runs.executing import drain
from tests.site.test_settings import start_command
from tests.test_docs import ROOT, find_blocks

LONG_AGO = datetime(2024, 11, 20, 12, tzinfo=UTC)

pytestmark = pytest.mark.django_db(transaction=True)


def read_code(page: str, *infos: str) -> str:
    """The code of a page’s blocks that are run here."""
    blocks = [(language, info) for language in ("sh", "bash") for info in infos or ("",)]
    found = [code for language, wanted in blocks for info, code in find_blocks(page, language) if info == wanted]
    assert found, f"{page} has no such block"
    return "".join(found)


def keep_umask(code: str) -> str:
    """Code that fails unless what is written after it can be read by others as before: a page goes on in its shell."""
    return f"umask 022\n{code}\ntest $(umask) = 0022"


def read_session(page: str) -> tuple[str, str]:
    """The command of a page’s only console block, and what it prints there."""
    ((_, text),) = find_blocks(page, "console")
    command, _, printed = text.partition("\n")
    return command.removeprefix("$ "), printed


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in an installation with the example flows and an administrator."""
    User.objects.create_superuser("ada")
    load_examples()
    return Shell(tmp_path, make=f'exec {shutil.which("make")} --dry-run --directory {ROOT} "$@"')


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows a run looks again when a worker has been at it."""
    clock = SimpleNamespace(sleep=lambda _seconds: drain(), monotonic=lambda: 0.0)
    monkeypatch.setattr(run_flow, "time", clock)


@pytest.fixture
def old_run(shell: Shell) -> Run:
    """A run of an example flow that ended long ago."""
    run = submit_run(flow=Flow.objects.get(name="colour-theme"), input=load_sample_input("colour-theme"))
    drain()
    Run.objects.update(created_at=LONG_AGO, started_at=LONG_AGO, ended_at=LONG_AGO + timedelta(minutes=1))
    count_ended_runs()
    run.refresh_from_db()
    return run


def test_the_readme_runs_a_flow_from_the_terminal(shell: Shell, worker: None) -> None:
    printed = shell.run(read_code("README.md"))
    assert "Succeeded: All steps passed." in printed and '"Draft the answer"' in printed
    assert Run.objects.get().status == RunStatus.SUCCEEDED


@pytest.mark.nightly
def test_running_follows_a_run(shell: Shell, worker: None) -> None:
    (shell.folder / "ticket.json").write_text(
        re.search(r"<<'EOF'\n(.*?)^EOF$", read_code("README.md"), re.MULTILINE | re.DOTALL)[1]  # type: ignore[index]
    )
    assert "Succeeded: All steps passed." in shell.run(read_code("docs/running.md"))


@pytest.mark.parametrize("guide", ["CONTRIBUTING.md", "docs/performance.md"])
def test_make_can_make_what_the_page_asks_for(shell: Shell, guide: str) -> None:
    planned = shell.run(read_code(guide))
    for arguments in re.findall(r"-m benchmarks *(.*)$", planned, re.MULTILINE):
        _build_parser().parse_args(arguments.split())
    assert planned


@pytest.mark.nightly
def test_flow_files_come_out_and_go_in_again(shell: Shell) -> None:
    ((_, example),) = find_blocks("docs/flow-files.md", "yaml")
    for note in ("", "A sentence more."):
        spec = parse_flow(example)
        load_flow(document={**spec.to_document(), "description": spec.description + note})
    flow = Flow.objects.get(name="letter-answers")
    printed = shell.run(read_code("docs/flow-files.md"))
    written = parse_flow((shell.folder / "letter-answers.yaml").read_text(encoding="utf-8"))
    assert written.digest == flow.versions.get(number=1).digest
    assert f"name: {flow.name}\n" in printed and "unchanged, version" in printed
    assert sorted(path.stem for path in shell.folder.glob("company-flows/*.yaml")) == sorted(
        Flow.objects.values_list("name", flat=True)
    )
    assert ["migrate"] in shell.commands


@pytest.mark.nightly
def test_a_plug_in_is_begun(shell: Shell, settings: Any) -> None:
    settings.BASE_DIR = shell.folder
    shell.run(read_code("docs/plugins.md"))
    assert (shell.folder / "acme_invoices.py").exists()


@pytest.mark.nightly
def test_history_is_purged(shell: Shell, old_run: Run) -> None:
    purging, looking = re.split(r"(?=python manage\.py storage\n)", read_code("docs/retention.md"))
    assert old_run.flow.name in shell.run(looking)
    shell.run(purging)
    assert not Run.objects.exists()


@pytest.mark.nightly
def test_statistics_and_search_are_made_anew(shell: Shell, old_run: Run) -> None:
    command, shown = read_session("docs/statistics.md")
    printed = shell.run(command)
    form = re.sub(r"\d[\d,]*", "N", shown.splitlines()[0])
    assert form == re.sub(r"\d+", "N", printed.splitlines()[0]).replace("N run counted", "N runs counted")
    shell.run(read_code("docs/run-history.md"))
    assert ["rebuild_search"] in shell.commands


@pytest.mark.nightly
def test_the_workers_are_shown_as_the_page_shows_them(shell: Shell) -> None:
    make_worker(host="flows-1", pid=48213)
    command, shown = read_session("docs/scaling.md")
    printed = shell.run(command).splitlines()
    assert printed[0].split() == shown.splitlines()[0].split()
    labels, expected = ([line.partition(":")[0] for line in lines[-6:-2]] for lines in (printed, shown.splitlines()))
    assert labels == expected
    assert printed[-2].split() == shown.splitlines()[-2].split()


@pytest.mark.nightly
@pytest.mark.parametrize("guide", ["docs/audit-trail.md", "docs/permissions.md", "docs/webhooks.md"])
def test_commands_of_administrators_work(shell: Shell, guide: str) -> None:
    shell.run(read_code(guide))
    assert shell.commands


@pytest.mark.nightly
def test_a_copy_of_the_embedded_database_is_made_and_put_back(
    shell: Shell, old_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("The embedded database is SQLite.")
    # The test's own database stays out of it.
    database = shell.folder / "var/toolflow.sqlite3"
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as own, closing(sqlite3.connect(database)) as copy:
        own.backup(copy)
    entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(database)}
    monkeypatch.setattr(backup, "settings", SimpleNamespace(DATABASES={"default": entry}))
    (shell.folder / "srv/backups").mkdir(parents=True)
    printed = shell.run(read_code("docs/backup.md").replace("/srv/", f"{shell.folder}/srv/"))
    assert "1 runs with" in printed and "Restored: 1 runs" in printed
    assert [path.suffixes[-1][:8] for path in sorted((shell.folder / "var").iterdir())] == [".sqlite3", ".before-"]


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="There is no pg_dump here.")
def test_a_dump_of_postgresql_holds_what_the_database_held(tmp_path: Path, postgres_url: str) -> None:
    def ask(database: str, statement: str) -> str:
        url = f"{postgres_url.rpartition('/')[0]}/{database}"
        command = ["psql", "--no-psqlrc", "-qAtc", statement, url]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout.strip()

    names = [f"doc_{uuid4().hex}" for _ in range(2)]
    home = postgres_url.rpartition("/")[2]
    try:
        for name in names:
            ask(home, f"CREATE DATABASE {name}")
        ask(names[0], "CREATE TABLE runs_run (note text)")
        ask(names[0], "INSERT INTO runs_run VALUES ('first')")
        shell = Shell(tmp_path)
        for name, tag in zip(names, ("postgres dump", "postgres restore"), strict=True):
            shell.run(
                keep_umask(read_code("docs/backup.md", tag)), DATABASE_URL=f"{postgres_url.rpartition('/')[0]}/{name}"
            )
        assert ask(names[1], "SELECT note FROM runs_run") == "first"
        assert stat.S_IMODE((tmp_path / "toolflow.dump").stat().st_mode) == 0o600
    finally:
        for name in names:
            ask(home, f"DROP DATABASE IF EXISTS {name}")


NOTED = 'echo "$(basename "$0") $*" >> "$CALLS"'
"""What stands for programs that change a machine: they say what they were asked for."""
ROOT_PROGRAMS = {
    **dict.fromkeys(
        ("apt-get", "curl", "git", "journalctl", "nginx", "openssl", "redis-cli", "runuser", "systemctl", "useradd"),
        NOTED,
    ),
    # A folder may belong to a user that this machine does not have.
    "install": NOTED + '; case "$*" in *"-o toolflow"*) ;; *) exec /usr/bin/install "$@" ;; esac',
    "python3": '[ "$1" != -m ] && exec python "$@"; ' + NOTED,
    "systemd-run": NOTED + '; while [ "$1" != manage.py ]; do shift; done; shift; exec manage.py "$@"',
}


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str], Shell]:
    """Runs a page’s blocks for root on what looks like a machine: the folders of the page lie below ``tmp_path``.

    ``manage.py`` reads its arguments and does nothing; what would change the machine only notes what it was asked for.
    """
    places = (
        "etc/cron.daily",
        "etc/systemd/system",
        "etc/nginx/conf.d",
        "usr/local/sbin",
        "opt/toolflow/.venv/bin",
        "srv/backups",
        "etc/ssl",
    )
    for place in places:
        (tmp_path / place).mkdir(parents=True)
    for name in ("deploy", "flows", "manage.py", "requirements", "runs", "toolflow_site"):
        (tmp_path / "opt/toolflow" / name).symlink_to(ROOT / name)
    shell = Shell(tmp_path, only_reads=True, **ROOT_PROGRAMS)
    (tmp_path / "opt/toolflow/.venv/bin/python").symlink_to(tmp_path / "bin/python")
    (tmp_path / "srv/backups/toolflow-2026-03-02.dump").touch()

    def run(page: str) -> Shell:
        code = read_code(page, "as root").replace("/usr/bin/python3", "python3")
        code = re.sub(r"(?<![\w.:/])/(etc|opt|srv|usr/local)/", rf"{tmp_path}/\1/", code)
        shell.run(keep_umask(f"PATH={tmp_path}/usr/local/sbin:$PATH\ntouch base.txt scale.txt\n{code}"))
        return shell

    return run


def test_the_steps_of_the_deploy_page_follow_from_each_other(machine: Callable[[str], Shell], tmp_path: Path) -> None:
    shell = machine("docs/deploy.md")
    environment = tmp_path / "etc/toolflow/env"
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600
    values = dict(line.split("=", 1) for line in environment.read_text(encoding="utf-8").splitlines())
    done = start_command("check", "--deploy", data_dir=tmp_path / "data", **values)
    # Nothing is wrong with it but what the page says.
    assert re.findall(r"\((\w+\.\w+)\)", done.stderr) == ["toolflow.E001"]
    assert {path.name for path in (tmp_path / "etc/systemd/system").iterdir()} == {
        path.name for path in (Path(site.BASE_DIR) / "deploy/systemd").iterdir()
    }
    assert (tmp_path / "etc/nginx/conf.d/toolflow.conf").exists() and (
        tmp_path / "etc/nginx/toolflow-proxy.conf"
    ).exists()
    done_by_admin = [command[0] for command in shell.commands]
    assert done_by_admin[:3] == ["check", "migrate", "createsuperuser"] and done_by_admin[-1] == "migrate"
    assert "systemctl enable --now toolflow-web toolflow-worker toolflow-nightly.timer" in shell.calls


@pytest.mark.nightly
def test_a_service_is_backed_up_and_put_back(machine: Callable[[str], Shell], tmp_path: Path) -> None:
    shell = machine("docs/deploy.md")
    before = len(shell.commands)
    old = tmp_path / "srv/backups/toolflow-2024-11-20.dump"
    old.touch()
    os.utime(old, (LONG_AGO.timestamp(),) * 2)
    machine("docs/backup.md")
    assert [command[0] for command in shell.commands[before:]] == ["restore", "migrate", "migrate", "serve"]
    (dump,) = [path for path in (tmp_path / "srv/backups").iterdir() if "2026-03-02" not in path.name]
    assert dump.suffix == ".dump" and stat.S_IMODE(dump.stat().st_mode) == 0o600


@pytest.mark.nightly
def test_a_copy_is_tried_with_settings_of_its_own(machine: Callable[[str], Shell], tmp_path: Path) -> None:
    machine("docs/deploy.md")
    shell = machine("docs/backup.md")
    started = [call for call in shell.calls if call.startswith("systemd-run ")][-4:]
    # Putting a copy back, before that, is about the installation itself.
    assert [f"EnvironmentFile={tmp_path}/etc/toolflow/try " in call for call in started] == [False, False, True, True]
    assert not (tmp_path / "etc/toolflow/try").exists()
    page = read_code("docs/backup.md", "as root")
    written = re.search(r"toolflow/try <<'END'\n(.*?)^END$", page, re.MULTILINE | re.DOTALL)
    assert written is not None
    lines = [*(tmp_path / "etc/toolflow/env").read_text(encoding="utf-8").splitlines(), *written[1].splitlines()]
    values = dict(line.split("=", 1) for line in lines)
    done = start_command("check", data_dir=tmp_path / "data", **values)
    assert (done.returncode, done.stderr) == (0, "")
