"""The web server of a throwaway installation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contender import ROOT, ContenderError

START_PATIENCE = 60
"""Seconds."""
SERVER = (sys.executable, "-m", "uvicorn", "toolflow_site.asgi:application", "--log-level", "warning")
"""What ``manage.py up`` serves pages with."""


def make_environment(data: Path, **variables: str) -> dict[str, str]:
    """The environment of an installation that keeps its data in a folder of its own."""
    return {
        "PATH": os.environ["PATH"],
        "TOOLFLOW_ENV_FILE": os.devnull,
        "TOOLFLOW_DATA_DIR": str(data),
        "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
        **variables,
    }


@contextmanager
def serving_pages(environment: dict[str, str], log: Path) -> Iterator[int]:
    """Serve the pages of an installation; gives the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*SERVER, "--port", str(port)], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + START_PATIENCE
            while not _is_listening(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise ContenderError(f"The web server did not start (see {log}).")
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()
            server.wait(timeout=30)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
