"""(i) Open pages of runs under way: what they cost the web server, while nothing changes and while all runs go on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import aiohttp

from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure, print_table
from benchmarks.installation import creating_postgres_database
from benchmarks.load_clients import find_poller, read_pace
from benchmarks.processes import find_process_tree, read_cpu_times
from benchmarks.setting import Setting
from benchmarks.web_server import make_environment, serving_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runs.models import Attempt

PAGES = 50
QUIET_FOR, CHANGING_FOR = 24, 40
"""Seconds that the pages are measured for while nothing changes, and while all runs go on."""
BETWEEN_CHANGES = 10.0
"""Seconds from one attempt of a run to the next."""
UPDATES = 100
MOST_SHARE = 5.0
"""Per cent of one core."""


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figures that have targets: the share of a core on each database."""
    figures, rows = [], []
    pace = read_pace()
    with ExitStack() as stack:
        databases = [("SQLite", "")]
        if setting.postgres is not None:
            databases.append(
                ("PostgreSQL", stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_live")))
            )
        for database, url in databases:
            data = setting.folder / f"live-{database}"
            data.mkdir()
            environment = make_environment(data, DATABASE_URL=url)
            known = json.loads(_run("set-up", environment).stdout)
            with serving_pages(environment, data / "log.txt") as port, _going_on(environment) as changes:
                quiet, question, update, changing, counts = asyncio.run(_ask(port, known, changes))
            vain = f"{counts[204] / CHANGING_FOR:.0f} in vain and {counts[200] / CHANGING_FOR:.0f} updates"
            rows.append(
                (database, f"{quiet:.1f} %", f"{changing:.1f} %, {vain}", f"{question:.2f} ms", f"{update:.1f} ms")
            )
            for share, what in ((quiet, "of runs that change seldom"), (changing, "of runs that change all the time")):
                name = f"{PAGES} open pages {what} on {database}, one core"
                figures.append(Figure(name, share, "%", at_most=MOST_SHARE))
    header = (
        "",
        f"{PAGES} pages, each asking every {pace.slowest:g} s",
        f"an attempt of each every {BETWEEN_CHANGES:g} s, questions a second",
        "a question in vain",
        "an update",
    )
    print_table("Open pages of runs under way: CPU time of the web server", header, rows)
    return figures


async def _ask(port: int, known: dict[str, Any], changes: IO[str]) -> tuple[float, float, float, float, Counter[int]]:
    headers = {"Cookie": f"sessionid={known['session']}; toolflow_time_zone=Europe/Berlin", "HX-Request": "true"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector, headers=headers) as session:
        pages = _Pages(session, known["runs"])
        await pages.open()
        quiet, question = await pages.wait(QUIET_FOR)
        update = await pages.update(UPDATES)
        changing, counts = await pages.follow(changes, CHANGING_FOR)
    return quiet, question, update, changing, counts


class _Pages:
    """Open pages, which ask what and when browsers do."""

    def __init__(self, session: aiohttp.ClientSession, runs: list[int]) -> None:
        self._session, self._runs, self._pace = session, runs, read_pace()
        self._addresses: dict[int, str] = {}
        self._counts: Counter[int] = Counter()

    async def open(self) -> None:
        """Load the pages."""
        for run in self._runs:
            self._take_over(run, await self._get(f"/runs/{run}/", 200))

    async def wait(self, seconds: float) -> tuple[float, float]:
        """Ask in vain for so long, as seldom as pages do; gives per cent of a core, and milliseconds a question."""
        pause = self._pace.slowest
        for run in self._runs:
            await self._get(self._addresses[run], 204)
        before, began = _read_cpu(), time.perf_counter()
        count = int(seconds / pause * PAGES)
        for number in range(count + 1):
            await asyncio.sleep(max(began + number * pause / PAGES - time.perf_counter(), 0))
            if number < count:
                await self._get(self._addresses[self._runs[number % PAGES]], 204)
        used, lasted = _read_cpu() - before, time.perf_counter() - began
        return used / lasted * 100, used / count * 1_000

    async def update(self, count: int) -> float:
        """Have the pages brought up to date in turn; gives milliseconds an update."""
        before = _read_cpu()
        for number in range(count):
            address = self._addresses[self._runs[number % PAGES]]
            await self._get(re.sub(r"revision=\d+", "revision=0", address), 200)
        return (_read_cpu() - before) / count * 1_000

    async def follow(self, changes: IO[str], seconds: float) -> tuple[float, Counter[int]]:
        """Ask while all runs go on; gives per cent of a core, and how many were answered what."""
        tasks = [asyncio.create_task(self._follow(run)) for run in self._runs]
        tasks.append(asyncio.create_task(self._change(changes)))
        # By then each page has seen a change, and asks accordingly.
        await asyncio.sleep(2 * BETWEEN_CHANGES)
        self._counts.clear()
        before, began = _read_cpu(), time.perf_counter()
        await asyncio.sleep(seconds)
        share = (_read_cpu() - before) / (time.perf_counter() - began) * 100
        counts = self._counts.copy()
        for task in tasks:
            if task.done():
                await task
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return share, counts

    async def _follow(self, run: int) -> None:
        changed = asked = time.perf_counter()
        while True:
            pause = self._pace.choose_pause(asked - changed, 0)
            await asyncio.sleep(max(asked + pause - time.perf_counter(), 0))
            asked = time.perf_counter()
            if answer := await self._get(self._addresses[run], 200, 204):
                self._take_over(run, answer)
                changed = time.perf_counter()

    async def _change(self, changes: IO[str]) -> None:
        began, number = time.perf_counter(), 0
        while True:
            await asyncio.sleep(max(began + number * BETWEEN_CHANGES / PAGES - time.perf_counter(), 0))
            changes.write(f"{self._runs[number % PAGES]}\n")
            changes.flush()
            number += 1

    def _take_over(self, run: int, answer: bytes) -> None:
        address = find_poller(answer)
        if address is None:
            raise ContenderError(f"The page of run {run}, which is under way, does not ask for news.")
        self._addresses[run] = address

    async def _get(self, address: str, *expected: int) -> bytes:
        async with self._session.get(address) as answer:
            body = await answer.read()
            if answer.status not in expected:
                raise ContenderError(f"A page that asked for news was answered {answer.status}, not {expected[0]}.")
            self._counts[answer.status] += 1
            return body


def _read_cpu() -> float:
    """Seconds of CPU that the server has used."""
    tree = find_process_tree(os.getpid())
    return read_cpu_times(pid for pid in tree if pid != os.getpid() and not _is_ours(pid)).total


def _is_ours(pid: int) -> bool:
    return b"benchmarks.live_pages" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _run(what: str, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "benchmarks.live_pages", what]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)


@contextmanager
def _going_on(environment: dict[str, str]) -> Iterator[IO[str]]:
    """A process that lets runs go on, as a worker would; it is told their numbers, one a line."""
    command = [sys.executable, "-m", "benchmarks.live_pages", "go-on"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        yield process.stdin
    finally:
        process.stdin.close()
        if process.wait(timeout=30) != 0:
            raise ContenderError("The runs did not go on.")


def main() -> None:
    """``set-up`` makes runs under way and prints them; ``go-on`` ends an attempt of each run that it is told of."""
    import django

    django.setup()
    if sys.argv[1:] == ["go-on"]:
        for line in sys.stdin:
            _go_on(int(line))
        return
    json.dump(_set_up(), sys.stdout)


def _set_up() -> dict[str, Any]:
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command
    from django.db.models import F
    from django.test import Client
    from django.utils import timezone

    from runs.models import Run, RunStatus

    call_command("migrate", verbosity=0, interactive=False)
    call_command("seed_history", runs=4 * PAGES, stdout=sys.stderr)
    runs = list(Run.objects.filter(attempt_count__gte=2).order_by("-pk")[:PAGES].values_list("pk", flat=True))
    Run.objects.filter(pk__in=runs).update(
        status=RunStatus.RUNNING, ended_at=None, lease_until=timezone.now(), revision=F("attempt_count") + 1
    )
    for run in runs:
        _go_on(run)
    # Superusers are asked for no permissions.
    user = User.objects.create_user("ada")
    user.groups.add(Group.objects.get(name="Viewer"))
    client = Client()
    client.force_login(user)
    return {"session": client.cookies["sessionid"].value, "runs": runs}


def _go_on(run_id: int) -> None:
    """End the attempt under way as an earlier one with issues ended, and begin the next: one transaction."""
    from django.db import transaction
    from django.db.models import F
    from django.utils import timezone

    from runs.models import Attempt, AttemptRequest, Run

    attempts = Attempt.objects.filter(step__run=run_id)
    with transaction.atomic():
        last = attempts.order_by("step__index", "number").last()
        assert last is not None
        if not last.outcome:
            _end(last, attempts.exclude(outcome="").order_by("-issues", "pk")[0])
        now = timezone.now()
        begun = Attempt.objects.create(step_id=last.step_id, number=last.number + 1, input=last.input, started_at=now)
        if last.request is not None:
            AttemptRequest.objects.create(attempt=begun, body=last.request)
        Run.objects.filter(pk=run_id).update(revision=F("revision") + 1, attempt_count=F("attempt_count") + 1)


def _end(attempt: Attempt, like: Attempt) -> None:
    from django.utils import timezone

    attempt.outcome, attempt.output, attempt.model = like.outcome, like.output, like.model
    attempt.ended_at = timezone.now()
    attempt.save()
    for row in (*like.issues.all(), like.usage):
        row.pk, row.attempt = None, attempt
        row._state.adding = True
        row.save(force_insert=True)


if __name__ == "__main__":
    main()
