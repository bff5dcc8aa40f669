"""What every command does with servers that refuse, are busy or are none of ours, and when it is used wrongly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions

import httpx2
import pytest

from runs.client.server import RETRY_TIMEOUT
from tests.client.conftest import NO_RUNS, Reply, Terminal, answer, refuse
from tests.client.test_runs import build_run
from tests.test_docs import ROOT, find_blocks

START = ("run", "a", "--input", "{}")
LOST = httpx2.ReadError("gone")
AWAY = httpx2.ConnectError("refused")


def make_in_use() -> httpx2.Response:
    return refuse(409, "idempotency-key-in-use")


@pytest.mark.parametrize("make", [lambda: refuse(429), lambda: refuse(503), make_in_use, lambda: LOST])
def test_what_a_busy_server_may_have_done_is_asked_again_under_the_same_key(
    terminal: Terminal, make: Callable[[], Reply]
) -> None:
    terminal.replies = [make(), make(), answer(build_run(), 202)]
    done = terminal.run(*START)
    assert (done.status, done.out) == (0, "Run 7 of “a”, version 1: queued\n")
    (asked,) = {(request.headers["Idempotency-Key"], request.content) for request in terminal.asked}
    assert len(asked[0]) > 20


@pytest.mark.parametrize("make", [lambda: refuse(503, retry_after="5"), lambda: LOST])
def test_it_is_not_asked_for_ever(terminal: Terminal, make: Callable[[], Reply]) -> None:
    terminal.replies = [make() for _ in range(100)]
    done = terminal.run(*START)
    assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert RETRY_TIMEOUT - 5 <= terminal.clock.now <= RETRY_TIMEOUT


@pytest.mark.parametrize("reply", [AWAY, refuse(409, "idempotency-key-reused"), refuse(403), refuse(422)])
def test_what_no_retry_can_change_is_reported_at_once(terminal: Terminal, reply: Reply) -> None:
    terminal.replies = [reply]
    done = terminal.run(*START)
    assert (done.status, done.out, terminal.clock.now) == (3, "", 0)


def test_a_command_that_waits_sits_out_a_restart_but_no_longer(terminal: Terminal) -> None:
    terminal.replies = [answer(build_run(), 202), *[AWAY] * 500]
    done = terminal.run(*START, "--wait")
    assert (done.status, "can’t be reached" in done.err) == (3, True)
    assert RETRY_TIMEOUT <= terminal.clock.now < RETRY_TIMEOUT + 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOOLFLOW_TOKEN", ""),
        ("TOOLFLOW_TOKEN", "tf_0123 é"),
        ("TOOLFLOW_URL", "localhost:8000"),
        ("TOOLFLOW_URL", "http://me:sesame@localhost:1"),
        ("TOOLFLOW_URL", "http://localhost:1/?key=sesame"),
        ("--idempotency-key", "schlüssel"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_shows_no_password(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    done = terminal.run(*START, *((name, value) if name.startswith("-") else ()))
    said = "The request can’t be sent: " if name.startswith("-") else name
    assert (done.status, done.err.startswith(f"toolflow: {said}"), terminal.asked) == (3, True, [])
    assert "sesame" not in done.err and "é" not in done.err


@pytest.mark.parametrize(
    "reply",
    [
        httpx2.Response(200, html="<p>Hello</p>"),
        httpx2.Response(404, html="<p>Nothing</p>"),
        httpx2.Response(301, headers={"Location": "https://flows.example.com/api/v1/runs"}),
        httpx2.Response(200, content=b'{"items": [{"id"', headers={"Content-Type": "application/json"}),
        answer({"items": [{}], "next": None}),
    ],
)
def test_another_server_is_distinguished_from_toolflow_in_a_sentence(
    terminal: Terminal, reply: httpx2.Response
) -> None:
    terminal.replies = [reply]
    done = terminal.run("runs")
    assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert re.search(r"TOOLFLOW_URL|Unexpected response", done.err)


def test_mistakes_are_listed_with_their_places(terminal: Terminal) -> None:
    errors = [{"pointer": "/flow", "detail": "No."}, {"parameter": "x", "detail": "Odd."}]
    terminal.replies = [refuse(422, errors=errors)]
    assert terminal.run(*START).err.splitlines() == ["toolflow: This is 422.", "  /flow: No.", "  x: Odd."]


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("show 7", "run 7"),
        ("cancel 7", "run 7"),
        ("rerun 7", "run 7"),
        ("flows pull a", "flow “a”"),
        ("flows settings a", "flow “a”"),
        ("versions list a", "flow “a”"),
        ("versions make-live a 9", "version 9 of a flow “a”"),
    ],
)
def test_what_does_not_exist_is_named(terminal: Terminal, call: str, missing: str) -> None:
    terminal.replies = [refuse(404)]
    assert terminal.run(*call.split()) == (3, "", f"toolflow: {missing} does not exist.\n")


@pytest.mark.parametrize("call", ["run", "runs --limit 0", "show x", "nonsense", "flows push", ""])
def test_wrong_use_has_status_3(terminal: Terminal, call: str) -> None:
    done = terminal.run(*call.split())
    assert (done.status, done.out, "Usage: toolflow" in done.err) == (3, "", True)


def test_help_and_version_need_no_server(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFLOW_TOKEN")
    assert "Exit status" in terminal.run("--help").out
    assert terminal.run("--version").out.startswith("toolflow ")


def test_pages_are_followed_past_empty_ones_up_to_the_limit(terminal: Terminal) -> None:
    def page(*ids: int) -> httpx2.Response:
        versions = [{"number": number} for number in ids]
        return answer({"items": versions, "next": "http://inside/api/v1/flows/a/versions?before=5"})

    terminal.replies = [page(9, 8), page(), page(7, 6)]
    call = "--url http://toolflow.test/api/v1/ versions list a --limit 3 --json"
    assert [version["number"] for version in terminal.run(*call.split()).json] == [9, 8, 7]
    addresses = [str(request.url) for request in terminal.asked]
    versions = "http://toolflow.test/api/v1/flows/a/versions"
    assert addresses == [f"{versions}?limit=3", f"{versions}?before=5", f"{versions}?before=5"]


def test_what_others_wrote_commands_no_terminal(terminal: Terminal) -> None:
    text = "Red: \x1b[31m \x9b2J [bold]text[/bold] :smile:"
    version = {"number": 1, "is_live": True, "created_at": None, "created_by": None, "note": text}
    terminal.replies = [answer({**NO_RUNS, "items": [version]}) for _ in range(2)]
    for more in ((), ("--json",)):
        out = terminal.run("versions", "list", "a", *more).out
        assert not {"\x1b", "\x9b"} & set(out)
        assert "[bold]text[/bold] :smile:" in out
    assert json.loads(out)[0]["note"] == text


def test_it_loads_no_more_than_the_guide_installs() -> None:
    (lines,) = [code for info, code in find_blocks("docs/api.md", "sh") if info == "once"]
    first, second = lines.splitlines()
    assert (first.startswith("pip install "), second) == (True, "pip install --no-deps .")
    code = (
        "import sys, runs.client.__main__, httpx2, rich.progress\nprint(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    installed = {name.lower() for names in packages_distributions().values() for name in names}
    wanted = set(first.removeprefix("pip install ").split())
    assert wanted <= installed and {"typer", "httpx2"} <= wanted
    assert not {"django", "pydantic", "openai", "yaml", "environ", "requests"} & set(done.stdout.split())
