"""What ``manage.py start_plugin`` writes: a module of plug-ins, and its tests."""

from __future__ import annotations

from string import Template

_MODULE = Template('''\
"""Plug-ins of $name. Flows refer to what is registered here by its name.

ToolFlow loads this module if TOOLFLOW_PLUGINS names it; docs/plugins.md of ToolFlow says what is possible.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from flows.engine import audit, function, output_type

LONGEST_TITLE = 8
"""Words."""


# A step with this output type makes the model fill in the class. The model reads the docstring and the descriptions of
# the fields.
@output_type("${name}_summary")
class Summary(BaseModel):
    """A summary of a text."""

    # Outputs have these fields and no others: strict mode wants it so.
    model_config = ConfigDict(extra="forbid")

    title: str = Field(description=f"At most {LONGEST_TITLE} words")
    points: list[str] = Field(description="The main points, a sentence each")


# In a flow, the rule of an audit: python:${name}_short_title
# It names the variables that it wants as parameters: output, input, steps. None, True or an empty list passes; a text
# or a dictionary is an issue, a list of them several.
@audit("${name}_short_title")
def audit_title(output: Summary) -> dict[str, Any] | None:
    """Titles that are too long. What the dictionary leaves out comes from the audit's settings in the flow."""
    words = output.title.split()
    if len(words) <= LONGEST_TITLE:
        return None
    return {
        "path": "/title",
        "description": f"The title has {len(words)} words; at most {LONGEST_TITLE} are wanted.",
        "suggestions": [f"Leave out what the points say: {' '.join(words[:LONGEST_TITLE])} …"],
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

from $name import LONGEST_TITLE, Summary, audit_title, count_points


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
    issue = audit_title(make_summary("tea " * (LONGEST_TITLE + 1)))
    assert issue is not None
    assert issue["path"] == "/title"
    assert f"has {LONGEST_TITLE + 1} words" in issue["description"]


def test_points_are_counted() -> None:
    assert count_points(make_summary("Tea").model_dump()) == {"title": "Tea", "point_count": 2}
''')


def write_module(name: str) -> str:
    """The source of the module ``name``, with an output type, an audit and a function; their names begin with it."""
    return _MODULE.substitute(name=name)


def write_test(name: str) -> str:
    """The source of its tests; they import the module, and so stand beside it."""
    return _TEST.substitute(name=name)
