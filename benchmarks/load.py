"""(k) A busy hour in production mode: readers, a script and runs under way, for minutes, on an installation of its own.

``manage.py serve`` and ``manage.py run_worker`` run as they do in production, with nothing set that isn't needed; a
model on loopback takes seconds for each call.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure, print_table, say
from benchmarks.installation import borrowing_redis_database, creating_postgres_database
from benchmarks.load_clients import API, METRICS, PAGES, Clients
from benchmarks.load_ledger import find_quantile
from benchmarks.model_server import serving_model
from benchmarks.processes import find_process_tree, find_processes, read_cpu_times, read_memory
from benchmarks.setting import Load, Setting
from benchmarks.web_server import make_environment
from benchmarks.work import CALLS

SLOWEST = 300
"""Milliseconds within which 95 of 100 requests are to be answered."""
MOST_GROWTH = 10
"""Per cent by which memory may grow in the second half."""
LEAST_IN_FLIGHT = 0.95
"""Of the runs that are to be under way, the share that really are, at the median look."""
HISTORY = 1_000
"""Runs that are there before."""
START_PATIENCE, STOP_PATIENCE = 60, 240
"""Seconds."""
MOST_WARM_UP = 30.0
"""Seconds in which runs and readers come, at most."""

Processes = Mapping[str, Callable[[], list[int]]]
"""By what they do, how the numbers of the processes are found."""


def measure(setting: Setting) -> list[Figure]:
    """Measure, print three tables, and give the figures that have targets."""
    load = setting.load
    data = setting.folder / "load"
    data.mkdir()
    with ExitStack() as stack:
        base_url = stack.enter_context(serving_model((load.call_seconds * 0.5, load.call_seconds * 1.5)))
        environment = make_load_environment(setting, data, stack, base_url)
        known = _set_up(environment, load)
        port = _find_port()
        serve = ("serve", "--port", str(port), "--processes", str(load.web_processes))
        web = stack.enter_context(_running(serve, environment, data / "web.log"))
        worker = stack.enter_context(_running(("run_worker",), environment, data / "worker.log"))
        _await_port(port, web, data / "web.log")
        processes: dict[str, Callable[[], list[int]]] = {
            "website": lambda: find_process_tree(web.pid),
            "worker": lambda: find_process_tree(worker.pid),
            "PostgreSQL": lambda: find_processes("postgres:") if load.database else [],
            "Redis": lambda: find_processes("redis-server") if environment["TOOLFLOW_REDIS_URL"] else [],
            "model": lambda: find_processes("benchmarks.model_server", find_process_tree(os.getpid())),
            "clients": lambda: [os.getpid()],
        }
        clients = Clients(port, known, load, metrics_token=environment["TOOLFLOW_METRICS_TOKEN"])
        observed = asyncio.run(_observe(clients, processes, load))
        complaints = _count_complaints(data)
    return _report(clients, observed, complaints, load)


def make_load_environment(setting: Setting, data: Path, stack: ExitStack, base_url: str) -> dict[str, str]:
    """What website and worker are told; databases that they need last as long as ``stack``."""
    database = setting.load.database
    redis = setting.redis if database else None
    return make_environment(
        data,
        TOOLFLOW_ENV="production",
        TOOLFLOW_SECRET_KEY=secrets.token_urlsafe(48),
        TOOLFLOW_ALLOWED_HOSTS="127.0.0.1",
        TOOLFLOW_HTTPS="false",
        TOOLFLOW_METRICS_TOKEN=secrets.token_urlsafe(32),
        TOOLFLOW_RUNS_IN_FLIGHT=str(setting.load.in_flight),
        OPENAI_API_KEY="none",
        OPENAI_BASE_URL=base_url,
        DATABASE_URL=stack.enter_context(creating_postgres_database(database, "toolflow_load")) if database else "",
        TOOLFLOW_REDIS_URL=stack.enter_context(borrowing_redis_database(redis)) if redis else "",
    )


def _set_up(environment: Mapping[str, str], load: Load) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.load", str(load.users)]
    made = subprocess.run(command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, check=True)
    known: dict[str, Any] = json.loads(made.stdout)
    return known


@contextmanager
def _running(command: tuple[str, ...], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command of ``manage.py`` at work; it is stopped in order."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *command], cwd=ROOT, env=dict(environment), stdout=output, stderr=output
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise ContenderError(f"The website did not start: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.05)


class _Observed:
    """What was read of processes, and when."""

    def __init__(self) -> None:
        self.memory: list[dict[str, int]] = []
        """Bytes at the start, the half and the end."""
        self.cpu: list[dict[str, float]] = []
        self.at: list[float] = []
        self.ended: list[dict[str, int]] = []

    def look(self, processes: Processes, ended: Mapping[str, int]) -> None:
        """Read everything now."""
        found = {name: find() for name, find in processes.items()}
        self.memory.append({name: sum(map(read_memory, pids)) for name, pids in found.items()})
        self.cpu.append({name: read_cpu_times(pids).total for name, pids in found.items()})
        self.at.append(time.perf_counter())
        self.ended.append(dict(ended))

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.at[-1] - self.at[0]

    def find_share(self, name: str) -> float:
        """Per cent of one core that these processes used."""
        return (self.cpu[-1][name] - self.cpu[0][name]) / self.seconds * 100


async def _observe(clients: Clients, processes: Processes, load: Load) -> _Observed:
    observed = _Observed()
    try:
        await clients.begin(min(CALLS * load.call_seconds, MOST_WARM_UP))
        observed.look(processes, clients.ended)
        for _half in range(2):
            await asyncio.sleep(load.minutes * 30)
            observed.look(processes, clients.ended)
    finally:
        await clients.end()
    return observed


def _count_complaints(data: Path) -> Counter[str]:
    """Lines of the logs that tell of a problem, without what differs in them."""
    found: Counter[str] = Counter()
    for log in (data / "web.log", data / "worker.log"):
        for line in log.read_text(errors="replace").splitlines():
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if isinstance(document, dict) and document.get("level") in {"warning", "error", "critical"}:
                code = f" ({document['code']})" if "code" in document else ""
                found[f"{log.stem}: {document['level']}: {document['message'][:200]}{code}"] += 1
    return found


def _report(clients: Clients, observed: _Observed, complaints: Counter[str], load: Load) -> list[Figure]:
    ledger = clients.ledger
    rows = [ledger.describe(kind, [kind]) for kind in PAGES]
    rows.append(ledger.describe("all pages", PAGES))
    rows += [ledger.describe(f"API, {kind}", [kind]) for kind in API]
    rows += [ledger.describe("all of the API", API), ledger.describe(METRICS, [METRICS])]
    where = "PostgreSQL" if load.database else "SQLite"
    title = (
        f"{load.users} readers, {load.requests_per_second:g} requests a second to the API and {load.in_flight} runs "
        f"under way, for {observed.seconds / 60:.1f} minutes on {where}"
    )
    print_table(title, ("request", "count", "status", "p50 ms", "p95 ms", "p99 ms", "longest ms"), rows)
    _print_processes(observed)

    before, after = observed.ended[0], observed.ended[-1]
    ended = {status: count - before.get(status, 0) for status, count in after.items()}
    looks = clients.in_flight
    median = find_quantile(looks, 0.5)
    say(f"Runs under way: {min(looks, default=0)} to {max(looks, default=0)}, median {median:.0f}, {len(looks)} looks.")
    say(f"Runs ended: {', '.join(f'{count:,} {status}' for status, count in ended.items() if count) or 'none'}.")
    for sentence, count in (ledger.errors + complaints).most_common(20):
        say(f"  {count} × {sentence}")
    figures = [
        Figure("wrong answers", sum(ledger.errors.values()), "", at_most=0),
        Figure("lines of logs that tell of a problem", complaints.total(), "", at_most=0),
        Figure("runs that did not succeed", sum(ended.values()) - ended.get("succeeded", 0), "", at_most=0),
        Figure("runs under way, median", median, "", at_least=load.in_flight * LEAST_IN_FLIGHT),
    ]
    # Most questions are those of pages where nothing changed: all together they would hide what the others took.
    for prefix, kinds in (("", PAGES), ("API, ", API)):
        figures += [
            Figure(f"{prefix}{kind}, 95th percentile", ledger.find_time([kind], 0.95), "ms", at_most=SLOWEST)
            for kind in kinds
        ]
    for name in ("website", "worker"):
        _, half, end = (memory[name] for memory in observed.memory)
        figures.append(Figure(f"memory of the {name}, second half", (end / half - 1) * 100, "%", at_most=MOST_GROWTH))
    return figures


def _print_processes(observed: _Observed) -> None:
    rows = [
        (name, f"{observed.find_share(name):.0f} %", *(f"{memory[name] / 2**20:.0f}" for memory in observed.memory))
        for name in observed.memory[0]
        if observed.memory[0][name]
    ]
    print_table("Processes", ("", "of a core", "MiB at the start", "at half", "at the end"), rows)


def main() -> None:
    """Set up an installation with that many readers, as the environment says; prints what clients need to know."""
    import django

    django.setup()
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command
    from django.test import Client

    from benchmarks.work import FLOW
    from flows.examples import load_examples, load_sample_input
    from runs.models import Run, TokenScope
    from runs.tokens import make_token

    call_command("collectstatic", verbosity=0, interactive=False)
    call_command("migrate", verbosity=0, interactive=False)
    call_command("seed_history", runs=HISTORY, stdout=sys.stderr)
    load_examples()
    sessions = []
    for number in range(int(sys.argv[1])):
        # Superusers are asked for no permissions.
        user = User.objects.create_user(f"reader-{number}")
        user.groups.add(Group.objects.get(name="Viewer"))
        client = Client()
        client.force_login(user)
        sessions.append(client.cookies["sessionid"].value)
    script = User.objects.create_user("script")
    script.groups.add(Group.objects.get(name="Operator"))
    _, token = make_token(user=script, name="Load", scope=TokenScope.RUN, lifetime=None)
    known = {
        "sessions": sessions,
        "token": token,
        "order": {"flow": FLOW, "input": load_sample_input(FLOW)},
        "runs": list(Run.objects.order_by("-pk").values_list("pk", flat=True)[:20]),
    }
    json.dump(known, sys.stdout)


if __name__ == "__main__":
    main()
