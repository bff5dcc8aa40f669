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
from types import FrameType
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from flows.examples import load_examples
from runs.provider import is_simulated

STOP_PATIENCE = 10
"""Seconds that a process has to stop beyond the longest model call."""


class Command(BaseCommand):
    help = "Set up the database, an admin user and the example flows; then run web server and worker until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="Port to listen on (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        refuse_taken_port(host, port)
        call_command("check", verbosity=0)
        call_command("migrate", verbosity=0, interactive=False)
        password = create_first_admin()
        added = load_examples()
        if added:
            self.stdout.write(f"Example flows: {', '.join(added)}")
        # Sessions of their own: Ctrl-C reaches this process only, which then stops both in order.
        processes = [
            subprocess.Popen(command, start_new_session=True)
            for command in (
                [sys.executable, "manage.py", "run_worker"],
                web_server_command(host, port),
            )
        ]
        stop = StopFlag()
        try:
            wait_until_listening(host, port, processes, stop)
            self._announce(f"http://{host}:{port}/", password)
            while not stop.is_set and all(process.poll() is None for process in processes):
                time.sleep(0.1)
        finally:
            died = [process for process in processes if process.poll() is not None]
            self.stdout.write("Stopping …")
            stop_processes(processes)
        if died and not stop.is_set:
            raise CommandError("The web server or the worker ended by itself; its last lines above say why.")
        self.stdout.write("Stopped. Nothing is lost: queued and running runs go on at the next start.")

    def _announce(self, address: str, password: str | None) -> None:
        lines = ["", f"ToolFlow is at {address}"]
        if password:
            lines.append(f"Sign in as admin with the password {password} (shown this once; change it after signing in)")
        if is_simulated():
            lines.append("Outputs come from the simulated model. Set OPENAI_API_KEY to use a real one.")
        lines += ["Stop with Ctrl-C.", ""]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


class StopFlag:
    """Set by SIGINT, SIGTERM and SIGHUP (a closed terminal) from the moment it is made."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._set)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.is_set = True


def refuse_taken_port(host: str, port: int) -> None:
    """Raise ``CommandError`` that says what to do if something listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise CommandError(
                f"Can't listen on {host}, port {port}: {error}. Choose another port: make up PORT={port + 1}"
            ) from error


def create_first_admin() -> str | None:
    """Create the user “admin” if there is no superuser yet; gives the password, or None if there was one."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(username="admin", password=password)
    return password


def web_server_command(host: str, port: int) -> list[str]:
    """The command that serves pages."""
    return [
        sys.executable,
        "-m",
        "uvicorn",
        "toolflow_site.asgi:application",
        *("--host", host, "--port", str(port)),
        *("--log-level", "warning", "--no-access-log", "--no-server-header"),
    ]


def wait_until_listening(host: str, port: int, processes: list[subprocess.Popen[bytes]], stop: StopFlag) -> None:
    """Return once pages are served; also if a process died or a stop is asked for."""
    while not stop.is_set and all(process.poll() is None for process in processes):
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.05)


def stop_processes(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask all to stop, wait as long as a model call may take, then kill what is left."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + settings.TOOLFLOW_CALL_TIMEOUT + STOP_PATIENCE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            # Each leads a session of its own: what it started goes with it.
            os.killpg(process.pid, signal.SIGKILL)
