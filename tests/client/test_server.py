"""What a command says when it is used wrongly, or when what answers is not what it should be."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.client.conftest import ROOT, Terminal

Reply = tuple[int, dict[str, str], bytes]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, TOOLFLOW_URL="http://127.0.0.1:1", TOOLFLOW_TOKEN="tf_0123")


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """A server that gives these replies one after the other; gives the terminal of somebody who was told of it."""
    servers = []

    def make(*replies: Reply) -> Terminal:
        left = list(replies)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = left.pop(0)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return Terminal(tmp_path, TOOLFLOW_URL=f"http://127.0.0.1:{server.server_port}", TOOLFLOW_TOKEN="tf_0123")

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


JSON = {"Content-Type": "application/json"}
PROBLEM = {"Content-Type": "application/problem+json"}
NO_RUNS: Reply = (200, JSON, b'{"items": [], "next": null, "previous": null}')


def test_a_server_that_can_t_be_reached_is_named(terminal: Terminal) -> None:
    done = terminal.run("runs")
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith("toolflow: http://127.0.0.1:1 can’t be reached: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"TOOLFLOW_TOKEN": ""}, "TOOLFLOW_TOKEN is not set."),
        ({"TOOLFLOW_TOKEN": "tf_0123 é"}, "TOOLFLOW_TOKEN holds what no token has"),
        ({"TOOLFLOW_URL": "localhost:8000"}, "“localhost:8000” is no address"),
    ],
)
def test_an_environment_that_lacks_something_is_explained(
    tmp_path: Path, environment: dict[str, str], sentence: str
) -> None:
    known = {"TOOLFLOW_URL": "http://127.0.0.1:1", "TOOLFLOW_TOKEN": "tf_0123", **environment}
    done = Terminal(tmp_path, **known).run("runs")
    assert (done.status, done.err.startswith(f"toolflow: {sentence}")) == (3, True), done.err


@pytest.mark.parametrize(
    "arguments", [["run"], ["runs", "--limit", "0"], ["show", "x"], ["nonsense"], ["flows", "push"], []]
)
def test_wrong_use_has_status_3(terminal: Terminal, arguments: list[str]) -> None:
    done = terminal.run(*arguments)
    assert (done.status, done.out) == (3, "")
    assert "Usage: toolflow" in done.err


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("@nowhere.json", "nowhere.json can’t be read: No such file or directory."),
        ("@broken.json", "broken.json: "),
        ("@binary.json", "binary.json is not UTF-8: byte 0 can’t be read."),
        ("[1]", "The input: "),
        ('{"a": 1, "a": 2}', "The input: "),
    ],
)
def test_an_input_that_can_t_be_read_is_named(terminal: Terminal, source: str, sentence: str) -> None:
    (terminal.folder / "broken.json").write_text('{"topic": ', encoding="utf-8")
    (terminal.folder / "binary.json").write_bytes(b"\xff\x00")
    done = terminal.run("run", "colour-theme", "--input", source)
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith(f"toolflow: {sentence}")


def test_help_and_version_need_no_server(terminal: Terminal) -> None:
    assert "Exit status" in terminal.run("--help").out
    assert terminal.run("--version").out.startswith("toolflow ")


def test_an_address_with_the_path_of_the_api_is_the_same(stand_in: Callable[..., Terminal]) -> None:
    terminal = stand_in(NO_RUNS)
    url = terminal.environment["TOOLFLOW_URL"]
    assert terminal.run("--url", f"{url}/api/v1/", "runs").err == "There are no such runs.\n"


def test_another_server_is_not_taken_for_toolflow(stand_in: Callable[..., Terminal]) -> None:
    page: dict[str, str] = {"Content-Type": "text/html"}
    terminal = stand_in((200, page, b"<p>Hello</p>"), (404, page, b"<p>Nothing</p>"))
    for _ in range(2):
        done = terminal.run("runs")
        assert done.status == 3
        assert "TOOLFLOW_URL" in done.err


def test_a_server_that_moved_is_told_of(stand_in: Callable[..., Terminal]) -> None:
    done = stand_in((301, {"Location": "https://flows.example.com/api/v1/runs"}, b"")).run("runs")
    assert (done.status, done.err.endswith("on to https://flows.example.com; set TOOLFLOW_URL to that.\n")) == (3, True)


def test_a_server_that_asks_for_a_moment_is_given_it(stand_in: Callable[..., Terminal]) -> None:
    busy = (429, {**PROBLEM, "Retry-After": "0"}, b'{"detail": "Too many requests."}')
    away = (503, {**PROBLEM, "Retry-After": "0"}, b'{"detail": "The database is not available."}')
    assert stand_in(busy, away, NO_RUNS).run("runs").status == 0


def test_a_server_that_stays_away_is_given_up(stand_in: Callable[..., Terminal]) -> None:
    away = (503, {**PROBLEM, "Retry-After": "0"}, b'{"detail": "The database is not available."}')
    done = stand_in(away, away, away, away).run("runs")
    assert (done.status, done.err) == (3, "toolflow: The database is not available.\n")


def test_whoever_reads_along_may_stop(stand_in: Callable[..., Terminal]) -> None:
    with stand_in(NO_RUNS).begin("runs", "--json") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, "")


def test_it_needs_no_django() -> None:
    code = "import runs.client.main, sys; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "'typer'" in done.stdout
    assert "'django'" not in done.stdout
