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


def show_workers(*arguments: str) -> tuple[str | int | None, str, str]:
    """The exit status of the command and what it wrote to standard output and standard error."""
    output, complaints = StringIO(), StringIO()
    status: str | int | None = 0
    try:
        call_command("workers", *arguments, stdout=output, stderr=complaints)
    except SystemExit as end:
        status = end.code
    return status, output.getvalue(), complaints.getvalue()


@pytest.mark.django_db
class TestWorkers:
    def test_each_worker_has_a_row_and_a_silent_one_stands_out(self) -> None:
        make_worker(host="alpha", pid=7, slots=200, in_flight=12)
        make_worker(host="beta", pid=4711, slots=50, is_stopping=True)
        make_worker(host="gamma", pid=8, started_at=in_future(-90 * MINUTE), heartbeat_at=in_future(-3 * MINUTE))
        status, shown, complaints = show_workers()
        rows = [" ".join(line.split()) for line in shown.splitlines()]
        assert rows[0] == "HOST PROCESS VERSION STATE IN FLIGHT SLOTS RUNNING FOR LAST HEARD OF"
        assert rows[1].startswith("alpha 7 0.1.0 working 12 200 0 s")
        assert rows[2].startswith("beta 4711 0.1.0 stopping 0 50 ")
        assert rows[3] == "gamma 8 0.1.0 SILENT 0 200 1 h 3 min ago"
        assert (status, complaints) == (0, "")

    def test_the_queue_is_told_by_what_runs_wait_for(self) -> None:
        version = make_version()
        make_run(version, available_at=in_future(-10 * MINUTE))
        make_run(version, available_at=in_future(MINUTE))
        make_run(version, waiting_since=in_future(-MINUTE), waiting_for="Waits for a worker with the plug-in x.")
        make_worker()
        _, shown, _ = show_workers()
        assert [" ".join(line.split()) for line in shown.splitlines()][-6:] == [
            "Ready: 1, the oldest for 10 min",
            "Waiting for later: 1",
            "Waiting for something: 1",
            "",
            "PROVIDER HOST API STATE",
            "default simulated model auto ready",
        ]

    def test_the_exit_status_is_1_while_runs_are_ready_and_no_worker_is_alive(self) -> None:
        assert show_workers()[0] == 0
        make_run(available_at=in_future(-MINUTE))
        status, shown, complaints = show_workers()
        assert status == 1
        assert "No worker is at work." in shown
        assert complaints == "Runs wait and no worker is alive. Start one with: manage.py run_worker\n"
        make_worker(pid=1, heartbeat_at=in_future(-MINUTE))
        assert show_workers()[0] == 1
        make_worker(pid=2)
        assert show_workers()[0] == 0

    def test_scripts_read_json(self) -> None:
        make_run(available_at=in_future(-MINUTE))
        make_worker(host="alpha", pid=7, in_flight=3, heartbeat_at=in_future(-MINUTE))
        status, shown, complaints = show_workers("--json")
        document = json.loads(shown)
        assert (status, complaints) == (1, "")
        assert document["is_unattended"] is True
        assert {name: document["queue"][name] for name in ("ready", "later", "waiting")} == {
            "ready": 1,
            "later": 0,
            "waiting": 0,
        }
        assert document["queue"]["oldest_ready"] >= 60
        (worker,) = document["workers"]
        assert worker.pop("silent_for") >= 60
        assert "running_for" in worker
        del worker["running_for"]
        assert worker == {
            "host": "alpha",
            "pid": 7,
            "version": "0.1.0",
            "state": "silent",
            "slots": 200,
            "in_flight": 3,
        }


def test_a_database_that_was_not_set_up_gets_a_sentence_and_exit_status_2(tmp_path: Path) -> None:
    done = start_command("workers", "--json", data_dir=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("CommandError: The database can't be read: no such table: runs_worker.")
    assert "Traceback" not in done.stderr
