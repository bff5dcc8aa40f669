"""What a process of ToolFlow doesn’t load, as each would start later and need more memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WEB_SERVERS_ALONE = ("drf_spectacular.plumbing", "rest_framework.views", "requests", "django.contrib.postgres.fields")
NOBODY_AT_START = ("prompt_toolkit", "typer", "rich", "openai", "django.test", "redis", "psycopg")


def test_a_command_loads_neither_the_api_nor_what_only_terminals_clients_or_tests_need(tmp_path: Path) -> None:
    code = f"""
import sys
import django
django.setup()
print([name for name in {WEB_SERVERS_ALONE + NOBODY_AT_START} if name in sys.modules])
import flows.engine.expressions
print("cel" in sys.modules, "prompt_toolkit" in sys.modules)
from django.core.management import CommandError, call_command
try:
    call_command("run_worker", skip_checks=False)
except CommandError as error:
    print("not up to date" in str(error), "toolflow_site.urls" in sys.modules)
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLOW_", "OPENAI_"))}
    kept.pop("DATABASE_URL", None)
    mine = {
        "DJANGO_SETTINGS_MODULE": "toolflow_site.settings",
        "TOOLFLOW_DATA_DIR": str(tmp_path),
        "TOOLFLOW_ENV_FILE": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=kept | mine, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded, engine, worker = done.stdout.splitlines()
    assert loaded == "[]"
    assert engine == "True False"
    assert worker == "True False"
