"""The command that starts a run over the REST API: what a shell makes of it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from runs.pages.curl_command import LONGEST, build_curl_command
from tests.engine.builders import make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import get_page, read_words, run_address

ADDRESS = "https://toolflow.example/api/v1/runs"
SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh") if shutil.which(shell)]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ``curl`` that writes down its arguments, each ended by NUL."""
    folder = tmp_path_factory.mktemp("bin")
    curl = folder / "curl"
    curl.write_text('#!/bin/sh\nprintf "%s\\0" "$@" > "$WRITES_TO"\n')
    curl.chmod(curl.stat().st_mode | stat.S_IXUSR)
    return folder


def run_command(stub: Path, shell: str, command: str) -> list[str]:
    """The arguments that ``curl`` gets."""
    written = stub / "arguments"
    environment = {
        "PATH": f"{stub}{os.pathsep}{os.environ['PATH']}",
        "WRITES_TO": str(written),
        "TOOLFLOW_TOKEN": "t0k",
    }
    # Interactive, as where people paste it: there “!” means something in some shells.
    flags = ["-i"] if shell == "bash" else []
    subprocess.run([shell, *flags], input=f"{command}\n", env=environment, text=True, check=True, capture_output=True)
    return written.read_text().split("\0")[:-1]


def read_body(arguments: list[str]) -> Any:
    assert arguments[:-1] == [
        "-X",
        "POST",
        ADDRESS,
        "-H",
        "Authorization: Bearer t0k",
        "-H",
        "Content-Type: application/json",
        "--data",
    ]
    return json.loads(arguments[-1])


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "input",
    [
        {},
        {"topic": "tea"},
        {"quote": 'it\'s "so" `date` $HOME $(date) \\ !! !x ; & | > < * ? # ~ {a,b}'},
        {"lines": "one\ntwo\r\n\tthree\u2028four", "end": "\\"},
        {"letters": "ä€😀\u202e\u0000\x1b[31m\x7f", "half": "\ud83d"},
        {"@file": "@/etc/passwd", "deep": [1, 2.5, None, True, {"!": "'"}]},
    ],
)
def test_every_shell_hands_on_the_input_exactly(stub: Path, shell: str, input: Any) -> None:
    command = build_curl_command(ADDRESS, "colour-theme", 3, input)
    assert command is not None
    assert read_body(run_command(stub, shell, command)) == {
        "flow": "colour-theme",
        "version": 3,
        "input": input,
    }


@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=9), st.text(max_size=30), max_size=4))
def test_any_texts_come_through(stub: Path, input: dict[str, str]) -> None:
    command = build_curl_command(ADDRESS, "colour-theme", 3, input)
    assert command is not None
    assert command.isascii()
    assert read_body(run_command(stub, "sh", command))["input"] == input


def test_what_no_terminal_takes_is_not_offered() -> None:
    assert build_curl_command(ADDRESS, "colour-theme", 3, {"text": "x" * LONGEST}) is None


@pytest.mark.django_db
class TestPage:
    def test_the_page_has_the_command_that_the_api_takes(self, operator: Client) -> None:
        run = make_run(make_version(make_page_flow()), input={"text": "<b>it's</b>"})
        page = get_page(operator, run_address(run))
        assert 'data-copies="run-curl"' in page
        assert f"curl -X POST http://testserver{reverse('api:run-list')} " in page
        assert "&lt;b&gt;it\\u0027s&lt;/b&gt;" in page
        body = '{"flow": "colour-theme", "version": 1, "input": {"text": "<b>it\\u0027s</b>"}}'
        assert body.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") in page
        answer = operator.post(reverse("api:run-list"), body, content_type="application/json")
        assert answer.status_code == 202
        assert answer.json()["status"] == "queued"

    def test_it_starts_the_version_that_the_run_had(self, operator: Client) -> None:
        run = make_run(make_version(make_page_flow()))
        make_version(make_page_flow(make_step(1)))
        page = get_page(operator, run_address(run))
        assert 'title="Copy a command that starts a run of version 1 with this input over the API"' in page
        body = page.partition("--data &#x27;")[2].partition("&#x27;</pre>")[0].replace("&quot;", '"')
        answer = operator.post(reverse("api:run-list"), body, content_type="application/json")
        assert answer.json()["version"] == 1

    def test_where_there_is_none_the_page_says_why(self, operator: Client) -> None:
        run = make_run(make_version(make_page_flow()), input={"text": "x" * LONGEST})
        page = get_page(operator, run_address(run))
        assert "run-curl" not in page
        sentence = "There is no curl command to copy: with this input it would be too long for a terminal."
        assert sentence in read_words(page)
        assert sentence not in read_words(get_page(operator, run_address(make_run(run.version))))
