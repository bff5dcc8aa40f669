"""``manage.py workers``, as people and health checks use it."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from runs.models.run import in_future
from tests.runs.builders import make_run, make_version, make_worker
from tests.site.test_settings import start_command

MINUTE = timedelta(minutes=1)


def show_workers(*arguments: str) -> tuple[str | int | None, list[str]]:
    """The exit status of the command and the lines that it wrote, with single spaces."""
    output = StringIO()
    status: str | int | None = 0
    try:
        call_command("workers", *arguments, stdout=output, stderr=StringIO())
    except SystemExit as end:
        status = end.code
    return status, [" ".join(line.split()) for line in output.getvalue().splitlines()]


@pytest.mark.django_db
def test_workers_queue_and_providers_are_shown_as_tables() -> None:
    make_worker(host="alpha", pid=7, slots=200, in_flight=12)
    make_worker(host="beta", pid=4711, slots=50, is_stopping=True)
    make_worker(host="gamma", pid=8, started_at=in_future(-90 * MINUTE), heartbeat_at=in_future(-3 * MINUTE))
    version = make_version()
    make_run(version, available_at=in_future(-10 * MINUTE))
    make_run(version, available_at=in_future(MINUTE))
    make_run(version, waiting_since=in_future(-MINUTE), waiting_for="Waits for a worker with the plug-in x.")
    status, lines = show_workers()
    assert status == 0
    assert lines[1].startswith("alpha 7 0.1.0 working 12 200 0 s")
    assert lines[2].startswith("beta 4711 0.1.0 stopping 0 50 ")
    assert lines[3:] == [
        "gamma 8 0.1.0 SILENT 0 200 1 h 3 min ago",
        "",
        "Queued: 1, the oldest for 10 min",
        "Scheduled: 1",
        "Blocked: 1",
        "",
        "PROVIDER HOST API STATE",
        "default simulated model auto ready",
    ]


@pytest.mark.django_db
def test_the_exit_status_is_1_while_runs_are_ready_and_no_worker_is_alive() -> None:
    assert show_workers()[0] == 0
    make_run(available_at=in_future(-MINUTE))
    make_worker(host="alpha", pid=7, in_flight=3, heartbeat_at=in_future(-MINUTE))
    status, lines = show_workers("--json")
    document = json.loads("".join(lines))
    assert (status, document["is_unattended"]) == (1, True)
    assert document["queue"].pop("oldest_ready") >= 60
    assert document["queue"] == {"ready": 1, "later": 0, "waiting": 0}
    (worker,) = document["workers"]
    assert worker.pop("silent_for") >= 60 and isinstance(worker.pop("running_for"), float)
    assert worker == {"host": "alpha", "pid": 7, "version": "0.1.0", "state": "silent", "slots": 200, "in_flight": 3}
    make_worker(pid=2)
    assert show_workers()[0] == 0


def test_a_database_that_was_not_set_up_gives_exit_status_2(tmp_path: Path) -> None:
    done = start_command("workers", "--json", data_dir=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
