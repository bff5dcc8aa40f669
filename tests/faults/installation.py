"""A whole installation under test: a database, a broker, a provider, any number of hosts, and an observer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from flows.engine.spec import FlowSpec
from tests.engine.model_server import ModelServer
from tests.faults.flows import THREE_STEPS
from tests.faults.host import ROOT, Host, Process
from tests.faults.invariants import ENDED, Death, StoredRun, Verdict, judge
from tests.faults.provider import CountingModel
from tests.faults.services import Backend
from tests.processes import start_python
from tests.waiting import wait_until

LEASE = 180
"""Seconds of a worker's lease, where a test sets no other one."""
TIMEOUT = 120.0
"""Seconds within which all runs have to end, on a busy machine: less than the lease of a worker."""


class ObserverError(Exception):
    """The observer could not do what it was asked for; the database may be away."""


class Observer:
    """Asks a process that has the installation's settings (``tests.faults.observer``)."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        commands, self._commands = open_pipe()
        self._answers, answers = open_pipe()
        with log.open("ab") as errors, commands, answers:
            self._process = start_python(
                *("-m", "tests.faults.observer"),
                cwd=ROOT,
                environment=environment,
                input=commands,
                output=answers,
                errors=errors,
            )

    def ask(self, command: str, **arguments: Any) -> Any:
        """What the command gives. Raises ``ObserverError``."""
        with suppress(BrokenPipeError):
            self._commands.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
        line = self._answers.readline()
        answer = json.loads(line) if line else {"error": "The observer is gone."}
        if "error" in answer:
            raise ObserverError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        """End the process. Doing so twice is harmless."""
        self._process.kill()
        self._process.wait()
        self._commands.close()
        self._answers.close()


def open_pipe() -> tuple[BinaryIO, BinaryIO]:
    """What is read from, and what is written to."""
    reading, writing = os.pipe()
    return open(reading, "rb"), open(writing, "wb", buffering=0)  # noqa: PTH123  # descriptors have no path


class Installation:
    """Hosts, database and provider of one test. Close it: it ends every process that it started."""

    def __init__(
        self, *, folder: Path, backend: Backend, provider: CountingModel, environment: Mapping[str, str]
    ) -> None:
        """``environment`` is added to what the hosts see."""
        self.folder = folder
        self.provider = provider
        self.hosts: dict[str, Host] = {}
        self.deaths: list[Death] = []
        self._server = ModelServer()
        self._server.app = self.provider
        self._server.start()
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ},
            "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
            "PYTHONUNBUFFERED": "1",
            "TOOLFLOW_ENV_FILE": os.devnull,
            "TOOLFLOW_SECRET_KEY": "faults-" * 8,
            "TOOLFLOW_DATA_DIR": str(folder / "web"),
            "DATABASE_URL": backend.database_url,
            "TOOLFLOW_REDIS_URL": backend.redis_url,
            "OPENAI_BASE_URL": self._server.base_url,
            "OPENAI_API_KEY": "right-key",
            "TOOLFLOW_RUNS_IN_FLIGHT": "10",
            "TOOLFLOW_LEASE": str(LEASE),
            **environment,
        }
        self.observer = Observer(self.environment, folder / "observer.log")

    def close(self) -> None:
        """End all processes. Doing so twice is harmless."""
        for host in self.hosts.values():
            host.kill()
        self.observer.close()
        self._server.stop()

    def add_host(self, name: str = "host-a", **options: Any) -> Host:
        """A host that is not started yet, with a folder of its own; ``options`` are those of ``Host``."""
        host = Host(
            name,
            environment={**self.environment, "TOOLFLOW_DATA_DIR": str(self.folder / name)},
            folder=self.folder,
            list_drains=self._list_drains,
            **options,
        )
        self.hosts[name] = host
        return host

    def start_host(self, name: str = "host-a", **options: Any) -> Host:
        """A host whose worker is starting."""
        host = self.add_host(name, **options)
        host.start()
        return host

    def start_work(self, runs: int, *, after: int = 15, name: str = "host-a", **options: Any) -> Host:
        """A host with this number of runs of three steps before it, once ``after`` calls have reached the provider."""
        self.submit(THREE_STEPS, runs)
        host = self.start_host(name, **options)
        self.wait_for_calls(after)
        return host

    def publish(self, spec: FlowSpec) -> str:
        """Make a flow, which runs as ``spec`` says; gives its name."""
        return str(self.observer.ask("publish", document=spec.to_document()))

    def submit(self, flow: FlowSpec | str, count: int = 1, *, input: Any = None, **options: Any) -> list[int]:
        """Start this number of runs of a flow, which is published first if a spec is given; gives their numbers.

        ``options`` are those of ``submit_run``.
        """
        name = flow if isinstance(flow, str) else self.publish(flow)
        inputs = [{"topic": f"tea {number}", **(input or {})} for number in range(count)]
        return list(self.observer.ask("submit", flow=name, inputs=inputs, options=options))

    @contextmanager
    def death(self, victim: str) -> Iterator[None]:
        """Something dies within this block, with the calls that it has in flight."""
        earliest = datetime.now(UTC)
        yield
        self.deaths.append(Death(victim, earliest, datetime.now(UTC)))

    def kill(self, victim: str, processes: Iterable[Process]) -> None:
        """Kill processes, with the calls that they have in flight."""
        processes = list(processes)
        with self.death(victim):
            self.kill_bystanders(victim, processes)
            wait_until(lambda: not any(one.is_alive for one in processes), within=TIMEOUT, what=f"the {victim} dies")

    def kill_bystanders(self, victim: str, processes: Iterable[Process]) -> None:
        """Kill processes and remember no death: for those without calls in flight, and within ``death``."""
        processes = list(processes)
        assert processes, f"There is no {victim} to kill."
        for process in processes:
            process.send(signal.SIGKILL)

    def count_runs(self) -> dict[str, int]:
        """How many runs there are of each status; none at all while the database is away."""
        try:
            return dict(self.observer.ask("count"))
        except ObserverError:
            return {}

    def have_all_ended(self) -> bool:
        """Whether no run is left to be executed; False while the database is away."""
        counts = self.count_runs()
        return bool(counts) and counts.keys() <= ENDED

    def wait_for_calls(self, count: int, *, within: float = TIMEOUT) -> None:
        """Wait until the provider got this number of calls in all, and has some of them in hand."""
        wait_until(
            lambda: len(self.provider.calls) >= count and self.provider.in_flight,
            within=within,
            what=f"{count} calls reach the provider",
        )

    def wait_for_all(self, *, within: float = TIMEOUT) -> None:
        """Wait until every run has ended."""
        wait_until(self.have_all_ended, within=within, what="all runs end", explain=self.count_runs)

    def stop_hosts(self) -> None:
        """Tell all workers to stop that run, and see that they end as they should."""
        # A signal to a foreign one reaches only what holds it apart.
        running = [host for host in self.hosts.values() if host.exit_status is None and not host.is_foreign]
        statuses = {host.name: host.stop() for host in running}
        assert not any(statuses.values()), statuses

    def read_runs(self) -> list[StoredRun]:
        """All that is stored."""
        return [StoredRun.model_validate(row) for row in self.observer.ask("read_runs")]

    def judge(self) -> Verdict:
        """Hold all that is stored against what must hold."""
        return judge(self.read_runs(), list(self.provider.calls), self.deaths)

    def check_end(self, ends: Mapping[str, int], *, repeated: int | None = None, calls: int | None = None) -> Verdict:
        """Wait until every run has ended, check that nothing was lost, stored twice or wrong, and stop all hosts.

        ``ends`` says how many runs end with each status; ``repeated`` how many calls are made again, and ``calls`` how
        many are made in all.
        """
        self.wait_for_all()
        self.stop_hosts()
        verdict = self.judge()
        assert not verdict.problems, verdict.problems
        assert dict(verdict.runs) == dict(ends), verdict.runs
        assert repeated is None or verdict.repeated == repeated, f"{verdict.repeated} calls were repeated."
        assert calls is None or len(self.provider.calls) == calls, f"{len(self.provider.calls)} calls were made."
        return verdict

    def read_logs(self) -> str:
        """What hosts and observer wrote last, to find out what went wrong."""
        observer = (self.folder / "observer.log").read_text(errors="replace")[-2_000:]
        parts = [(host.name, host.read_log()) for host in self.hosts.values()]
        return "\n".join(f"--- {name}\n{text}" for name, text in [*parts, ("observer", observer)])

    def _list_drains(self) -> set[int]:
        try:
            return set(self.observer.ask("list_drains"))
        except ObserverError:
            return set()
