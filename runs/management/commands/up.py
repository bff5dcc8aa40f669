"""``manage.py up``: everything that a first look needs, in one terminal."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import Tags, run_checks
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from flows.engine.errors import SpecError
from flows.examples import load_examples
from flows.providers import build_providers
from runs.management.commands.serve import build_server_command, refuse_taken_port
from runs.management.terminal import announce
from runs.queue import draining, force_quit
from runs.queue_processes.process_tree import EXIT_TIMEOUT, FORCED_STOP_TIMEOUT, REPEATED_SIGNAL_INTERVAL, StopSignals
from runs.queue_processes.supervisor import die_with_parent

STOP_MARGIN = FORCED_STOP_TIMEOUT + EXIT_TIMEOUT + 10
"""Seconds that a process has to stop beyond TOOLFLOW_STOP_SECONDS."""

Processes = list[subprocess.Popen[bytes]]


class Command(BaseCommand):
    help = "Set up the database, an admin user and the example flows; then run web server and worker until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="Port to listen on (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        refuse_taken_port(host, port)
        password = self._set_up()
        StopSignals()
        processes = [
            # If this process is killed, the worker stops in order and nothing keeps the port.
            _start_process([sys.executable, "-m", "toolflow_site", "run_worker"], signal_when_orphaned=signal.SIGTERM),
            _start_process(build_server_command(host, port), signal_when_orphaned=signal.SIGKILL),
        ]
        try:
            if _wait_until_listening(host, port, processes):
                self._announce(f"http://{host}:{port}/", password)
            while not draining.is_set() and _all_run(processes):
                time.sleep(0.1)
        finally:
            has_died = not _all_run(processes)
            for process in processes:
                process.terminate()
            # A signal that follows sooner is taken for the same one.
            time.sleep(2 * REPEATED_SIGNAL_INTERVAL)
            announce(self, "Stopping … (press Ctrl-C again to force)")
            _await_end(processes)
        if has_died and not draining.is_set():
            raise CommandError("The web server or the worker ended by itself; its last lines above say why.")
        self.stdout.write("Stopped. Nothing is lost: queued and running runs continue at the next start.")

    def _set_up(self) -> str | None:
        """Prepare the database; gives the password of the admin user if one was created."""
        call_command("check", verbosity=0)
        call_command("migrate", verbosity=0, interactive=False)
        for warning in run_checks(tags=[Tags.database], databases=["default"]):
            self.stderr.write(str(warning))
        password = create_first_admin()
        try:
            added = load_examples()
        except SpecError as error:
            self.stdout.write(f"The example flows were not added. {error.problems[0].message}")
        else:
            if added:
                self.stdout.write(f"Example flows: {', '.join(added)}")
        return password

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


def create_first_admin() -> str | None:
    """Create the user “admin” if there is no superuser yet; gives the password, or None if there was one."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(username="admin", password=password)
    return password


def _start_process(command: list[str], *, signal_when_orphaned: signal.Signals) -> subprocess.Popen[bytes]:
    # It leads a session of its own: Ctrl-C reaches this process only, which then stops both in order.
    become_child = partial(die_with_parent, os.getpid(), signal_when_orphaned)
    return subprocess.Popen(command, start_new_session=True, preexec_fn=become_child)  # noqa: PLW1509  # no threads here


def _all_run(processes: Processes) -> bool:
    return all(process.poll() is None for process in processes)


def _wait_until_listening(host: str, port: int, processes: Processes) -> bool:
    """Whether pages are served; waits until they are, a process dies or a stop is asked for."""
    while not draining.is_set() and _all_run(processes):
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return True
        time.sleep(0.05)
    return False


def _await_end(processes: Processes) -> None:
    """Wait for processes that are stopping, pass on a second Ctrl-C, and kill what is left after the time."""
    deadline = time.monotonic() + settings.TOOLFLOW_STOP_SECONDS + STOP_MARGIN
    is_forced = False
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        if force_quit.is_set() and not is_forced:
            is_forced = True
            for process in processes:
                # After a SIGTERM it means “at once” to both.
                process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    for process in processes:
        if process.poll() is None:
            # Each leads a session of its own, with all that it started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
