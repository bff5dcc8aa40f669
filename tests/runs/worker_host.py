"""A host with a worker, as an operator runs it: real processes, in a folder and with a database of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from flows.examples import load_sample_input
from tests.waiting import wait_until
from tests.warm_python import Process, run_python, start_python

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds that something may take before a test gives up on it."""
FLOW = "colour-theme"

LOAD_EXAMPLES = "from flows.examples import load_examples; load_examples()"


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that is dead and not yet collected by its parent does not."""
    try:
        return _read_stat(pid)[1] not in "ZX"
    except OSError:
        return False


def find_descendants(pid: int) -> dict[int, str]:
    """All processes below ``pid`` that live, with the names that ``ps`` shows."""
    found: dict[int, str] = {}
    to_do = [pid]
    while to_do:
        for child in _list_children(to_do.pop()):
            with contextlib.suppress(OSError):
                name, state = _read_stat(child)
                if state not in "ZX":
                    found[child] = name
                    to_do.append(child)
    return found


def _list_children(pid: int) -> list[int]:
    """The processes that the threads of a process have started."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def _read_stat(pid: int) -> tuple[str, str]:
    """Name and state of a process."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.partition("(")[2].rpartition(")")[0], text.rpartition(")")[2].split()[0]


class WorkerHost:
    """``environment`` is added to a clean one. ``output`` holds what the worker's processes say, whichever says it."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._environment = environment
        self._log = folder / "worker.log"
        self.main: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.main is not None:
            left = [self.main.pid, *find_descendants(self.main.pid)]
            for pid in left:
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            # Whoever lost its parent is still in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.main.pid, signal.SIGKILL)
            self.main.wait(PATIENCE)

    def load_examples(self) -> None:
        """Make the example flows, in a database that has its tables."""
        done = self.manage("shell", "--no-imports", "-c", LOAD_EXAMPLES)
        assert done.returncode == 0, done.stderr

    def manage(self, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command and wait for its end."""
        environment = self._build_environment()
        return run_python(
            "manage.py", *arguments, cwd=ROOT, environment=environment, input=input or "", timeout=PATIENCE
        )

    def launch(self, *command: str) -> None:
        """Start a command, by default the worker, as the leader of a process group, and return at once."""
        with self._log.open("ab") as log:
            self.main = start_python(
                "manage.py",
                *(command or ["run_worker"]),
                cwd=ROOT,
                environment=self._build_environment(),
                output=log,
            )

    def start(self) -> None:
        """Start the worker and wait until all its processes are there."""
        self.launch()
        self.wait_until(lambda: len(self.workers) == 2 and self.find("toolflow-pusher"), "the worker had started")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Return once ``condition`` holds. Fails after a minute and says ``what`` did not come about."""
        wait_until(condition, within=PATIENCE, what=what, explain=lambda: self.output)

    def wait(self) -> int:
        """Wait for the end of the main process; gives its exit status."""
        assert self.main is not None
        return self.main.wait(PATIENCE)

    @property
    def output(self) -> str:
        return self._log.read_text()

    def find(self, name: str) -> list[int]:
        """The ids of the processes of that name."""
        assert self.main is not None
        return [pid for pid, found in find_descendants(self.main.pid).items() if found == name]

    @property
    def guard(self) -> int:
        return self.find("toolflow-guard")[0]

    @property
    def workers(self) -> list[int]:
        return self.find("toolflow-worker")

    def submit(self) -> int:
        """Submit a run of an example flow; gives its id."""
        text = json.dumps(load_sample_input(FLOW))
        done = self.manage("run_flow", FLOW, "--input", "-", input=text)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(done.stdout.partition("#")[2].partition(" ")[0])

    def ask(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """The rows that a query gives."""
        connection = sqlite3.connect(self.folder / "toolflow.sqlite3", timeout=PATIENCE)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def status_of(self, run: int) -> object:
        return self.ask("SELECT status FROM runs_run WHERE id = ?", run)[0][0]

    def count_calls_stored(self) -> object:
        """Attempts whose outcome is stored, without those of step 0."""
        query = (
            "SELECT count(*) FROM runs_attempt a JOIN runs_step s ON s.id = a.step_id "
            "WHERE s.\"index\" > 0 AND a.outcome NOT IN ('', 'interrupted')"
        )
        return self.ask(query)[0][0]

    def wait_for_success(self, run: int) -> None:
        self.wait_until(lambda: self.status_of(run) == "succeeded", f"run {run} has succeeded")

    def _build_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLOW_", "OPENAI_"))}
        kept.pop("DATABASE_URL", None)
        return {
            **kept,
            "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
            "TOOLFLOW_DATA_DIR": str(self.folder),
            "TOOLFLOW_ENV_FILE": os.devnull,
            **self._environment,
        }
