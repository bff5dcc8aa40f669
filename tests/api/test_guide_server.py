"""What the guide “Automate ToolFlow” says to do on the server works, too: it leads to a token, and to the secret."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from pytest_django.live_server_helper import LiveServer
from standardwebhooks import Webhook

from flows.examples import load_examples
from runs.models import Run, WebhookDelivery
from runs.rollup import count_ended_runs
from runs.webhooks.messages import build_headers
from runs.webhooks.secrets import fetch_installation_secret, list_secrets, sign
from tests.api.test_guide import GUIDE
from tests.runs.executing import drain
from tests.test_docs import find_blocks, read_page

PATIENCE = 60


def find_code(*wanted: str) -> list[str]:
    return [code for info, code in find_blocks(GUIDE, "sh") if info in wanted]


def run_manage(line: str) -> str:
    """What ``manage.py`` prints for such a line, run in this process: on the database of the test."""
    printed = StringIO()
    call_command(*shlex.split(line), stdout=printed, stderr=StringIO())
    return printed.getvalue().strip()


@pytest.fixture
def printed(db: None) -> dict[str, str]:
    """What each command of the blocks for the server prints, on an installation as “make up” leaves it."""
    User.objects.create_superuser("admin")
    load_examples()
    lines = re.findall(r"manage\.py ([^)\n]+)\)", "\n".join(find_code("on the server", "receiver")))
    return {line: run_manage(line) for line in lines}


@pytest.mark.django_db(transaction=True)
def test_it_leads_to_a_token_that_reads_and_starts_runs_and_to_the_secret_of_their_webhooks(
    printed: dict[str, str], live_server: LiveServer, tmp_path: Path, settings: Any
) -> None:
    settings.TOOLFLOW_WEBHOOK_ALLOW = re.findall(r"`TOOLFLOW_WEBHOOK_ALLOW=(\S+) make up`", read_page(GUIDE))
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    cases = "".join(f"  {shlex.quote(' '.join(shlex.split(line)))}) echo {out} ;;\n" for line, out in printed.items())
    python.write_text(f'#!/bin/sh\ncase "${{*#manage.py }}" in\n{cases}  *) exit 9 ;;\nesac\n')
    python.chmod(0o755)
    (token,) = find_code("on the server")
    (start,) = find_code("another terminal")
    (receive,) = find_code("receiver")
    receive = receive.replace("python3 receiver.py", 'echo; echo ====; echo "$WEBHOOK_SECRET"')
    where = f"export TOOLFLOW_URL={live_server.url}"
    script = "\n".join([token, where, find_code("")[0], "echo; echo ====", start, receive])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    flows, run, secret = done.stdout.split("\n====\n")
    assert "colour-theme" in [flow["name"] for flow in json.loads(flows)["items"]]
    stored = Run.objects.get(pk=json.loads(run)["id"])
    assert stored.webhook_url == "http://127.0.0.1:9000/"
    drain()
    count_ended_runs()
    assert WebhookDelivery.objects.filter(run=stored).exists()
    at = datetime.now(UTC)
    signature = sign(list_secrets(fetch_installation_secret()), message_id="msg-1", at=at, body="{}")
    headers = build_headers(message_id="msg-1", at=at, signature=signature)
    assert Webhook(secret.strip()).verify("{}", headers) == {}
