"""The worker's processes: any of them may be killed, and all stop in order when they are told to."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from flows.engine.simulated_model import SimulatedModel
from flows.examples.scripts import example_script
from tests.databases import make_once, share_sqlite_template
from tests.engine.model_server import ModelServer
from tests.runs.gateway import Gateway
from tests.runs.worker_host import PATIENCE, WorkerHost, find_descendants, is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux only")

HostMaker = Callable[..., WorkerHost]


@pytest.fixture(scope="module")
def prepared_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables and the example flows."""

    def prepare(folder: Path) -> Path:
        database = folder / "toolflow.sqlite3"
        shutil.copy(share_sqlite_template(tmp_path_factory), database)
        WorkerHost(folder).load_examples()
        return database

    return make_once("example-flows.sqlite3", prepare, tmp_path_factory)


@pytest.fixture
def make_host(tmp_path: Path, prepared_database: Path, model_server: ModelServer) -> Iterator[HostMaker]:
    """Makes hosts whose provider is the simulated model over TCP, scripted like the examples."""
    model_server.app = SimulatedModel(script=example_script())
    provider = {"OPENAI_BASE_URL": model_server.base_url, "OPENAI_API_KEY": "right-key"}
    hosts: list[WorkerHost] = []

    def make(**environment: str) -> WorkerHost:
        folder = tmp_path / f"host-{len(hosts)}"
        folder.mkdir()
        shutil.copy(prepared_database, folder / "toolflow.sqlite3")
        hosts.append(WorkerHost(folder, **{**provider, **environment}).__enter__())
        return hosts[-1]

    yield make
    for host in hosts:
        host.__exit__(None, None, None)


class HeldModel(SimulatedModel):
    """Answers no call before ``release``, so that a test can act while one is under way."""

    def __init__(self) -> None:
        super().__init__(script=example_script(), latency=1.0, sleep=self._wait)
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    async def _wait(self, seconds: float) -> None:
        await asyncio.to_thread(self._released.wait, PATIENCE)


@pytest.fixture
def held_model(make_host: HostMaker, model_server: ModelServer) -> Iterator[HeldModel]:
    """Stands in for the provider of the hosts of a test."""
    model_server.app = model = HeldModel()
    yield model
    model.release()


class TestKills:
    def test_an_idle_worker_process_may_be_killed_again_and_again(self, make_host: HostMaker) -> None:
        host = make_host()
        host.start()
        for _ in range(3):
            victim = host.workers[-1]
            os.kill(victim, signal.SIGKILL)
            host.wait_until(
                lambda gone=victim: len(host.workers) == 2 and gone not in host.workers, "another took its place"
            )
        host.wait_for_success(host.submit())
        assert host.output.count("was killed (signal 9); another takes its place.") == 3

    def test_a_killed_pusher_is_replaced_and_runs_still_end(self, make_host: HostMaker) -> None:
        host = make_host()
        host.start()
        (victim,) = host.find("toolflow-pusher")
        os.kill(victim, signal.SIGKILL)
        host.wait_for_success(host.submit())
        assert host.find("toolflow-pusher") != [victim]

    def test_a_worker_process_killed_in_mid_call_leaves_its_run_to_another_at_once(
        self, make_host: HostMaker, held_model: HeldModel
    ) -> None:
        host = make_host()
        host.start()
        run = host.submit()
        host.wait_until(lambda: held_model.call_count == 1, "a call was under way")
        for worker in host.workers:
            os.kill(worker, signal.SIGKILL)
        held_model.release()
        host.wait_for_success(run)
        # The call that was under way is made again, and nothing else is.
        assert held_model.call_count == int(str(host.count_calls_stored())) + 1

    def test_killing_the_main_process_leaves_no_process_behind(
        self, make_host: HostMaker, held_model: HeldModel
    ) -> None:
        host = make_host()
        host.start()
        host.submit()
        host.wait_until(lambda: held_model.call_count == 1, "a call was under way")
        assert host.main is not None
        below = find_descendants(host.main.pid)
        assert len(below) == 4
        host.main.kill()
        host.wait_until(lambda: not any(map(is_alive, below)), "all processes were gone")

    def test_killing_the_guard_ends_the_worker_with_a_sentence_and_leaves_nothing_behind(
        self, make_host: HostMaker
    ) -> None:
        host = make_host()
        host.start()
        assert host.main is not None
        below = find_descendants(host.main.pid)
        os.kill(host.guard, signal.SIGKILL)
        assert host.wait() == 1
        assert not any(map(is_alive, below))
        assert "The queue's guard process was killed (signal 9)" in host.output
        assert "Traceback" not in host.output


class TestStops:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_to_the_whole_group_lets_the_call_end_and_no_call_is_made_twice(
        self, make_host: HostMaker, held_model: HeldModel, number: signal.Signals
    ) -> None:
        host = make_host()
        host.start()
        run = host.submit()
        host.wait_until(lambda: held_model.call_count == 1, "the first call was under way")
        assert host.main is not None
        below = find_descendants(host.main.pid)
        os.killpg(host.main.pid, number)
        host.wait_until(lambda: "Worker stops" in host.output, "the worker says that it stops")
        held_model.release()
        assert host.wait() == 0
        assert not any(map(is_alive, below))
        assert "Worker stopped." in host.output and "Traceback" not in host.output
        assert (host.status_of(run), host.count_calls_stored(), held_model.call_count) == ("queued", 1, 1)

        host.start()
        host.wait_for_success(run)
        assert host.count_calls_stored() == held_model.call_count

    def test_a_second_signal_does_not_wait_for_the_calls(self, make_host: HostMaker, held_model: HeldModel) -> None:
        host = make_host()
        host.start()
        run = host.submit()
        host.wait_until(lambda: held_model.call_count == 1, "a call was under way")
        assert host.main is not None
        below = find_descendants(host.main.pid)
        host.main.send_signal(signal.SIGTERM)
        host.wait_until(lambda: "Worker stops" in host.output, "the worker said that it stops")
        host.main.send_signal(signal.SIGTERM)
        assert host.wait() == 0
        assert not any(map(is_alive, below))
        assert host.status_of(run) == "queued"

    def test_an_idle_worker_says_little_and_stops(self, make_host: HostMaker) -> None:
        host = make_host()
        host.start()
        host.wait_for_success(host.submit())
        assert host.main is not None
        host.main.terminate()
        assert host.wait() == 0
        assert host.output.splitlines() == [
            "Worker started.",
            "Worker stops: calls in flight have 150 s to end. A second signal interrupts them.",
            "Worker stopped.",
        ]

    def start_up(self, host: WorkerHost) -> dict[int, str]:
        """Start web server and worker; gives the processes below."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        host.launch("up", "--port", str(port))
        host.wait_until(lambda: "ToolFlow is at" in host.output and len(host.workers) == 2, "all processes are there")
        assert host.main is not None
        return find_descendants(host.main.pid)

    def test_up_that_is_killed_leaves_no_process_behind(self, make_host: HostMaker) -> None:
        host = make_host()
        below = self.start_up(host)
        assert host.main is not None
        host.main.kill()
        host.wait_until(lambda: not any(map(is_alive, below)), "all processes are gone")

    def test_a_second_ctrl_c_has_up_wait_for_no_call(self, make_host: HostMaker, held_model: HeldModel) -> None:
        host = make_host()
        below = self.start_up(host)
        run = host.submit()
        host.wait_until(lambda: held_model.call_count == 1, "a call was under way")
        assert host.main is not None
        host.main.send_signal(signal.SIGINT)
        host.wait_until(lambda: "once more for at once" in host.output, "it says that it stops")
        host.main.send_signal(signal.SIGINT)
        assert host.wait() == 0
        assert not any(map(is_alive, below))
        assert host.status_of(run) == "queued"


class TestStarts:
    def test_a_database_without_tables_is_refused_with_what_to_do(self, tmp_path: Path) -> None:
        done = WorkerHost(tmp_path).manage("run_worker")
        assert done.returncode == 1
        assert done.stderr == "CommandError: The database is not up to date. Run `manage.py migrate` first.\n"

    def test_a_database_file_that_cant_be_read_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "toolflow.sqlite3").write_text("no database, but long enough to be taken for the head of one" * 50)
        done = WorkerHost(tmp_path).manage("run_worker")
        assert done.returncode == 1
        assert done.stderr.startswith("CommandError: The database can't be used: file is not a database.")

    def test_a_missing_key_is_told_before_any_run_is_taken(self, make_host: HostMaker) -> None:
        host = make_host()
        run = host.submit()
        keyless = WorkerHost(host.folder, OPENAI_API_KEY="", OPENAI_BASE_URL="https://api.openai.com/v1")
        done = keyless.manage("run_worker")
        assert done.returncode == 1
        assert done.stderr.startswith("CommandError: There is no API key. Set OPENAI_API_KEY ")
        assert host.status_of(run) == "queued"

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"user": "stranger:wrong"}, "stranger"),
            ({"path": "/no_such_database"}, 'database "no_such_database" does not exist'),
        ],
    )
    def test_a_database_server_that_does_not_let_us_in_is_not_waited_for(
        self, tmp_path: Path, postgres_url: str, changes: dict[str, str], reason: str
    ) -> None:
        parts = urlsplit(postgres_url)
        user, _, host = parts.netloc.rpartition("@")
        address = parts._replace(
            netloc=f"{changes.get('user', user)}@{host}", path=changes.get("path", parts.path)
        ).geturl()
        done = WorkerHost(tmp_path, DATABASE_URL=address).manage("run_worker")
        assert done.returncode == 1
        assert done.stderr.startswith("CommandError: The database can't be used: ")
        assert reason in done.stderr and done.stderr.endswith(" Check DATABASE_URL.\n")
        assert done.stderr.count("\n") == 1

    def test_a_database_server_that_is_away_is_waited_for_until_a_stop(self, tmp_path: Path) -> None:
        with (
            Gateway() as nowhere,
            WorkerHost(tmp_path, DATABASE_URL=f"postgres://somebody@127.0.0.1:{nowhere.port}/toolflow") as host,
        ):
            host.launch()
            host.wait_until(lambda: "The database can't be reached" in host.output, "it says that it waits")
            assert host.main is not None
            host.main.terminate()
            assert host.wait() == 0
            assert host.output.count("can't be reached") == 1

    def test_a_database_server_that_comes_back_is_looked_at_anew(self, tmp_path: Path, postgres_url: str) -> None:
        parts = urlsplit(postgres_url)
        with Gateway(postgres_url) as gateway:
            # The database that every server has and nobody keeps tables in.
            address = parts._replace(
                netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{gateway.port}", path="/postgres"
            )
            with WorkerHost(tmp_path, DATABASE_URL=address.geturl()) as host:
                host.launch()
                host.wait_until(lambda: "The database can't be reached" in host.output, "it says that it waits")
                gateway.open()
                assert host.wait() == 1
                assert "The database answers again" in host.output
                assert "CommandError: The database is not up to date." in host.output


class TestRedis:
    def test_runs_are_done_while_redis_is_away_and_the_queue_goes_on_when_it_is_back(
        self, make_host: HostMaker, redis_url: str
    ) -> None:
        with Gateway(redis_url) as gateway:
            host = make_host(TOOLFLOW_REDIS_URL=f"redis://127.0.0.1:{gateway.port}/11")
            host.start()
            host.wait_until(lambda: "Redis can't be reached; trying again" in host.output, "it says that it waits")
            host.wait_for_success(host.submit())
            gateway.open()
            host.wait_until(lambda: "Redis answers again" in host.output, "it says that it goes on")
            host.wait_for_success(host.submit())
            gateway.close()
            host.wait_until(
                lambda: host.output.count("Redis can't be reached; trying again") == 2, "it is missed again"
            )
            host.wait_for_success(host.submit())
            assert host.main is not None
            host.main.terminate()
            assert host.wait() == 0
            assert "Traceback" not in host.output
