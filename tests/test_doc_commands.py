"""Blocks of README and the guides, run as they are: scripts, and commands on an installation of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.engine import Script, SimulatedModel
from tests.databases import share_sqlite_template
from tests.engine.model_server import ModelServer
from tests.processes import ROOT, clean_environment, run_python, start_python
from tests.test_docs import find_blocks

TIMEOUT = 120
"""Seconds that a block may take on a busy machine."""
SET_UP = """
from django.contrib.auth.models import User
from flows.examples import load_examples
load_examples()
User.objects.create_superuser('ada')
"""


class Installation:
    """A folder with ``manage.py``, ``.venv``, the example flows and the administrator “ada”, to run commands in."""

    def __init__(self, folder: Path, template: Path) -> None:
        """``template``: a database with empty tables."""
        self.folder = folder
        self.environment = {
            **clean_environment(),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
            "TOOLFLOW_ENV_FILE": os.devnull,
            "TOOLFLOW_DATA_DIR": str(folder / "var"),
        }
        (folder / "var").mkdir()
        shutil.copy(template, folder / "var/toolflow.sqlite3")
        (folder / "manage.py").symlink_to(ROOT / "manage.py")
        (folder / ".venv").symlink_to(sys.prefix)
        self.run(f'python manage.py shell -c "{SET_UP}"')

    def run(self, code: str) -> str:
        """What the code prints; every line of it has to succeed."""
        command = ["bash", "-euo", "pipefail", "-c", code]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def installation(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path, share_sqlite_template(tmp_path_factory))


def run_script(code: str, folder: Path, **environment: str) -> str:
    """What a script prints that finds the modules of the folder, in a process that has no Django configured."""
    found = {**clean_environment(), "PYTHONPATH": f"{ROOT}:{folder}", **environment}
    done = run_python("-c", code, cwd=folder, environment=found, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_runs_a_flow_from_the_terminal(installation: Installation) -> None:
    (_, code) = find_blocks("README.md", "sh")[-1]
    with (installation.folder / "worker.log").open("wb") as log:
        arguments = ("manage.py", "run_worker")
        with start_python(*arguments, cwd=ROOT, environment=installation.environment, output=log) as worker:
            try:
                printed = installation.run(code)
            finally:
                worker.terminate()
    assert "Succeeded: All steps passed." in printed and '"Draft the answer"' in printed


def test_the_script_of_the_readme_runs_against_a_server(tmp_path: Path) -> None:
    ((_, code),) = find_blocks("README.md", "python")
    lines = ["Salt on every word", "the gulls correct my spelling", "tide takes the last page"]
    replies = [{"title": "Salt", "lines": lines[:2]}, {"title": "On the sea", "lines": lines}]
    app = SimulatedModel(script=Script({"haiku": replies}), api_keys={"sk-readme"})
    with ModelServer(app) as server:
        environment = {"OPENAI_API_KEY": "sk-readme", "OPENAI_BASE_URL": server.base_url}
        printed = run_script(code, tmp_path, **environment).splitlines()
    issues = ["attempt 1: A haiku has 3 lines, this one has 2.", "attempt 1: Name the sea."]
    assert printed == ["All steps passed.", *lines, *issues]
    assert app.call_count == 2


PLUGIN_CHECK = """
import json
import company_plugins
from flows.engine import AuditSpec, FlowSpec, Script, SimulatedModel, StepSpec, run_flow_sync, simulated_client

lines = [{"text": "Paper", "amount": 20.0}, {"text": "Freight", "amount": 5.0}]
good = {"supplier": "Elbe Office AG", "due": "2026-12-02", "lines": lines, "total": 25.0}
wrong = [{"due": "soon"}, {"total": 52.0}, {"supplier": "Elbe Office"}, {"due": "2026-01-01"}, {}]
audits = [AuditSpec(name=name, rule=f"python:{name}") for name in ("known_supplier", "not_overdue")]
read = StepSpec(
    name="Read", tool_name="read_invoice", output_type="invoice", max_retries=4, audits=tuple(audits)
)
book = StepSpec(name="Book", compute="python:to_booking")
client = simulated_client(SimulatedModel(script=Script({"read_invoice": [{**good, **one} for one in wrong]})))
result = run_flow_sync(FlowSpec(name="booking", steps=(read, book)), {"received": "2026-11-20"}, client=client)
attempts = result.step(1).attempts
found = [[one.outcome, [[issue.code, issue.path] for issue in one.issues]] for one in attempts]
print(json.dumps({"attempts": found, "booking": result.step(2).output, "plugins": sorted(attempts[-1].plugins)}))
"""


def test_the_plug_ins_of_the_page_work_as_it_says(tmp_path: Path) -> None:
    code = "".join(code for _, code in find_blocks("docs/plugins.md", "python"))
    (tmp_path / "company_plugins.py").write_text(code, encoding="utf-8")
    assert json.loads(run_script(PLUGIN_CHECK, tmp_path)) == {
        "attempts": [
            ["invalid", [["schema_mismatch", "/due"]]],
            ["failed", [["wrong_total", "/total"]]],
            ["failed", [["known_supplier", "/supplier"]]],
            ["failed", [["not_overdue", None]]],
            ["passed", []],
        ],
        "booking": {"account": "70044", "cents": 2500, "received": "2026-11-20"},
        "plugins": ["invoice", "python:known_supplier", "python:not_overdue"],
    }
