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
"""Characters: with the rest, what the module registers has names that are not too long either."""

_MODULE = Template('''\
"""Plug-ins of $name. Flows refer to what is registered here by its name.

ToolFlow loads this module if TOOLFLOW_PLUGINS names it; docs/plugins.md of ToolFlow says what is possible.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from flows.engine import audit, function, output_type

MAX_TITLE = 8
"""Words."""


# A step with this output type makes the model fill in the class. The model reads the docstring and the descriptions of
# the fields.
@output_type("${name}_summary")
class Summary(BaseModel):
    """A summary of a text."""

    # Outputs have these fields and no others: strict mode wants it so.
    model_config = ConfigDict(extra="forbid")

    title: str = Field(description=f"At most {MAX_TITLE} words")
    points: list[str] = Field(description="The main points, a sentence each")


# In a flow, the rule of an audit: python:${name}_short_title
# It names the variables that it wants as parameters: output, input, steps. None, True or an empty list passes; a text
# or a dictionary is an issue, a list of them several.
@audit("${name}_short_title")
def audit_title(output: Summary) -> dict[str, Any] | None:
    """Titles that are too long. What the dictionary leaves out comes from the audit's settings in the flow."""
    words = output.title.split()
    if len(words) <= MAX_TITLE:
        return None
    return {
        "path": "/title",
        "description": f"The title has {len(words)} words; at most {MAX_TITLE} are wanted.",
        "suggestions": [f"Leave out what the points say: {' '.join(words[:MAX_TITLE])} …"],
    }


# In a flow, the compute expression of a step that calls no model: python:${name}_count_points
# Functions get plain JSON values, here the output of the step before.
@function("${name}_count_points")
def count_points(previous: dict[str, Any]) -> dict[str, Any]:
    """The title with the number of points."""
    return {"title": previous["title"], "point_count": len(previous["points"])}
''')

_TEST = Template('''\
"""Tests of the plug-ins of $name. They need no database and call no model."""

from flows.engine import AuditSpec, FlowSpec, ModelSettings, StepSpec, prepare_spec, registry

from $name import MAX_TITLE, Summary, audit_title, count_points


def make_summary(title: str) -> Summary:
    return Summary(title=title, points=["It is a drink.", "It is hot."])


def test_a_flow_can_name_them() -> None:
    flow = FlowSpec(
        name="example",
        steps=(
            StepSpec(
                name="Summarise",
                tool_name="summarise",
                output_type="${name}_summary",
                audits=(AuditSpec(name="Short title", rule="python:${name}_short_title"),),
            ),
            StepSpec(name="Count", compute="python:${name}_count_points"),
        ),
    )
    # What saving the flow checks: names, parameters, and whether strict mode takes the type.
    spec = prepare_spec(flow, registry=registry, defaults=ModelSettings(model="any"))
    schema = spec.step(1).output_schema
    assert schema is not None
    assert list(schema["properties"]) == ["title", "points"]


def test_a_short_title_passes() -> None:
    assert audit_title(make_summary("Tea")) is None


def test_a_long_title_is_an_issue_at_the_title() -> None:
    issue = audit_title(make_summary("tea " * (MAX_TITLE + 1)))
    assert issue is not None
    assert issue["path"] == "/title"
    assert f"has {MAX_TITLE + 1} words" in issue["description"]


def test_points_are_counted() -> None:
    assert count_points(make_summary("Tea").model_dump()) == {"title": "Tea", "point_count": 2}
''')


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
        validate_name(name)
        for path in (module, test):
            if path.exists():
                raise CommandError(f"{path} exists already, and nothing is overwritten. Choose another name.")
        refuse_shadowing(name)
        written: list[Path] = []
        try:
            for path, template in ((module, _MODULE), (test, _TEST)):
                with path.open("x", encoding="utf-8") as file:
                    written.append(path)
                    file.write(template.substitute(name=name))
        except OSError as error:
            for made in written:
                made.unlink()
            raise CommandError(f"{path} can't be written: {error.strerror}.") from error
        self.stdout.write(self.style.SUCCESS(f"Wrote {module} and {test.name} beside it."))
        self.stdout.write(describe_next_steps(name, directory))


def validate_name(name: str) -> None:
    """Raise ``CommandError`` if a module can't be called so."""
    if not (name.isidentifier() and name.isascii()) or iskeyword(name):
        raise CommandError(
            f"“{name}” can't be the name of a module. Use letters, digits and underscores, such as acme_invoices."
        )
    if len(name) > MAX_NAME_LENGTH:
        raise CommandError(f"The name has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed.")


def refuse_shadowing(name: str) -> None:
    """Raise ``CommandError`` if there is such a module: one of the two would hide the other."""
    try:
        found = importlib.util.find_spec(name) is not None
    except ValueError:  # it is loaded, but says nothing of where it comes from
        found = True
    if found or name in sys.builtin_module_names:
        raise CommandError(f"There is a module “{name}” already, which yours would hide. Choose another name.")


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
