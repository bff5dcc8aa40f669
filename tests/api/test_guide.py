"""The guide “Automate ToolFlow” works as written: its blocks are run against a live server, one after the other."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from pytest_django.live_server_helper import LiveServer
from standardwebhooks import Webhook

from flows.examples import load_examples
from runs.api.documentation import build_schema, write_yaml
from runs.backtests.work import work_on
from runs.client.__main__ import app
from runs.models import Backtest, Run, RunStatus
from tests.api.asking import create_token, make_user
from tests.runs.executing import drain
from tests.test_docs import ROOT, find_blocks, read_page, read_table
from tests.waiting import wait_until

GUIDE = "docs/api.md"
TIMEOUT = 120.0


@pytest.fixture
def surroundings(live_server: LiveServer, groups: None) -> dict[str, str]:
    """What a script finds in its environment, on an installation with the example flows."""
    load_examples()
    token = create_token(make_user("ada", "Editor"))
    return {"PATH": os.environ["PATH"], "TOOLFLOW_URL": live_server.url, "TOOLFLOW_TOKEN": token}


def has_work() -> bool:
    """Whether something waits for a worker."""
    return Run.objects.filter(status=RunStatus.QUEUED).exists() or Backtest.objects.unfinished().exists()


def run_script(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """What a script prints while a worker executes the runs and backtests that it starts."""
    with (folder / "printed").open("w+") as printed, (folder / "complaints").open("w+") as complaints:
        with subprocess.Popen(command, env=environment, cwd=folder, stdout=printed, stderr=complaints) as script:
            while script.poll() is None:
                wait_until(
                    lambda: script.poll() is not None or has_work(),
                    within=TIMEOUT,
                    what="the script goes on",
                )
                drain()
                for backtest in Backtest.objects.unfinished():
                    work_on(backtest.pk, timeout=TIMEOUT)
        printed.seek(0)
        complaints.seek(0)
        assert script.returncode == 0, complaints.read()
        return printed.read()


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True, reset_sequences=True)
def test_the_commands_of_the_guide_work(surroundings: dict[str, str], tmp_path: Path) -> None:
    commands = "\necho; echo ====\n".join(code for info, code in find_blocks(GUIDE, "sh") if not info)
    printed = run_script(["bash", "-euo", "pipefail", "-c", commands], surroundings, tmp_path)
    flows, run, labelled, refused, again, judged, exported, lost, created, read, stored, changed, used = printed.split(
        "\n====\n"
    )
    assert json.loads(created)["live_version"] == 1
    assert "colour-theme" in [flow["name"] for flow in json.loads(flows)["items"]]
    assert json.loads(run)["status"] == "succeeded"
    (attempt,) = json.loads(refused)["items"]
    assert attempt["outcome"] == "failed" and attempt["output"] and attempt["issues"]
    assert json.loads(labelled)["labels"] == ["checked", "guide"]
    assert json.loads(again)["run_count"] == 1
    assert json.loads(judged)["run_count"] >= 1
    lines = (tmp_path / "runs.jsonl").read_text("utf-8").splitlines()
    assert exported == "" and json.loads(lines[-1])["steps"][1]["attempts"]
    assert json.loads(lost)["items"] == []
    assert json.loads(changed)["max_runs_in_flight"] == 20
    assert json.loads(used)["group_by"] == ["model", "day"]
    assert read == "" and "name: colour-theme\n" in (tmp_path / "my-flows" / "colour-theme.yaml").read_text("utf-8")
    assert json.loads(stored)["made_version"] is None


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True, reset_sequences=True)
def test_the_command_works_as_the_guide_says(surroundings: dict[str, str], tmp_path: Path) -> None:
    command = tmp_path / "toolflow"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m runs.client "$@"\n')
    command.chmod(0o755)
    environment = {**surroundings, "PATH": f"{tmp_path}:{surroundings['PATH']}", "PYTHONPATH": str(ROOT)}
    commands = "".join(code for info, code in find_blocks(GUIDE, "sh") if info == "toolflow")
    printed = run_script(["bash", "-euo", "pipefail", "-c", commands], environment, tmp_path)
    assert "succeeded" in printed.lower()
    assert (tmp_path / "my-flows" / "colour-theme.yaml").exists()
    themes = [json.loads(line) for line in (tmp_path / "themes.jsonl").read_text("utf-8").splitlines()]
    assert [(one["line"], one["status"], bool(one["output"])) for one in themes] == [
        (1, "succeeded", True),
        (2, "succeeded", True),
    ]
    assert "max_runs_in_flight: — → 20" in printed
    assert len((tmp_path / "runs.jsonl").read_text("utf-8").splitlines()) >= 3


def test_the_guide_has_all_commands_of_toolflow() -> None:
    documented = set(
        re.findall(r"`([a-z -]+)`", " ".join(row[0] for row in read_table(GUIDE, "## The command `toolflow`")))
    )
    groups = {str(group.name): group.typer_instance for group in app.registered_groups}
    own = {str(command.name) for command in app.registered_commands}
    below = {f"{name} {command.name}" for name, group in groups.items() for command in group.registered_commands}  # type: ignore[union-attr]  # each has one
    assert documented == own | below


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_the_python_of_the_guide_works(surroundings: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "guide.py").write_text("\n".join(code for info, code in find_blocks(GUIDE, "python") if not info))
    printed = run_script([sys.executable, "guide.py"], surroundings, tmp_path)
    assert printed.startswith("succeeded - ")
    assert ", attempt 1: failed" in printed
    assert "25 runs are queued." in printed
    assert len(re.findall(r"^\d+ succeeded ", printed, re.MULTILINE)) == 25
    assert "422 urn:toolflow:problem:invalid-body" in printed
    assert "/colour Unknown field." in printed


def test_the_receiver_of_the_guide_believes_only_what_is_signed(tmp_path: Path) -> None:
    (code,) = [code for info, code in find_blocks(GUIDE, "python") if info == "receiver"]
    (tmp_path / "receiver.py").write_text(code)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    secret = "whsec_" + "QUJD" * 8
    body = json.dumps({"type": "run.failed", "data": {"id": 7}})
    signature = Webhook(secret).sign("msg-1", datetime.now(UTC), body)
    headers = {"webhook-id": "msg-1", "webhook-timestamp": str(int(datetime.now(UTC).timestamp()))}
    environment = {"PATH": os.environ["PATH"], "WEBHOOK_SECRET": secret, "PORT": str(port)}
    command = [sys.executable, "receiver.py"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as receiver:

        def send(signature: str) -> int:
            sent = {**headers, "webhook-signature": signature}
            try:
                return requests.post(f"http://127.0.0.1:{port}", body, headers=sent, timeout=5).status_code
            except requests.ConnectionError:
                return 0

        try:
            forged = wait_until(lambda: send("v1,forged"), within=60, what="the receiver listens")
            answers = [forged, send("v1,Zm9yZ2Vk"), send(signature)]
        finally:
            receiver.terminate()
        printed, _ = receiver.communicate()
    assert answers == [401, 401, 204]
    assert printed == "msg-1 run.failed 7\n"


def test_what_the_guide_asks_for_is_in_the_document() -> None:
    document = write_yaml(build_schema())
    for method, path in re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`?]*)`", read_page(GUIDE)):
        pattern = re.escape(path).replace(r"\{id\}", r"\{\w+\}")
        assert re.search(rf"^  {pattern}:\n(?:    .*\n)*?    {method.lower()}:", document, re.MULTILINE), (method, path)
