"""What every command does with servers that refuse, are busy or are none of ours, and when it is used wrongly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.metadata import distribution, distributions, packages_distributions
from typing import Any

import httpx2
import pytest

from runs.client.server import OUTAGE_TIMEOUT, RETRY_TIMEOUT
from tests.client.conftest import Reply, Terminal, answer, refuse
from tests.test_docs import ROOT, find_blocks

START = ("run", "a", "--input", "{}")
RUN = {"id": 7, "flow": "a", "version": 1, "status": "queued", "page_url": "http://toolflow.test/runs/7/"}
NO_RUNS: dict[str, Any] = {"items": [], "next": None}
LOST = httpx2.ReadError("gone")
AWAY = httpx2.ConnectError("refused")


def make_in_use() -> httpx2.Response:
    return refuse(409, "idempotency-key-in-use")


@pytest.mark.parametrize(
    "make", [*(lambda status=status: refuse(status) for status in (429, 500, 502, 503, 504)), make_in_use, lambda: LOST]
)
def test_what_a_busy_server_may_have_done_is_asked_again_under_the_same_key(
    terminal: Terminal, make: Callable[[], Reply]
) -> None:
    terminal.replies = [make(), make(), answer(RUN, 202)]
    done = terminal.run(*START)
    assert (done.status, done.out) == (0, "Run 7 of “a”, version 1: queued\n")
    (asked,) = {(request.headers["Idempotency-Key"], request.content) for request in terminal.asked}
    assert len(asked[0]) > 20


@pytest.mark.parametrize("make", [lambda: refuse(503, Retry_After="5"), make_in_use, lambda: LOST])
def test_it_is_not_asked_for_ever(terminal: Terminal, make: Callable[[], Reply]) -> None:
    terminal.replies = [make() for _ in range(50)]
    done = terminal.run(*START)
    assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert RETRY_TIMEOUT - 5 <= terminal.clock.now <= RETRY_TIMEOUT


@pytest.mark.parametrize("reply", [AWAY, refuse(409, "idempotency-key-reused"), refuse(403), refuse(422)])
def test_what_no_retry_can_change_is_reported_at_once(terminal: Terminal, reply: Reply) -> None:
    terminal.replies = [reply]
    done = terminal.run(*START)
    assert (done.status, done.out, terminal.clock.now) == (3, "", 0)


@pytest.mark.parametrize(("hours", "status", "count"), [(-1, 0, 2), (1, 3, 1)])
def test_the_server_may_name_a_time_for_the_next_try(terminal: Terminal, hours: int, status: int, count: int) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True)
    terminal.replies = [refuse(503, Retry_After=moment), answer(NO_RUNS)]
    assert (terminal.run("runs").status, len(terminal.asked)) == (status, count)


def test_whoever_waits_sits_out_a_restart_but_no_longer(terminal: Terminal) -> None:
    run = {**RUN, "steps_passed": 0, "step_count": 1, "attempt_count": 0, "waiting_for": None}
    run |= {"usage": {"total": 0, "cost": None}}
    terminal.replies = [answer(run, 202), *[AWAY] * 500]
    done = terminal.run(*START, "--wait")
    assert (done.status, "can’t be reached" in done.err) == (3, True)
    assert OUTAGE_TIMEOUT <= terminal.clock.now < OUTAGE_TIMEOUT + 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOOLFLOW_TOKEN", ""),
        ("TOOLFLOW_TOKEN", "tf_0123 é"),
        ("TOOLFLOW_URL", "localhost:8000"),
        ("TOOLFLOW_URL", "http://:8000"),
        ("TOOLFLOW_URL", "http://me:sesame@localhost:1"),
        ("TOOLFLOW_URL", "http://localhost:1/?key=sesame"),
    ],
)
def test_an_address_or_a_token_that_is_none_is_refused_and_shows_no_password(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    done = terminal.run("runs")
    assert (done.status, done.err.startswith(f"toolflow: {name} "), terminal.asked) == (3, True, [])
    assert "sesame" not in done.err and "é" not in done.err


@pytest.mark.parametrize("arguments", [["--label", "\udcff"], ["--idempotency-key", "schlüssel"]])
def test_what_can_t_be_sent_is_no_fault_of_the_server(terminal: Terminal, arguments: list[str]) -> None:
    done = terminal.run(*START, *arguments)
    assert (done.status, done.err.startswith("toolflow: The request can’t be sent: "), terminal.asked) == (3, True, [])


@pytest.mark.parametrize(
    "reply",
    [
        httpx2.Response(200, html="<p>Hello</p>"),
        httpx2.Response(404, html="<p>Nothing</p>"),
        httpx2.Response(301, headers={"Location": "https://flows.example.com/api/v1/runs"}),
        httpx2.Response(200, content=b"", headers={"Content-Type": "application/json"}),
        httpx2.Response(200, content=b'{"items": [{"id"', headers={"Content-Type": "application/json"}),
        answer([]),
        answer({"items": [{}], "next": None}),
        answer({"items": [7], "next": None}),
    ],
)
def test_another_server_is_told_from_toolflow_in_a_sentence(terminal: Terminal, reply: httpx2.Response) -> None:
    terminal.replies = [reply]
    done = terminal.run("runs")
    assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert re.search(r"TOOLFLOW_URL|Unexpected response", done.err)


def test_mistakes_are_listed_with_their_places(terminal: Terminal) -> None:
    terminal.replies = [
        refuse(422, errors=[{"pointer": "/flow", "detail": "No."}, {"parameter": "x", "detail": "Odd."}])
    ]
    assert terminal.run(*START).err.splitlines() == ["toolflow: This is 422.", "  /flow: No.", "  x: Odd."]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["show", "7"], "run 7"),
        (["cancel", "7"], "run 7"),
        (["rerun", "7"], "run 7"),
        (["flows", "pull", "a"], "flow “a”"),
        (["flows", "settings", "a"], "flow “a”"),
        (["versions", "list", "a"], "flow “a”"),
        (["versions", "show", "a"], "flow “a”"),
        (["versions", "make-live", "a", "9"], "version 9 of a flow “a”"),
    ],
)
def test_what_does_not_exist_is_named(terminal: Terminal, arguments: list[str], missing: str) -> None:
    terminal.replies = [refuse(404)]
    done = terminal.run(*arguments)
    assert (done.status, done.out, done.err) == (3, "", f"toolflow: There is no {missing}.\n")


@pytest.mark.parametrize(
    "arguments", [["run"], ["runs", "--limit", "0"], ["show", "x"], ["nonsense"], ["flows", "push"], []]
)
def test_wrong_use_has_status_3(terminal: Terminal, arguments: list[str]) -> None:
    done = terminal.run(*arguments)
    assert (done.status, done.out, "Usage: toolflow" in done.err) == (3, "", True)


def test_help_and_version_need_no_server(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFLOW_TOKEN")
    assert "Exit status" in terminal.run("--help").out
    assert terminal.run("--version").out.startswith("toolflow ")


def test_the_address_may_have_the_path_of_the_api(terminal: Terminal) -> None:
    terminal.replies = [answer(NO_RUNS)]
    assert terminal.run("--url", "http://toolflow.test/api/v1/", "runs").status == 0
    assert str(terminal.asked[0].url) == "http://toolflow.test/api/v1/runs?limit=20"


def test_pages_are_followed_past_empty_ones_up_to_the_limit(terminal: Terminal) -> None:
    def page(*ids: int) -> httpx2.Response:
        versions = [{"number": number} for number in ids]
        return answer({"items": versions, "next": "http://inside/api/v1/flows/a/versions?before=5"})

    terminal.replies = [page(9, 8), page(), page(7, 6)]
    found = terminal.run("versions", "list", "a", "--limit", "3", "--json").json
    assert [version["number"] for version in found] == [9, 8, 7]
    assert {request.url.host for request in terminal.asked} == {"toolflow.test"}
    assert terminal.asked[1].url.query == b"before=5"


def test_what_others_wrote_commands_no_terminal(terminal: Terminal) -> None:
    text = "Red: \x1b[31m \x9b2J [bold]text[/bold] :smile:"
    terminal.replies = [
        answer(
            {
                "items": [{"number": 1, "is_live": True, "created_at": None, "created_by": None, "note": text}],
                "next": None,
            }
        )
        for _ in range(2)
    ]
    for more in ((), ("--json",)):
        out = terminal.run("versions", "list", "a", *more).out
        assert not {"\x1b", "\x9b"} & set(out)
        assert "[bold]text[/bold] :smile:" in out
    assert json.loads(out)[0]["note"] == text


def normalize(name: str) -> str:
    """The name of a distribution as all write it that mean the same one."""
    return re.sub(r"[-_.]+", "-", name).lower()


INSTALLED = {normalize(one.name) for one in distributions()}


def list_needed(names: Iterable[str]) -> set[str]:
    """Distributions of these names, and all that they need here."""
    found: set[str] = set()
    left = [normalize(name) for name in names]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            for line in distribution(name).requires or ():
                needed = normalize(re.split(r"[^\w.-]", line, maxsplit=1)[0])
                if "extra ==" not in line and needed in INSTALLED:
                    left.append(needed)
    return found


def test_it_needs_no_more_than_the_guide_installs_which_is_no_django() -> None:
    (lines,) = [code for info, code in find_blocks("docs/api.md", "sh") if info == "once"]
    first, second = lines.splitlines()
    assert second == "pip install --no-deps ."
    allowed = list_needed(first.removeprefix("pip install ").split())
    code = (
        "import sys, runs.client.main, httpx2, rich.console, rich.progress, rich.table\n"
        "print(*{name for name in sys.modules if '.' not in name})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    homes = packages_distributions()
    used = {normalize(home) for name in done.stdout.split() for home in homes.get(name, ())[:1]}
    assert {"typer", "httpx2"} <= used
    # What every Python starts with in an environment for development.
    assert used - allowed <= {"setuptools", "toolflow"}
    assert "django" not in used | allowed
