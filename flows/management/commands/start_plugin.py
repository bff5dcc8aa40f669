"""``manage.py start_plugin``: a plug-in module to begin with, and its tests."""

from __future__ import annotations

import importlib.util
import os
import sys
from argparse import ArgumentParser
from keyword import iskeyword
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from flows.plugin_template import write_module, write_test

LONGEST_NAME = 60
"""Characters: with the rest, what the module registers has names that are not too long either."""


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
        """Write both files, and say what comes next."""
        directory = directory.resolve()
        if not directory.is_dir():
            raise CommandError(f"There is no directory {directory}. Make it first.")
        module, test = directory / f"{name}.py", directory / f"test_{name}.py"
        refuse_name(name)
        for path in (module, test):
            if path.exists():
                raise CommandError(f"{path} exists already, and nothing is overwritten. Choose another name.")
        refuse_shadowing(name)
        write_new(module, write_module(name))
        try:
            write_new(test, write_test(name))
        except CommandError:
            module.unlink()
            raise
        self.stdout.write(self.style.SUCCESS(f"Wrote {module} and {test.name} beside it."))
        self.stdout.write(describe_next_steps(name, directory))


def refuse_name(name: str) -> None:
    """Raise ``CommandError`` if a module can't be called so."""
    if not (name.isidentifier() and name.isascii()) or iskeyword(name):
        raise CommandError(
            f"“{name}” can't be the name of a module. Use letters, digits and underscores, such as acme_invoices."
        )
    if len(name) > LONGEST_NAME:
        raise CommandError(f"The name has {len(name)} characters; at most {LONGEST_NAME} are allowed.")


def refuse_shadowing(name: str) -> None:
    """Raise ``CommandError`` if there is such a module: one of the two would hide the other."""
    try:
        found = importlib.util.find_spec(name) is not None
    except ValueError:  # it is loaded, but says nothing of where it comes from
        found = True
    if found or name in sys.builtin_module_names:
        raise CommandError(f"There is a module “{name}” already, which yours would hide. Choose another name.")


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet. Raises ``CommandError`` with the reason if that fails."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"{path} can't be written: {error.strerror}.") from error


def describe_next_steps(name: str, directory: Path) -> str:
    """What to do with a new module, in order."""
    modules = ",".join([*settings.TOOLFLOW_PLUGINS, name])
    root = Path(settings.BASE_DIR)
    python = Path(sys.executable)
    shown_python = python.relative_to(root) if python.is_relative_to(root) else python
    needs_pytest = "" if importlib.util.find_spec("pytest") else " (“make dev” installs pytest)"
    test = os.path.relpath(directory / f"test_{name}.py", root)
    use = (
        f"Use it in a step: the output type {name}_summary, the audit rule python:{name}_short_title,\n"
        f"     or python:{name}_count_points as the compute expression of a step without a model."
    )
    steps = [
        f"Run its tests, from the directory of manage.py{needs_pytest}:\n     {shown_python} -m pytest {test}",
        "Make it your own: change and add what it registers, and what its tests say.",
        f"Let ToolFlow load it. In .env:\n     TOOLFLOW_PLUGINS={modules}",
        "Restart ToolFlow. The page “Plug-ins” of the admin then shows it.",
        use,
    ]
    if str(directory) not in {str(Path(entry).resolve()) for entry in sys.path}:
        steps.insert(2, f"Make it importable: add {directory} to PYTHONPATH wherever ToolFlow is started.")
    listed = "\n".join(f"  {number}. {step}" for number, step in enumerate(steps, start=1))
    return f"\nWhat comes next:\n{listed}\n\ndocs/plugins.md has the rest."
