"""Full disks and closed pipes, which only a process of its own meets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client.test_runs import build_run
from tests.runs.webhooks.receiver import Receiver, Reply
from tests.test_docs import ROOT

WAIT = ("run", "a", "--input", "{}", "--wait")
EXPORTED = Reply(200, {"content-type": "application/x-ndjson"}, b'{"id": 7}\n' * 100_000)
READ_ALONG = '{ "$@"; echo $? >&3; } 3>status | head -c 1; cat status >&2'

Run = Callable[..., subprocess.CompletedProcess[str]]


def make_replies(status: str) -> list[Reply]:
    """What “run --wait” hears of a run that ends so."""
    body = json.dumps(build_run(status)).encode()
    return [Reply(status, {"content-type": "application/json"}, body) for status in (202, 200)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs a command in a shell, as “$@” of its script, against a server that gives these replies."""
    server = Receiver()

    def run(
        script: str, arguments: tuple[str, ...], replies: list[Reply], **more: str
    ) -> subprocess.CompletedProcess[str]:
        server.reply(*replies)
        environment = {"TOOLFLOW_URL": server.url(""), "TOOLFLOW_TOKEN": "tf_0", "PYTHONPATH": str(ROOT), **more}
        return subprocess.run(
            ["bash", "-c", script, "bash", sys.executable, "-m", "runs.client", *arguments],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    yield run
    server.stop()


@pytest.mark.parametrize(("arguments", "replies"), [(WAIT, make_replies("succeeded")), (("export",), [EXPORTED])])
def test_results_that_can_t_be_written_are_no_run_that_failed(
    run: Run, arguments: tuple[str, ...], replies: list[Reply]
) -> None:
    done = run('"$@" > /dev/full', arguments, replies)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, "toolflow: No space left on device.")
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "replies", "status"),
    [((*WAIT, "--json"), make_replies("errored"), 2), (("export",), [EXPORTED], 0)],
)
def test_a_reader_that_has_seen_enough_changes_no_status(
    run: Run, arguments: tuple[str, ...], replies: list[Reply], status: int
) -> None:
    done = run(READ_ALONG, arguments, replies)
    assert (done.stdout, done.stderr.splitlines()[-1]) == ("{", str(status))
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("redirection", ["2> /dev/full", "<&- >&- 2>&-"])
def test_streams_that_can_t_be_written_to_change_no_status(run: Run, redirection: str) -> None:
    assert run(f'"$@" {redirection}', (*WAIT, "--json"), make_replies("failed")).returncode == 1


def test_json_is_utf_8_in_every_locale(run: Run) -> None:
    more = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run('"$@"', WAIT, make_replies("succeeded"), **more)
    assert (done.returncode, done.stdout) == (0, '{\n  "title": "Café – it’s 😀"\n}\n')
