"""The command ``toolflow`` in scripts: its verbs, and what its exit statuses say."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.contract.golden import check_golden, read_golden
from tests.contract.site import ASK_FLOW, Api, create_token, run_local_flow, work_off_queue

# What each verb prints and does: tests/client.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.nightly]

ROOT = Path(__file__).resolve().parents[2]
MODULE, _, FUNCTION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["toolflow"].partition(
    ":"
)
FORKING = f"""
import json, os, sys
import httpx2, typer, yaml
from {MODULE} import {FUNCTION}
for line in sys.stdin:
    call = json.loads(line)
    child = os.fork()
    if not child:
        for number, (name, flags) in enumerate([("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY)]):
            os.dup2(os.open(name, flags), number)
        sys.stdin = open(0, closefd=False)
        sys.argv = ["toolflow", *call["arguments"]]
        os.environ.update(call["environment"])
        sys.exit({FUNCTION}())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Makes a process for each call, forked from one that has loaded what takes longer than any call."""


class CommandLine:
    """A terminal in which calls are made one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLOW_", "COLUMNS"))}
        self._forking = subprocess.Popen(
            [sys.executable, "-c", FORKING],
            cwd=folder,
            env={**inherited, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, call: str, *, url: str, token: str, stdin: str = "") -> tuple[int, str]:
        """Exit status and standard output of a call, whose runs a worker takes meanwhile."""
        for name, text in (("in", stdin), ("out", ""), ("err", "")):
            (self._folder / name).write_text(text)
        asked, answered = self._forking.stdin, self._forking.stdout
        assert asked is not None
        assert answered is not None
        environment = {"TOOLFLOW_URL": url, "TOOLFLOW_TOKEN": token}
        asked.write(json.dumps({"arguments": call.split(), "environment": environment}) + "\n")
        asked.flush()
        while not select.select([answered], [], [], 0.05)[0]:
            work_off_queue()
        status = int(answered.readline())
        assert "Traceback" not in (self._folder / "err").read_text()
        return status, (self._folder / "out").read_text()

    def close(self) -> None:
        """Take no more calls."""
        self._forking.communicate()


@pytest.fixture
def command_line(tmp_path: Path) -> Iterator[CommandLine]:
    """A terminal in a folder with a good and a bad flow file."""
    (tmp_path / "good.yaml").write_text("name: good\nsteps:\n- {name: S, compute: input}\n")
    (tmp_path / "bad.yaml").write_text("name: bad\nsteps:\n- {name: S, compute: nosuch}\n")
    made = CommandLine(tmp_path)
    yield made
    made.close()


def test_verbs_and_exit_statuses_are_the_same(
    live_server: LiveServer, command_line: CommandLine, no_provider: None
) -> None:
    api = Api()
    api.fetch("POST", "flows", ASK_FLOW)
    runs = {"{run}": str(run_local_flow(api, "abcd")), "{failed}": str(run_local_flow(api, "ab"))}
    url, token = live_server.url, create_token("editor")
    admin = {"url": url, "token": token}
    callers = {
        "wrong": {"url": url, "token": "tf_wrong"},
        "nobody": {"url": url, "token": ""},
        "unreachable": {"url": "http://127.0.0.1:1", "token": token},
    }
    golden = read_golden("golden/cli.yaml")
    verbs = {}
    for group, known in golden["verbs"].items():
        _, out = command_line.run("--help" if group == "toolflow" else f"{group} --help", **admin)
        listed = re.findall(r"^  ([a-z-]+)", out.partition("\nCommands:\n")[2], re.MULTILINE)
        verbs[group] = " ".join(verb for verb in known.split() if verb in listed)
    calls: list[dict[str, Any]] = []
    for case in golden["calls"]:
        call = re.sub(r"\{run\}|\{failed\}", lambda found: runs[found[0]], case["call"])
        status, out = command_line.run(call, stdin=case.get("stdin", ""), **callers.get(case.get("by", ""), admin))
        calls.append({**case, "status": status, "has_results": bool(out)})
    check_golden("golden/cli.yaml", {"verbs": verbs, "calls": calls})
