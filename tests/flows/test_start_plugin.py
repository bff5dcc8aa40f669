"""``manage.py start_plugin``: what it writes works at once, and nothing of the user's is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command


def start_plugin(name: str, directory: Path) -> str:
    out = StringIO()
    call_command("start_plugin", name, directory=directory, stdout=out)
    return out.getvalue()


def run_tests(folder: Path) -> str:
    """What pytest says in the shell of a user who has ToolFlow, and no settings of Django."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DJANGO", "PYTEST"))}
    # The plug-ins of pytest that happen to be installed here take longer to load than these tests to run.
    environment |= {"PYTHONPATH": str(settings.BASE_DIR), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_acme_invoices.py"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def test_the_written_tests_pass_without_django_until_the_plug_in_is_broken(tmp_path: Path) -> None:
    start_plugin("acme_invoices", tmp_path)
    module, test = tmp_path / "acme_invoices.py", tmp_path / "test_acme_invoices.py"
    test.write_text(f"{test.read_text()}\n\ndef test_no_django() -> None:\n    assert 'django' not in sys.modules\n")
    test.write_text(f"import sys\n{test.read_text()}")
    assert "5 passed" in run_tests(tmp_path)
    module.write_text(module.read_text().replace("<= MAX_TITLE", "< 0"))
    assert "1 failed, 4 passed" in run_tests(tmp_path)


def test_the_next_steps_name_the_module_and_its_directory(tmp_path: Path) -> None:
    shown = start_plugin("acme_invoices", tmp_path)
    assert str(tmp_path) in shown
    assert "TOOLFLOW_PLUGINS=flows.examples.plugins,acme_invoices" in shown


@pytest.mark.parametrize("present", ["acme_invoices.py", "test_acme_invoices.py"])
def test_nothing_is_overwritten(tmp_path: Path, present: str) -> None:
    (tmp_path / present).write_text("mine")
    with pytest.raises(CommandError, match="already exists"):
        start_plugin("acme_invoices", tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "name",
    ["3invoices", "acme-invoices", "../acme", "prüfung", "class", "", "a" * 61, "json", "sys", "flows", "__main__"],
)
def test_names_that_can_not_be_imported_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match=r"name of a module|at most 60|already"):
        start_plugin(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
