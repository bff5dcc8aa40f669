"""The commands ``run_worker`` and ``up``: what they print, what they refuse, and that no process stays behind."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.faults.conftest import Build
from tests.faults.flows import THREE_STEPS
from tests.faults.host import Host, Process, find_descendants
from tests.faults.services import Backend
from tests.runs.gateway import Gateway
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux only")


def wait_for_line(host: Host, text: str) -> None:
    wait_until(lambda: text in host.read_log(), within=60, what=f"it says “{text}”", explain=host.read_log)


def refuse(build: Build, backend: Backend, **environment: str) -> str:
    """What a worker prints that refuses to start."""
    host = build(backend, **environment).start_host()
    assert host.wait_for_end() == 1
    return host.read_log()


class TestStops:
    def test_an_idle_worker_prints_little_and_stops(self, build: Build, sqlite: Backend) -> None:
        installation = build(sqlite)
        host = installation.start_host()
        installation.submit(THREE_STEPS)
        installation.wait_for_all()
        assert host.stop() == 0
        assert host.read_log().splitlines() == [
            "Worker started.",
            "Worker stops: calls in flight have 150 s to end. A second signal interrupts them.",
            "Worker stopped.",
        ]

    def start_up(self, host: Host) -> list[Process]:
        """Start web server and worker; gives the processes below."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        host.start("up", "--port", str(port))
        wait_for_line(host, "ToolFlow is at")

        def list_all() -> list[Process]:
            found = find_descendants(host.main.pid)
            return found if [one.name for one in found].count("toolflow-worker") == 2 else []

        return wait_until(list_all, within=60, what="all processes are there")

    def test_up_that_is_killed_leaves_no_process_behind(self, build: Build, sqlite: Backend) -> None:
        host = build(sqlite).add_host()
        below = self.start_up(host)
        host.main.send(signal.SIGKILL)
        wait_until(lambda: not any(one.is_alive for one in below), within=60, what="all processes are gone")

    def test_a_second_ctrl_c_has_up_wait_for_no_call(self, build: Build, sqlite: Backend) -> None:
        installation = build(sqlite, latency=60.0)
        host = installation.add_host()
        below = self.start_up(host)
        installation.submit(THREE_STEPS)
        installation.wait_for_calls(1)
        host.main.send(signal.SIGINT)
        wait_for_line(host, "again to force")
        host.main.send(signal.SIGINT)
        assert host.wait_for_end() == 0
        assert not any(one.is_alive for one in below)
        assert installation.count_runs() == {"queued": 1}


class TestStarts:
    def test_a_database_without_tables_is_refused_with_what_to_do(self, build: Build, folder: Path) -> None:
        said = refuse(build, Backend(f"sqlite:///{folder / 'empty.sqlite3'}"))
        assert said == "CommandError: The database is not up to date. Run `manage.py migrate` first.\n"

    def test_a_missing_key_is_refused_before_any_run_is_claimed(self, build: Build, sqlite: Backend) -> None:
        installation = build(sqlite)
        installation.submit(THREE_STEPS)
        said = refuse(build, sqlite, OPENAI_API_KEY="", OPENAI_BASE_URL="https://api.openai.com/v1")
        assert said.startswith("CommandError: No API key is set. Set OPENAI_API_KEY ")
        assert installation.count_runs() == {"queued": 1}

    @pytest.mark.nightly
    def test_a_database_server_that_is_away_is_waited_for_until_a_stop(self, build: Build) -> None:
        with Gateway() as nowhere:
            host = build(Backend(f"postgres://user@127.0.0.1:{nowhere.port}/toolflow")).start_host()
            wait_for_line(host, "The database can't be reached")
            assert host.stop() == 0
            assert host.read_log().count("can't be reached") == 1

    def test_a_database_server_that_comes_back_is_asked_again(self, build: Build, postgres_url: str) -> None:
        parts = urlsplit(postgres_url)
        with Gateway(postgres_url) as gateway:
            # The database that every server has, and that has no tables of ours.
            address = parts._replace(
                netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{gateway.port}", path="/postgres"
            )
            host = build(Backend(address.geturl())).start_host()
            wait_for_line(host, "The database can't be reached")
            gateway.open()
            assert host.wait_for_end() == 1
        assert "The database answers again" in host.read_log()
        assert "CommandError: The database is not up to date." in host.read_log()
