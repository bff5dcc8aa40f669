"""What a command says when it is used wrongly, or when what answers is not what it should be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import distribution, distributions, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from runs.client.main import app
from tests.client.conftest import ROOT, Terminal
from tests.client.stand_in import JSON, NO_RUNS, PROBLEM
from tests.test_docs import find_blocks


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, TOOLFLOW_URL="http://127.0.0.1:1", TOOLFLOW_TOKEN="tf_0123")


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
        ({"TOOLFLOW_URL": "http://[::1"}, "“http://[::1” is no address"),
        ({"TOOLFLOW_URL": "http://localhost:abc"}, "“http://localhost:abc” is no address"),
        ({"TOOLFLOW_URL": "http://localhost:80000"}, "“http://localhost:80000” is no address"),
        ({"TOOLFLOW_URL": "http://:8000"}, "“http://:8000” is no address"),
        ({"HTTPS_PROXY": "nonsense://a"}, "Nothing can be asked for: "),
    ],
)
def test_an_environment_that_lacks_something_is_explained(
    tmp_path: Path, environment: dict[str, str], sentence: str
) -> None:
    known = {"TOOLFLOW_URL": "http://127.0.0.1:1", "TOOLFLOW_TOKEN": "tf_0123", **environment}
    done = Terminal(tmp_path, **known).run("runs")
    assert (done.status, done.err.startswith(f"toolflow: {sentence}")) == (3, True), done.err


@pytest.mark.parametrize(
    "address", ["http://me:sesame@localhost:1", "http://me:sesame@localhost:abc", "http://localhost:1/?key=sesame"]
)
def test_an_address_with_a_password_is_refused_and_not_shown(tmp_path: Path, address: str) -> None:
    done = Terminal(tmp_path, TOOLFLOW_URL=address, TOOLFLOW_TOKEN="tf_0123").run("runs")
    assert (done.status, "sesame" in done.err) == (3, False)
    assert "without a user name, a password" in done.err and "The token alone signs in." in done.err


@pytest.mark.parametrize(
    ("arguments", "character"),
    [(["--label", "\udcff"], "U+DCFF"), (["--idempotency-key", "schlüssel"], "U+00FC")],
    ids=["label", "key"],
)
def test_what_can_not_be_sent_is_no_fault_of_the_server(
    stand_in: Callable[..., Terminal], arguments: list[str], character: str
) -> None:
    terminal = stand_in()
    done = terminal.run("run", "a", "--input", "{}", *arguments)
    said = f"toolflow: What was typed can’t be sent to {terminal.environment['TOOLFLOW_URL']}: "
    assert (done.status, done.err) == (3, f"{said}the character {character} can’t stand in it.\n")
    assert terminal.asked == []


@pytest.mark.parametrize("entry", ["module", "installed"])
def test_ctrl_c_ends_a_command_also_while_it_loads(tmp_path: Path, entry: str) -> None:
    # What Python does on Ctrl-C, in the midst of what takes longest.
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, name = scripts["toolflow"].partition(":")
    starts = {
        "module": ["-m", "runs.client"],
        "installed": ["-c", f"import sys; from {module} import {name}; sys.exit({name}())"],
    }
    done = subprocess.run(
        [sys.executable, *starts[entry], "runs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


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
        ('{"a": "\\ud800"}', "The input has characters"),
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


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "is not ToolFlow; TOOLFLOW_URL should be its address."),
        (b'{"items": [{"id": 7, "fl', "sent JSON that can’t be read: "),
        (b"[" * 100_000, "sent JSON that can’t be read: "),
        (b"\xff\xfe", "sent JSON that can’t be read: "),
        (b'[{"id": 7}]', "is not ToolFlow; TOOLFLOW_URL should be its address."),
        (b'{"hello": "world"}', "The server’s answer has no “items”; TOOLFLOW_URL should be the address of a ToolFlow"),
        (b'{"items": [{}], "next": null}', "The server’s answer has no “id”; "),
        (b'{"items": [7], "next": null}', "by a fault of the server’s answer or of toolflow itself (TypeError: "),
    ],
    ids=["empty", "broken", "deep", "bytes", "list", "another", "lacking", "number"],
)
def test_an_answer_that_is_none_is_told_in_a_sentence(
    stand_in: Callable[..., Terminal], body: bytes, sentence: str
) -> None:
    done = stand_in((200, JSON, body)).run("runs")
    assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert done.err.startswith("toolflow: ") and sentence in done.err


def test_a_refusal_of_another_shape_is_told_all_the_same(stand_in: Callable[..., Terminal]) -> None:
    for errors, lines in ((b"5", []), (b'[5, {"pointer": "/a"}, {"pointer": "/a", "detail": 7}]', ["  /a: 7"])):
        done = stand_in((422, PROBLEM, b'{"detail": "No.", "errors": %b}' % errors)).run("runs")
        assert (done.status, done.err.splitlines()) == (3, ["toolflow: No.", *lines])


def test_a_flow_file_is_not_replaced_by_nothing(stand_in: Callable[..., Terminal]) -> None:
    flow = (200, JSON, b'{"name": "a", "latest_version": 1}')
    terminal = stand_in(flow, (200, {"Content-Type": "application/yaml"}, b""))
    (terminal.folder / "a.yaml").write_text("name: a\n", encoding="utf-8")
    assert terminal.run("flows", "pull", "a").status == 3
    assert (terminal.folder / "a.yaml").read_text(encoding="utf-8") == "name: a\n"


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


def test_every_command_says_what_it_has_as_json() -> None:
    def list_commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from list_commands(command, *names, name)
            else:
                yield " ".join((*names, name)), command

    found = dict(list_commands(get_command(app)))
    without = {name for name, command in found.items() if not any("--json" in option.opts for option in command.params)}
    # What it writes is JSON already, or a table for other programs.
    assert (len(found) > 10, without) == (True, {"export"})


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
    # Imported like nothing else: by everything that commands use.
    code = (
        "import importlib, pkgutil, runs.client, sys\n"
        "for module in pkgutil.iter_modules(runs.client.__path__, 'runs.client.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(*{name for name in sys.modules if '.' not in name})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    homes = packages_distributions()
    used = {normalize(home) for name in done.stdout.split() for home in homes.get(name, ())[:1]}
    assert {"typer", "httpx2"} <= used
    # What every Python starts with in an environment for development.
    assert used - allowed <= {"setuptools", "toolflow"}
    assert "django" not in used | allowed
