"""A shell for the commands of the documentation: bash, in which ``manage.py`` is answered by the process of the test.

So a page’s commands run as they stand, with quoting, here-documents and wildcards, and on the database of the test; yet
none of them takes the second that a start of Django takes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.core.management.base import CommandParser

PATIENCE = 120.0
"""Seconds that code may take on a busy machine; it takes a second or two."""

_CLIENT = """
import json, os, socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect(os.environ["DOC_SHELL"])
asked.sendall(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd()}).encode())
asked.shutdown(socket.SHUT_WR)
answer = json.loads(b"".join(iter(lambda: asked.recv(65536), b"")))
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["status"])
"""
"""What stands for ``manage.py`` in the shell."""

PYTHON = """
case "$1 $2" in
  manage.py*) shift; exec manage.py "$@" ;;
  "-m pytest") test -f "$3" ;;
  "-m pip" | "-m compileall" | "-m venv") echo "python $*" >> "$CALLS" ;;
  *) exec {python} -S "$@" ;;
esac
"""
"""What stands for Python. Packages are not installed, and tests of their own hold what ``start_plugin`` writes."""


def find_parser(command: str) -> CommandParser:
    """What reads the arguments of a command of ``manage.py``. Raises ``KeyError`` if there is none of that name."""
    return load_command_class(get_commands()[command], command).create_parser("manage.py", command)


class Shell:
    """Runs code in a folder of its own, as somebody who has ``manage.py`` there and in the path."""

    def __init__(self, folder: Path, *, only_reads: bool = False, **programs: str) -> None:
        """``programs``: shell code by the name of what it stands for.

        With ``only_reads`` the arguments of ``manage.py`` are read and checked, and nothing is done.
        """
        self.folder = folder
        self.commands: list[list[str]] = []
        self._only_reads = only_reads
        self._bin = folder / "bin"
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / "var").mkdir()
        self._bin.mkdir()
        (folder / "bin/client.py").write_text(_CLIENT)
        self._add("manage.py", f'exec {sys.executable} -S "{self._bin}/client.py" "$@"')
        for name, code in {"python": PYTHON.replace("{python}", sys.executable), **programs}.items():
            self._add(name, code)
        (folder / ".venv/bin/python").symlink_to(self._bin / "python")

    @property
    def calls(self) -> list[str]:
        """What was asked of programs that only note it, in order."""
        noted = self.folder / "calls"
        return noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []

    def run(self, code: str, **variables: str) -> str:
        """What the code prints; every line of it has to succeed."""
        path = f"{self._bin}:{os.environ['PATH']}"
        place = self.folder / "socket"
        given_up_at = time.monotonic() + PATIENCE
        environment = {"PATH": path, "DOC_SHELL": str(place), "CALLS": str(self.folder / "calls"), **variables}
        with (
            socket.socket(socket.AF_UNIX) as listener,
            (self.folder / "printed").open("w+", encoding="utf-8") as printed,
            (self.folder / "complaints").open("w+", encoding="utf-8") as complaints,
        ):
            place.unlink(missing_ok=True)
            listener.bind(str(place))
            listener.listen()
            command = ["bash", "-euo", "pipefail", "-c", code]
            with subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=complaints
            ) as script:
                try:
                    while script.poll() is None:
                        assert time.monotonic() < given_up_at, f"It does not end:\n{code}"
                        if select.select([listener], [], [], 0.02)[0]:
                            self._answer(listener)
                finally:
                    script.kill()
            printed.seek(0)
            complaints.seek(0)
            assert script.returncode == 0, f"{code}\n{printed.read()}\n{complaints.read()}"
            return printed.read()

    def _add(self, name: str, code: str) -> None:
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{code}\n", encoding="utf-8")
        path.chmod(0o755)

    def _answer(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            asked = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
            self.commands.append(asked["argv"])
            with contextlib.chdir(asked["cwd"]):
                answer = self._execute(asked["argv"])
            connection.sendall(json.dumps(answer).encode())

    def _execute(self, argv: Sequence[str]) -> dict[str, str | int]:
        out, err = io.StringIO(), io.StringIO()
        status = 0
        try:
            if self._only_reads:
                find_parser(argv[0]).parse_args(argv[1:])
            else:
                with contextlib.redirect_stdout(out):
                    call_command(*argv, stdout=out, stderr=err)
        except KeyError:
            status = 1
            err.write(f"There is no command {argv[0]}.")
        except CommandError as error:
            status = error.returncode
            err.write(str(error))
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return {"out": out.getvalue(), "err": err.getvalue(), "status": status}
