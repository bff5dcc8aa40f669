"""``manage.py up``: everything that a first look needs, in one terminal."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from functools import partial
from typing import Any, TextIO

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import Tags, run_checks
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from flows.engine.errors import SpecError
from flows.examples import load_examples
from flows.providers import build_providers
from runs.management.commands.serve import build_server_command, refuse_taken_port
from runs.queue import draining, force_quit
from runs.queue_processes.process_tree import EXIT_TIMEOUT, FORCED_STOP_TIMEOUT, REPEATED_SIGNAL_INTERVAL, StopSignals
from runs.queue_processes.supervisor import die_with_parent

STOP_MARGIN = FORCED_STOP_TIMEOUT + EXIT_TIMEOUT + 10
"""Seconds that a process has to stop beyond TOOLFLOW_STOP_SECONDS."""


class Command(BaseCommand):
    help = "Set up the database, an admin user and the example flows; then run web server and worker until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="Port to listen on (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        with lock_data_folder() as lock:
            self._run(options["host"], options["port"], lock)

    def _run(self, host: str, port: int, lock: TextIO) -> None:
        refuse_taken_port(host, port)
        call_command("check", verbosity=0)
        call_command("migrate", verbosity=0, interactive=False)
        # With the database: are there flows that use what no plug-in registers any more?
        for warning in run_checks(tags=[Tags.database], databases=["default"]):
            self.stderr.write(str(warning))
        password = create_first_admin()
        try:
            added = load_examples()
        except SpecError as error:
            self.stdout.write(f"The example flows stay out. {error.problems[0].message}")
        else:
            if added:
                self.stdout.write(f"Example flows: {', '.join(added)}")
        StopSignals()
        processes = [
            # Should this process be killed, the worker stops in order and nothing keeps the port.
            start_process([sys.executable, "-m", "toolflow_site", "run_worker"], signal_when_orphaned=signal.SIGTERM),
            start_process(build_server_command(host, port), signal_when_orphaned=signal.SIGKILL),
        ]
        try:
            if wait_until_listening(host, port, processes):
                self._announce(f"http://{host}:{port}/", password)
            lock.close()
            while not draining.is_set() and all(process.poll() is None for process in processes):
                time.sleep(0.1)
        finally:
            died = [process for process in processes if process.poll() is not None]
            for process in processes:
                process.terminate()
            # Until then the worker would take another signal for the same one.
            time.sleep(2 * REPEATED_SIGNAL_INTERVAL)
            self.stdout.write("Stopping … (once more for at once)")
            self.stdout.flush()
            await_end(processes)
        if died and not draining.is_set():
            raise CommandError("The web server or the worker ended by itself; its last lines above say why.")
        self.stdout.write("Stopped. Nothing is lost: queued and running runs go on at the next start.")

    def _announce(self, address: str, password: str | None) -> None:
        lines = ["", f"ToolFlow is at {address}"]
        if password:
            lines.append(f"Sign in as admin with the password {password} (shown this once; change it after signing in)")
        providers = build_providers()
        if providers.default.is_simulated:
            what = "Models named without a provider are simulated" if providers.named else "The model is simulated"
            lines.append(f"{what}. Set OPENAI_API_KEY to use a real one.")
        lines += ["Stop with Ctrl-C.", ""]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


def lock_data_folder() -> TextIO:
    """Keep other starts out of the data folder until the file is closed; two at once would race for a new database.

    Raises ``CommandError`` if another start is under way.
    """
    lock = (settings.TOOLFLOW_DATA_DIR / "up.lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise CommandError(
            f"Another start of ToolFlow is under way in {settings.TOOLFLOW_DATA_DIR}. Try again when it has finished."
        ) from None
    return lock


def create_first_admin() -> str | None:
    """Create the user “admin” if there is no superuser yet; gives the password, or None if there was one."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(username="admin", password=password)
    return password


def start_process(command: list[str], *, signal_when_orphaned: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a process that gets ``signal_when_orphaned`` when this one is killed.

    It leads a session of its own: Ctrl-C reaches this process only, which then stops both in order.
    """
    become_child = partial(die_with_parent, os.getpid(), signal_when_orphaned)
    return subprocess.Popen(command, start_new_session=True, preexec_fn=become_child)  # noqa: PLW1509  # no threads here


def wait_until_listening(host: str, port: int, processes: list[subprocess.Popen[bytes]]) -> bool:
    """Whether pages are served, waiting for it until a process dies or a stop is asked for."""
    while not draining.is_set() and all(process.poll() is None for process in processes):
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return True
        time.sleep(0.05)
    return False


def await_end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for processes that were told to stop as long as the worker may take, then kill what is left.

    A second Ctrl-C is passed on.
    """
    deadline = time.monotonic() + settings.TOOLFLOW_STOP_SECONDS + STOP_MARGIN
    is_hurried = False
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        if force_quit.is_set() and not is_hurried:
            is_hurried = True
            for process in processes:
                # After a SIGTERM this one makes both of them hurry.
                process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    for process in processes:
        if process.poll() is None:
            # Each leads a session of its own: what it started goes with it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
