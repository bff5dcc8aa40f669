"""A whole installation as a newcomer starts it: `manage.py up` with its web server and worker, in its own folder."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from playwright.sync_api import Page, expect

from tests.processes import ROOT, clean_environment

START_TIMEOUT = 180.0
"""Seconds that a start may take before a test gives up on it."""


class Installation:
    """Processes on a free port of loopback; ``environment`` is added to a clean one."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.output = ""
        self.address = ""
        self.password = ""

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(port)],
            cwd=ROOT,
            env=self._build_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._read_until(r"ToolFlow is at (\S+)/\n(?:.*password (\S+))?")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """Press Ctrl-C; gives the exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        rest, _ = self._process.communicate(timeout=START_TIMEOUT)
        self.output += rest.decode()
        return self._process.returncode

    def manage(self, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run another command of this installation and wait for it."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self._build_environment(),
            input=input,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            check=False,
        )

    def _build_environment(self) -> dict[str, str]:
        return {
            **clean_environment(),
            "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
            "TOOLFLOW_DATA_DIR": str(self._folder),
            "TOOLFLOW_ENV_FILE": os.devnull,
            "PYTHONUNBUFFERED": "1",
            **self._environment,
        }

    def _read_until(self, pattern: str) -> None:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT
        while not (match := re.search(pattern, self.output)):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not chunk:
                raise AssertionError(f"The installation did not start:\n{self.output}")
            self.output += chunk.decode()
        self.address, self.password = match[1], match[2] or ""


def sign_in(page: Page, installation: Installation) -> None:
    """Sign in as the administrator that the first start made."""
    page.goto(installation.address)
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(installation.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Main").get_by_role("link", name="Overview")).to_be_visible()
