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


def refuse(name: str, directory: Path) -> str:
    with pytest.raises(CommandError) as caught:
        start_plugin(name, directory)
    return str(caught.value)


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python as somebody starts it who has ToolFlow, and no settings of Django."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DJANGO", "PYTEST"))}
    # The plug-ins of pytest that happen to be installed here take longer to load than these tests to run.
    environment |= {"PYTHONPATH": str(settings.BASE_DIR), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_written_tests_pass_without_django(tmp_path: Path) -> None:
    start_plugin("acme_invoices", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["acme_invoices.py", "test_acme_invoices.py"]
    done = run_python(
        "-m", "pytest", "-p", "no:django", "-p", "no:cacheprovider", "test_acme_invoices.py", cwd=tmp_path
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    imported = run_python("-c", "import sys, acme_invoices; print('django' in sys.modules)", cwd=tmp_path)
    assert imported.stdout.strip() == "False", imported.stderr


def test_the_written_tests_fail_when_the_plug_in_is_broken(tmp_path: Path) -> None:
    start_plugin("acme_invoices", tmp_path)
    module = tmp_path / "acme_invoices.py"
    module.write_text(module.read_text().replace("<= MAX_TITLE", "< 0"))
    done = run_python(
        "-m", "pytest", "-p", "no:django", "-p", "no:cacheprovider", "test_acme_invoices.py", cwd=tmp_path
    )
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr


def test_it_says_in_order_how_to_go_on(tmp_path: Path) -> None:
    told = start_plugin("acme_invoices", tmp_path)
    steps = [
        "1. Run its tests",
        "2. Make it your own",
        f"3. Make it importable: add {tmp_path}",
        "4. Let ToolFlow load",
    ]
    places = [told.index(step) for step in steps]
    assert places == sorted(places)
    assert "TOOLFLOW_PLUGINS=flows.examples.plugins,acme_invoices" in told


@pytest.mark.parametrize("present", ["acme_invoices.py", "test_acme_invoices.py"])
def test_nothing_is_overwritten(tmp_path: Path, present: str) -> None:
    (tmp_path / present).write_text("mine")
    assert "exists already, and nothing is overwritten" in refuse("acme_invoices", tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("3invoices", "can't be the name of a module"),
        ("acme-invoices", "can't be the name of a module"),
        ("../acme", "can't be the name of a module"),
        ("rechnungsprüfung", "can't be the name of a module"),
        ("class", "can't be the name of a module"),
        ("", "can't be the name of a module"),
        ("a" * 61, "has 61 characters; at most 60 are allowed"),
        ("json", "There is a module “json” already"),
        ("sys", "There is a module “sys” already"),
        ("flows", "There is a module “flows” already"),
        ("__main__", "There is a module “__main__” already"),
    ],
)
def test_names_that_can_not_be_get_a_sentence(tmp_path: Path, name: str, says: str) -> None:
    assert says in refuse(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_module_without_its_tests_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = Path.open

    def refuse_tests(self: Path, *args: str, **options: str) -> object:
        if self.name.startswith("test_"):
            raise PermissionError(13, "Permission denied")
        return open_file(self, *args, **options)  # type: ignore[call-overload]  # as it was called

    monkeypatch.setattr(Path, "open", refuse_tests)
    assert "can't be written: Permission denied." in refuse("acme_invoices", tmp_path)
    assert list(tmp_path.iterdir()) == []
