"""(i) Open pages of runs under way: what they cost the web server while they wait for news."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure, print_table
from benchmarks.installation import creating_postgres_database
from benchmarks.processes import find_process_tree, read_cpu_times
from benchmarks.setting import Setting
from benchmarks.web_server import make_environment, serving_pages

PAGES = 50
SECONDS = 24
"""How long the pages are left alone."""
UPDATES = 100
MOST_SHARE = 5.0
"""Per cent of one core."""
SCRIPT = ROOT / "static" / "toolflow" / "js" / "live_updates.js"


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figures that have targets: the share of a core on each database."""
    figures, rows = [], []
    pause = _read_pause()
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
            command = [sys.executable, "-m", "benchmarks.live_pages"]
            made = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
            with serving_pages(environment, data / "log.txt") as port:
                pages = _Pages(port, json.loads(made.stdout))
                share, question = pages.wait(SECONDS, pause)
                update = pages.update(UPDATES)
            rows.append((database, f"{share:.1f} %", f"{question:.1f} ms", f"{update:.0f} ms"))
            name = f"{PAGES} open pages on {database}, one core"
            figures.append(Figure(name, share, "%", at_most=MOST_SHARE))
    header = ("", f"{PAGES} pages, each asking every {pause:g} s", "a question in vain", "an update")
    print_table("Open pages of runs under way: CPU time of the web server", header, rows)
    return figures


def _read_pause() -> float:
    """Seconds between two questions of a page on which nothing changes, as its script says."""
    found = re.search(r"\bSLOWEST = ([0-9_]+);", SCRIPT.read_text())
    if found is None:
        raise ContenderError(f"{SCRIPT.name} does not say how seldom a page asks.")
    return int(found[1]) / 1_000


class _Pages:
    """The questions that browsers ask. Each takes a connection of its own: the server closes those that lie idle."""

    def __init__(self, port: int, known: dict[str, Any]) -> None:
        self._port, self._known = port, known

    def wait(self, seconds: float, pause: float) -> tuple[float, float]:
        """Ask in vain for so long, at the pace of all pages; gives per cent of a core, and milliseconds a question."""
        for page in range(PAGES):
            self._ask(page, 204)
        before, began = _read_cpu(), time.perf_counter()
        count = int(seconds / pause * PAGES)
        for number in range(count):
            time.sleep(max(began + number * pause / PAGES - time.perf_counter(), 0))
            self._ask(number % PAGES, 204)
        time.sleep(max(began + count * pause / PAGES - time.perf_counter(), 0))
        used, lasted = _read_cpu() - before, time.perf_counter() - began
        return used / lasted * 100, used / count * 1_000

    def update(self, count: int) -> float:
        """Have each page brought up to date in turn; gives milliseconds an update."""
        before = _read_cpu()
        for number in range(count):
            self._ask(number % PAGES, 200, revision=0)
        return (_read_cpu() - before) / count * 1_000

    def _ask(self, page: int, expected: int, revision: int | None = None) -> None:
        run = self._known["runs"][page]
        known = run["revision"] if revision is None else revision
        headers = {
            "Cookie": f"sessionid={self._known['session']}; toolflow_time_zone=Europe/Berlin",
            "HX-Request": "true",
        }
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", f"/runs/{run['id']}/live?revision={known}&seen={run['seen']}", headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status != expected:
            raise ContenderError(f"A page that asked for news was answered {answer.status}, not {expected}.")


def _read_cpu() -> float:
    """Seconds of CPU that the server has used: it is the one process that this one has."""
    return read_cpu_times(pid for pid in find_process_tree(os.getpid()) if pid != os.getpid()).total


def main() -> None:
    """Set up an installation with runs under way, as the environment says; prints what pages of them ask."""
    import django

    django.setup()
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command
    from django.db.models import F
    from django.test import Client
    from django.utils import timezone

    from runs.models import Attempt, Run, RunStatus

    call_command("migrate", verbosity=0, interactive=False)
    call_command("seed_history", runs=4 * PAGES, stdout=sys.stderr)
    runs = Run.objects.filter(attempt_count__gte=2).order_by("-pk")[:PAGES]
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(
        status=RunStatus.RUNNING, ended_at=None, lease_until=timezone.now(), revision=F("attempt_count") + 1
    )
    # Superusers are asked for no permissions.
    user = User.objects.create_user("ada")
    user.groups.add(Group.objects.get(name="Viewer"))
    client = Client()
    client.force_login(user)
    asked = []
    for run in runs:
        last = Attempt.objects.filter(step__run=run).order_by("step__index", "number").select_related("step").last()
        assert last is not None
        asked.append({"id": run.pk, "revision": run.attempt_count + 1, "seen": f"{last.step.index}.{last.number}"})
    json.dump({"session": client.cookies["sessionid"].value, "runs": asked}, sys.stdout)


if __name__ == "__main__":
    main()
