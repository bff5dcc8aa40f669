"""``manage.py start_plugin``: a plug-in module to begin with, and its tests."""

from __future__ import annotations

import importlib.util
import os
import sys
from argparse import ArgumentParser
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

MAX_NAME_LENGTH = 60
"""Characters: with the rest, the names that the module registers are not too long either."""
_TEMPLATES = Path(__file__).resolve().parents[1] / "templates"


class Command(BaseCommand):
    help = "Write a small plug-in module with an output type, an audit, a function, and their tests."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="Name of the module, such as acme_invoices")
        parser.add_argument(
            "--directory",
            type=Path,
            default=settings.BASE_DIR,
            metavar="DIR",
            help="Where to write it (default: beside manage.py, from where it can be imported)",
        )

    def handle(self, *args: Any, name: str, directory: Path, **options: Any) -> None:
        directory = directory.resolve()
        if not directory.is_dir():
            raise CommandError(f"No such directory: {directory}. Create it first.")
        _validate_name(name)
        files = {directory / f"{name}.py": "plugin.py-tpl", directory / f"test_{name}.py": "test_plugin.py-tpl"}
        for path in files:
            if path.exists():
                raise CommandError(f"{path} already exists and is not overwritten. Choose another name.")
        try:
            for path, template in files.items():
                text = Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(name=name)
                path.write_text(text, encoding="utf-8")
        except OSError as error:
            for written in files:
                written.unlink(missing_ok=True)
            raise CommandError(f"{path} can't be written: {error.strerror}.") from error
        self.stdout.write(self.style.SUCCESS(f"Wrote {directory / name}.py and test_{name}.py beside it."))
        steps = _list_next_steps(name, directory)
        listed = "\n".join(f"  {number}. {step}" for number, step in enumerate(steps, start=1))
        self.stdout.write(f"\nNext steps:\n{listed}\n\ndocs/plugins.md has the details.")


def _validate_name(name: str) -> None:
    """Raise ``CommandError`` if a module can't have this name, or another one has it."""
    if not (name.isidentifier() and name.isascii()) or iskeyword(name):
        raise CommandError(
            f"“{name}” can't be the name of a module. Use letters, digits and underscores, such as acme_invoices."
        )
    if len(name) > MAX_NAME_LENGTH:
        raise CommandError(f"The name has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed.")
    # A module that is loaded may have no specification, such as __main__.
    if name in sys.modules or importlib.util.find_spec(name):
        raise CommandError(f"A module “{name}” already exists, and yours would hide it. Choose another name.")


def _list_next_steps(name: str, directory: Path) -> list[str]:
    """What to do with a new module, in order."""
    root, python = Path(settings.BASE_DIR), Path(sys.executable)
    shown_python = python.relative_to(root) if python.is_relative_to(root) else python
    needs_pytest = "" if importlib.util.find_spec("pytest") else " (“make dev” installs pytest)"
    test = os.path.relpath(directory / f"test_{name}.py", root)
    steps = [
        f"Run its tests, from the directory of manage.py{needs_pytest}:\n     {shown_python} -m pytest {test}",
        "Make it your own: change what it registers and its tests.",
        f"Let ToolFlow load it. In .env:\n     TOOLFLOW_PLUGINS={','.join([*settings.TOOLFLOW_PLUGINS, name])}",
        "Restart ToolFlow. The page “Plug-ins” of the admin then shows it.",
        (
            f"Use it in a step: the output type {name}_summary, the audit rule python:{name}_short_title,\n"
            f"     or python:{name}_count_points as the compute expression of a step without a model."
        ),
    ]
    if str(directory) not in {str(Path(entry).resolve()) for entry in sys.path}:
        steps.insert(2, f"Make it importable: add {directory} to PYTHONPATH wherever ToolFlow is started.")
    return steps
