"""Full disks, poor terminals and pipes that close change neither what a command does nor how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.client.conftest import PATIENCE, Done, Terminal
from tests.client.stand_in import NO_RUNS, Reply, answer_json
from tests.warm_python import CLIENT_MODULES, start_python

OUTPUT = {"title": "Café – it’s 😀"}
SENTENCE = "Step 2 says “it’s done” – at last."
ASCII = {"PYTHONIOENCODING": "ascii"}
FULL = "The results can’t be written to standard output: No space left on device."

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")


def make_run(status: str, **fields: Any) -> dict[str, Any]:
    attempt = {"step": 1, "number": 1, "output": OUTPUT}
    known = {"id": 7, "flow": "a", "version": 1, "page_url": "http://127.0.0.1/runs/7/", "blocking": None}
    steps = [{"name": "Input", "attempts": []}, {"name": "Step 1", "attempts": [attempt]}]
    return {**known, "status": status, "end_sentence": SENTENCE, "steps": steps, **fields}


def make_replies(status: str, **fields: Any) -> tuple[Reply, ...]:
    """What “run --wait” hears of a run that ends so."""
    run = make_run(status, **fields)
    return answer_json(run, 202), answer_json(run)


START = ("run", "a", "--input", "{}", "--wait")
RUNS = ("runs", "--json")


def run_into(terminal: Terminal, *arguments: str, out: IO[bytes] | None = None, err: IO[bytes] | None = None) -> Done:
    """Run a command whose results and remarks go there."""
    with tempfile.TemporaryFile() as results, tempfile.TemporaryFile() as remarks:
        process = start_python(
            *("-m", "runs.client", *arguments),
            cwd=terminal.folder,
            environment=terminal.environment,
            output=out or results,
            errors=err or remarks,
            modules=CLIENT_MODULES,
        )
        try:
            status = process.wait(PATIENCE)
        finally:
            process.kill()
        results.seek(0)
        remarks.seek(0)
        return Done(status, results.read().decode(), remarks.read().decode())


@pytest.fixture
def full() -> Iterator[IO[bytes]]:
    """A disk without any room."""
    with Path("/dev/full").open("wb") as device:
        yield device


@pytest.fixture
def unread() -> Iterator[IO[bytes]]:
    """A pipe whose reader has seen enough."""
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as pipe:  # noqa: PTH123  # it has no path
        yield pipe


def run_fresh(
    terminal: Terminal,
    *arguments: str,
    redirected: str = "",
    out: int | IO[bytes] = subprocess.PIPE,
    err: int | IO[bytes] = subprocess.PIPE,
) -> Done:
    """The same in a Python that finds the streams as they are when it starts; a shell may lead them elsewhere."""
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirected}', "bash", sys.executable, "-m", "runs.client", *arguments],
        cwd=terminal.folder,
        env=terminal.environment,
        stdout=out,
        stderr=err,
        check=False,
        timeout=PATIENCE,
    )
    return Done(done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())


@pytest.mark.parametrize(
    ("arguments", "replies"),
    [
        (START, make_replies("succeeded")),
        ((*START, "--json"), make_replies("failed")),
        (RUNS, (NO_RUNS,)),
        (("flows", "settings", "a"), (answer_json({"retention": {}, "keep_days": 3}),)),
        (("export",), ((200, {"Content-Type": "application/x-ndjson"}, b'{"id": 7}\n'),)),
    ],
    ids=["output", "run", "list", "table", "file"],
)
def test_results_that_can_t_be_written_are_no_run_that_failed(
    stand_in: Callable[..., Terminal], full: IO[bytes], arguments: tuple[str, ...], replies: tuple[Reply, ...]
) -> None:
    done = run_into(stand_in(*replies), *arguments, out=full)
    assert (done.status, done.err.splitlines()[-1]) == (3, f"toolflow: {FULL}")
    assert "Traceback" not in done.err and "Exception ignored" not in done.err


def test_help_that_can_t_be_written_is_said_in_a_sentence(stand_in: Callable[..., Terminal], full: IO[bytes]) -> None:
    done = run_into(stand_in(), "--help", out=full)
    assert (done.status, done.err) == (3, "toolflow: It can’t be done: No space left on device.\n")


def test_remarks_that_can_t_be_written_are_left_out(
    stand_in: Callable[..., Terminal], full: IO[bytes], unread: IO[bytes]
) -> None:
    done = run_into(stand_in(*make_replies("succeeded")), *START, err=full)
    assert (done.status, done.json) == (0, OUTPUT)
    assert run_into(stand_in(*make_replies("failed")), *START, err=full).status == 1
    assert run_fresh(stand_in(*make_replies("failed")), *START, err=unread).status == 1


@pytest.mark.parametrize("redirected", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_not_missed(stand_in: Callable[..., Terminal], redirected: str) -> None:
    assert run_fresh(stand_in(*make_replies("failed")), *START, "--json", redirected=redirected).status == 1


@pytest.mark.parametrize("environment", [ASCII, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_terminal_that_knows_few_characters_changes_no_status(
    stand_in: Callable[..., Terminal], environment: dict[str, str]
) -> None:
    terminal = stand_in(*make_replies("succeeded"), **environment)
    done = run_fresh(terminal, *START)
    assert (done.status, done.json, done.out.isascii()) == (0, OUTPUT, True)
    assert done.err == "Run 7: succeeded. Step 2 says \\u201cit\\u2019s done\\u201d \\u2013 at last.\n"


def test_a_table_is_printed_there_too(stand_in: Callable[..., Terminal]) -> None:
    terminal = stand_in(answer_json({"retention": {"keep_days": 1, "keep_outputs_days": 1}, "note": "it’s"}), **ASCII)
    done = run_fresh(terminal, "flows", "settings", "a")
    assert (done.status, done.out.splitlines()[1].split()) == (0, ["note", "it\\u2019s"])


def test_standard_input_is_utf_8_as_json_is(stand_in: Callable[..., Terminal]) -> None:
    terminal = stand_in(answer_json(make_run("queued"), 202), **ASCII)
    (terminal.folder / "input.json").write_text('{"topic": "Café – 😀"}', encoding="utf-8")
    done = run_fresh(terminal, "run", "a", "--input", "-", redirected="< input.json")
    (asked,) = terminal.asked
    assert (done.status, json.loads(asked.body)["input"]) == (0, {"topic": "Café – 😀"})


@pytest.mark.parametrize(
    ("arguments", "replies", "status", "remark"),
    [
        ((*START, "--json"), make_replies("errored"), 2, ""),
        (START, make_replies("succeeded"), 0, f"Run 7: succeeded. {SENTENCE}\n"),
        (("flows", "settings", "a", "--json"), (answer_json({"note": "x" * 200_000}),), 0, ""),
        (("cancel", "7"), (answer_json({"id": 7, "status": "cancelled"}, 202),), 0, ""),
        (("export",), ((200, {"Content-Type": "application/x-ndjson"}, b'{"id": 7}\n' * 100_000),), 0, ""),
    ],
    ids=["run", "output", "long", "line", "file"],
)
def test_a_reader_that_has_seen_enough_changes_no_status(
    stand_in: Callable[..., Terminal],
    unread: IO[bytes],
    arguments: tuple[str, ...],
    replies: tuple[Reply, ...],
    status: int,
    remark: str,
) -> None:
    done = run_fresh(stand_in(*replies), *arguments, out=unread)
    assert (done.status, done.err) == (status, remark)
