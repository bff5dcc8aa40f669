"""What the blocks of the guide “Automate ToolFlow” do where a server refuses, or has too much to do."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from pytest_django.live_server_helper import LiveServer

from flows.models import Flow
from runs.models import TokenScope
from tests.api.asking import make_token, make_user
from tests.api.stand_in import NO_RUNS, Reply, StandIn, answer_json, answer_problem
from tests.api.test_guide import GUIDE
from tests.test_docs import find_blocks

SITE = "http://toolflow.test"
FLOW = "title: {title}\nname: {name}\nsteps:\n  - name: Copy\n    compute: {compute}\n"


@pytest.mark.django_db(transaction=True)
def test_a_job_that_sends_flow_files_fails_with_the_first_that_is_refused(
    live_server: LiveServer, groups: None, tmp_path: Path
) -> None:
    (code,) = (code for info, code in find_blocks(GUIDE, "sh") if not info and "-X PUT" in code)
    folder = tmp_path / "my-flows"
    folder.mkdir()
    for name, compute in (("a", "input"), ("b", "no expression at all"), ("c", "input")):
        (folder / f"{name}.yaml").write_text(FLOW.format(title=name, name=name, compute=compute))
    token = make_token(make_user("ada", "Editor"), TokenScope.EDIT)
    environment = {"PATH": os.environ["PATH"], "TOOLFLOW_URL": live_server.url, "TOOLFLOW_TOKEN": token}

    def send() -> subprocess.CompletedProcess[str]:
        # Without “-e”, as a shell is that goes on after mistakes.
        command = ["bash", "-c", code]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    refused = send()
    assert refused.returncode == 22, refused.stderr
    assert "urn:toolflow:problem:invalid-body" in refused.stdout
    assert set(Flow.objects.values_list("name", flat=True)) == {"a"}
    (folder / "b.yaml").write_text(FLOW.format(title="b", name="b", compute="input"))
    assert send().returncode == 0
    assert set(Flow.objects.values_list("name", flat=True)) == {"a", "b", "c"}


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the guide’s Python sleeps, which takes no time here."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


Follow = Callable[..., list[str]]


@pytest.fixture
def follow_guide(monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Runs the block of the guide that defines a function against a server that gives these replies.

    Gives the addresses that were asked for.
    """

    def follow(function: str, *replies: Reply) -> list[str]:
        (code,) = (code for info, code in find_blocks(GUIDE, "python") if f"def {function}(" in code)
        with closing(StandIn(replies)) as server, requests.Session() as api:
            # Every name leads to it.
            monkeypatch.setenv("http_proxy", server.url)
            monkeypatch.setenv("no_proxy", "")
            monkeypatch.setenv("TOOLFLOW_URL", SITE)
            monkeypatch.setenv("TOOLFLOW_TOKEN", "tfl_guide")
            names = {"api": api, "URL": f"{SITE}/api/v1", "time": time}
            exec(compile(code, GUIDE, "exec"), names)  # noqa: S102  # the guide’s own code is what is tried
        return [asked.path for asked in server.asked]

    return follow


def answer_run(status: str, **fields: Any) -> Reply:
    return answer_json({"id": 7, "status": status, "url": f"{SITE}/api/v1/runs/7", **fields})


def test_whoever_waits_for_a_run_goes_on_after_too_many_requests_and_while_the_database_is_away(
    follow_guide: Follow, naps: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    end = {"end_sentence": "All steps passed.", "steps": [{"attempts": [{"output": {"colour": "teal"}}]}]}
    busy, away = answer_problem(429, "throttled", Retry_After="7"), answer_problem(503, "unavailable")
    asked = follow_guide(
        "wait", answer_run("queued"), busy, away, answer_run("running"), answer_run("succeeded", **end)
    )
    assert asked == [f"{SITE}/api/v1/runs", *[f"{SITE}/api/v1/runs/7"] * 4]
    assert naps == [1, 7, 1, 5, 1, 1]
    assert capsys.readouterr().out == "succeeded - All steps passed.\n{'colour': 'teal'}\n"


@pytest.mark.parametrize("status", [401, 404, 500])
def test_whoever_waits_for_a_run_is_told_what_else_is_refused(
    follow_guide: Follow, naps: list[float], status: int
) -> None:
    with pytest.raises(requests.HTTPError, match=rf"^{status} "):
        follow_guide("wait", answer_run("queued"), answer_problem(status))


def test_whoever_reads_a_list_is_told_that_it_was_refused(follow_guide: Follow, naps: list[float]) -> None:
    with pytest.raises(requests.HTTPError, match=r"^401 "):
        follow_guide("list_all", NO_RUNS, answer_problem(401, "not-authenticated"))
