"""Servers of our own, for tests that take them away: a PostgreSQL cluster, a Redis server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from tests.waiting import wait_until

TIMEOUT = 30.0
"""Seconds that a server may take to start or stop."""


def find_free_port() -> int:
    """A port of loopback that no process listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_postgres_programs() -> Path | None:
    """The folder of the newest installed PostgreSQL server's programs; None if there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    if folders:
        return folders[-1]
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class PrivatePostgres:
    """A PostgreSQL cluster in a folder of its own."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self._output = folder.with_name(f"{folder.name}.log")
        self._port = find_free_port()
        if os.geteuid() == 0:
            # The server refuses to run as root.
            shutil.chown(folder, "postgres", "postgres")
        self._run("initdb", "--auth=trust", "--username=toolflow", "--encoding=UTF8", "--no-sync", str(self._data))

    @property
    def url(self) -> str:
        """As ``DATABASE_URL`` takes it, with a database that always exists."""
        return f"postgres://toolflow@127.0.0.1:{self._port}/postgres"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "''",
            "max_connections": 60,
            # The machine itself does not crash.
            "fsync": "off",
        }
        options = " ".join([f"-p {self._port}", *(f"-c {name}={value}" for name, value in settings.items())])
        self._run("pg_ctl", "start", "-D", str(self._data), "-w", "-l", str(self._folder / "log"), "-o", options)
        psycopg.connect(self.url, connect_timeout=5).close()

    def ensure_running(self) -> None:
        """Start the server if it does not run: a test that failed may have left it so."""
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            self.start()

    def stop(self, *, mode: str = "fast") -> None:
        """Stop the server: ``fast`` breaks all connections off, ``immediate`` is as good as a crash."""
        self._run("pg_ctl", "stop", "-D", str(self._data), "-w", "-m", mode)

    def _run(self, program: str, *arguments: str) -> None:
        user: Sequence[str] = ("runuser", "-u", "postgres", "--") if os.geteuid() == 0 else ()
        # A file and no pipe: the server inherits it, and no process would read the pipe to its end.
        with self._output.open("ab") as output:
            done = subprocess.run(
                [*user, str(self._programs / program), *arguments],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            )
        assert done.returncode == 0, self._output.read_text(errors="replace")


class PrivateRedis:
    """A Redis server in memory alone: what it holds is gone when it stops."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = find_free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As ``TOOLFLOW_REDIS_URL`` takes it."""
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = ["redis-server", "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        wait_until(self._answers, within=TIMEOUT, what="Redis answers")

    def stop(self) -> None:
        """Kill the server. Doing so twice is harmless."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=TIMEOUT)
            self._process = None

    def _answers(self) -> bool:
        try:
            with redis.from_url(self.url, socket_connect_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@dataclass(frozen=True)
class Backend:
    """Where an installation keeps its rows and its messages; without Redis the database holds both."""

    database_url: str
    redis_url: str = ""

    @property
    def is_sqlite(self) -> bool:
        return self.database_url.startswith("sqlite")


def copy_sqlite(template: Path, folder: Path) -> Backend:
    """A new database in ``folder``."""
    path = folder / "toolflow.sqlite3"
    shutil.copyfile(template, path)
    return Backend(f"sqlite:///{path}")


def choose_redis_database(server_url: str) -> str:
    """A database of that Redis server for this process of the tests alone, emptied. The last eight are taken."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    number = 8 + int(worker.removeprefix("gw")) % 8
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{number}"))
    with redis.from_url(url) as client:
        client.flushdb()
    return url
