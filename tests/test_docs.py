"""The documentation says what the code does: its tables are compared, its examples are run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from flows.engine import (
    AuditSpec,
    FlowSpec,
    Outcome,
    Script,
    SimulatedModel,
    StepSpec,
    execution,
    planner,
    run_flow,
    simulated_client,
    strict_schema,
)
from flows.engine.cel_evaluation import Scope
from flows.engine.expression_functions import FUNCTIONS, MAX_PRODUCED, MAX_RANGE
from flows.engine.expression_process import TIMEOUT
from flows.engine.expressions import FIELD_VARIABLES, MAX_LENGTH, parse_expression
from flows.engine.judging import MAX_ISSUES
from flows.engine.plugins import load_plugins
from flows.engine.spec import MAX_EXPRESSION_LENGTH, MAX_SCHEMA_BYTES, MAX_STEPS
from flows.examples import load_documents, load_sample_input
from flows.examples.scripts import example_script
from runs.models import EndReason, RunStatus
from runs.models.run import MAX_CRASHES
from runs.worker import run_task
from tests.engine.model_server import ModelServer

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^ *```(?P<info>[^\n]*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)


def read_page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def find_blocks(page: str, language: str) -> list[tuple[str, str]]:
    """The code blocks in a language: what stands behind its name, and the code."""
    found = [(match["info"].split(maxsplit=1), match["body"]) for match in _BLOCK.finditer(read_page(page))]
    return [(info[1] if len(info) > 1 else "", body) for info, body in found if info and info[0] == language]


def read_table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = read_page(page)
    section = text.partition(f"\n{heading}\n")[2]
    assert section, f"{page} has no heading “{heading}”"
    rows = re.search(r"^\|.*(?:\n\|.*)*", section, re.MULTILINE)
    assert rows is not None
    cells = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in rows[0].splitlines()[2:]]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def unquote(cell: str) -> str:
    return cell.strip("`")


# ---------------------------------------------------------------------------------------------------------------
# All pages


def find_links() -> Iterator[tuple[str, str]]:
    for page in [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                yield page.relative_to(ROOT).as_posix(), target


@pytest.mark.parametrize(("source", "target"), list(find_links()))
def test_a_link_leads_somewhere(source: str, target: str) -> None:
    path, _, anchor = target.partition("#")
    place = (ROOT / source).parent / path if path else ROOT / source
    assert place.exists(), f"{source} links to {target}"
    if anchor:
        headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    index = read_page("docs/index.md")
    assert all(f"({page.name})" in index for page in (ROOT / "docs").glob("*.md") if page.name != "index.md")


OF_AUTOMATORS = {"TOOLFLOW_URL", "TOOLFLOW_TOKEN"}
"""What scripts and the command ``toolflow`` read, on machines of their own."""


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_settings_are_called_what_they_are_called(source: Path) -> None:
    known = read_page(".env.example")
    used = set(re.findall(r"\b(?:TOOLFLOW|OPENAI|DATABASE)_[A-Z_]+", source.read_text(encoding="utf-8")))
    assert {name for name in used - OF_AUTOMATORS if f"#{name}=" not in known} == set()


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_commands_exist(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
    assert targets <= set(re.findall(r"^([a-z]+):", read_page("Makefile"), re.MULTILINE))
    own = {path.stem for app in ("flows", "runs") for path in (ROOT / app / "management/commands").glob("*.py")}
    of_django = {
        "axes_reset",
        "axes_reset_ip",
        "axes_reset_username",
        "changepassword",
        "check",
        "collectstatic",
        "migrate",
        "sqlmigrate",
    }
    assert set(re.findall(r"manage\.py ([a-z_]+)", text)) <= own | of_django


def test_the_tree_of_the_engine_has_each_of_its_files() -> None:
    section = read_page("docs/architecture.md").partition("## The engine, file by file")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+\.py)`", section))
    assert named == {path.name for path in (ROOT / "flows/engine").rglob("*.py") if not path.name.startswith("__")}


def test_the_tree_of_the_execution_side_has_only_files_that_are_there() -> None:
    section = (
        read_page("docs/architecture.md").partition("## The execution side, file by file")[2].partition("\n## ")[0]
    )
    named = re.findall(r"`([a-z_/]+\.py)`", section)
    known = {path.relative_to(ROOT / "runs").as_posix() for path in (ROOT / "runs").rglob("*.py")}
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in known)] == []


# ---------------------------------------------------------------------------------------------------------------
# Flow reference


def describe_default(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return "none"
    if field.default == ():
        return "`[]`"
    if isinstance(field.default, Enum):
        return f"`{field.default.value}`"
    return f"`{json.dumps(field.default)}`"


@pytest.mark.parametrize(("heading", "model"), [("## Flow", FlowSpec), ("## Step", StepSpec), ("## Audit", AuditSpec)])
def test_the_reference_has_every_field_with_its_default(heading: str, model: type[BaseModel]) -> None:
    documented = [(unquote(row[0]), row[2]) for row in read_table("docs/flow-reference.md", heading)]
    assert documented == [(name, describe_default(model, name)) for name in model.model_fields]


@pytest.mark.parametrize(
    "text",
    [
        f"1 to {MAX_EXPRESSION_LENGTH:,} characters",
        f"1 to {MAX_STEPS} steps",
        f"at most {MAX_SCHEMA_BYTES // 1024} KB",
        f"at most {strict_schema.MAX_NESTING} levels deep",
        f"{strict_schema.MAX_ENUM_VALUES:,} values",
        f"at most {MAX_ISSUES} issues",
        *(f"`{name}`" for name in sorted({*strict_schema.TYPES, *strict_schema.FORMATS})),
    ],
)
def test_the_reference_has_the_limits_that_hold(text: str) -> None:
    assert text in " ".join(read_page("docs/flow-reference.md").split())


# ---------------------------------------------------------------------------------------------------------------
# Concepts and running


def test_concepts_explain_every_outcome_and_every_status() -> None:
    outcomes = [unquote(row[0]) for row in read_table("docs/concepts.md", "## Outcomes of an attempt")]
    assert outcomes == [outcome.value for outcome in Outcome]
    statuses = [unquote(row[0]) for row in read_table("docs/concepts.md", "## Statuses of a run")]
    assert statuses == list(RunStatus.values)


async def test_concepts_show_the_system_message_that_the_example_really_sends() -> None:
    load_plugins(["flows.examples.plugins"])
    client = simulated_client(SimulatedModel(script=example_script()))
    flow = FlowSpec.from_document(load_documents()["colour-theme"])
    result = await run_flow(flow, load_sample_input("colour-theme"), client=client)
    await client.close()
    request = result.step(2).attempts[1].request
    assert request is not None
    ((_, shown),) = find_blocks("docs/concepts.md", "text")
    assert shown.rstrip("\n") == request["messages"][0]["content"]


def test_running_lists_every_reason_why_a_run_ends() -> None:
    rows = read_table("docs/running.md", "## Why runs end")
    assert [unquote(row[0]) for row in rows] == list(EndReason.values)
    assert {row[1] for row in rows} <= set(RunStatus.values)


@pytest.mark.parametrize(
    "text",
    [
        "up to 200 runs under way",
        f"({StepSpec.model_fields['max_retries'].default} unless the step says otherwise)",
        f"the wait is {planner.FIRST_BACKOFF / 2} to {planner.FIRST_BACKOFF:g} second",
        f"up to {planner.MAX_BACKOFF:g} seconds",
        f"more than {run_task.MAX_WAIT_SECONDS:g} seconds",
        f"One call may take {execution.DEFAULT_CALL_TIMEOUT:g} seconds",
    ],
)
def test_running_has_the_numbers_that_hold(text: str) -> None:
    assert text in " ".join(read_page("docs/running.md").split())


def test_running_is_right_about_minutes_and_crashes(settings: Any) -> None:
    assert settings.TOOLFLOW_RUNS_IN_FLIGHT == 200
    assert settings.TOOLFLOW_CALL_TIMEOUT == execution.DEFAULT_CALL_TIMEOUT
    assert settings.TOOLFLOW_LEASE == 60
    assert MAX_CRASHES == 5


# ---------------------------------------------------------------------------------------------------------------
# Expressions


def test_expressions_list_the_variables_of_every_field() -> None:
    documented = {
        unquote(field): set(re.findall(r"`(\w+)`", variables))
        for fields, variables, *_ in read_table("docs/expressions.md", "## Variables")
        for field in fields.split(", ")
    }
    assert documented == {field: set(variables) for field, variables in FIELD_VARIABLES.items()}


def test_expressions_list_every_function() -> None:
    documented = [(unquote(use), gives) for use, gives in read_table("docs/expressions.md", "## Functions")]
    assert documented == list(FUNCTIONS.values())


@pytest.mark.parametrize(
    "text",
    [
        f"at most {MAX_LENGTH:,} characters",
        f"at most {MAX_PRODUCED:,} characters and elements",
        f"`lists.range` goes to {MAX_RANGE:,}",
        f"stopped after {TIMEOUT:g} seconds",
    ],
)
def test_expressions_have_the_limits_that_hold(text: str) -> None:
    assert text in " ".join(read_page("docs/expressions.md").split())


def read_sample_variables() -> dict[str, Any]:
    ((_, text),) = find_blocks("docs/expressions.md", "json")
    variables: dict[str, Any] = json.loads(text)
    return variables


@pytest.mark.parametrize(("field", "code"), find_blocks("docs/expressions.md", "cel"))
def test_an_expression_gives_what_the_page_says(field: str, code: str) -> None:
    text, _, expected = code.rstrip().rpartition("\n// ")
    expression = parse_expression(text, variables=FIELD_VARIABLES[field])
    value = Scope(read_sample_variables()).evaluate(expression)
    assert (value, type(value)) == (json.loads(expected), type(json.loads(expected)))


# ---------------------------------------------------------------------------------------------------------------
# Plug-ins


PLUGIN_CHECK = """
import json
import company_plugins as plugins
from flows.engine import AuditSpec, FlowSpec, Script, SimulatedModel, StepSpec, run_flow_sync, simulated_client
from flows.engine.plugins import registry

lines = [{"text": "Paper", "amount": 20.0}, {"text": "Freight", "amount": 5.0}]
good = {"supplier": "Elbe Office AG", "due": "2026-12-02", "lines": lines, "total": 25.0}
replies = [
    {**good, "due": "soon"},
    {**good, "total": 52.0},
    {**good, "supplier": "Elbe Office"},
    {**good, "due": "2026-01-01"},
    good,
]
audits = ("known_supplier", "not_overdue", "reachable_supplier")
read = StepSpec(
    name="Read",
    tool_name="read_invoice",
    output_type="invoice",
    max_retries=4,
    audits=tuple(AuditSpec(name=name, rule=f"python:{name}") for name in audits),
)
book = StepSpec(name="Book", compute="python:to_booking")
flow = FlowSpec(name="booking", steps=(read, book))
client = simulated_client(SimulatedModel(script=Script({"read_invoice": replies})))
result = run_flow_sync(flow, {"received": "2026-11-20"}, client=client)
print(json.dumps({
    "attempts": [
        [attempt.outcome, [[issue.code, issue.path, issue.added_fields] for issue in attempt.issues]]
        for attempt in result.step(1).attempts
    ],
    "booking": result.step(2).output,
    "fingerprints": sorted(result.step(1).attempts[-1].plugins),
    "registered": [sorted(kind) for kind in (registry.output_types, registry.audits, registry.functions)],
}))
"""


def test_the_plug_ins_of_the_page_work_as_it_says(tmp_path: Path) -> None:
    code = "".join(code for _, code in find_blocks("docs/plugins.md", "python"))
    (tmp_path / "company_plugins.py").write_text(code, encoding="utf-8")
    report = json.loads(run_python(PLUGIN_CHECK, PYTHONPATH=f"{ROOT}:{tmp_path}"))
    assert report["attempts"] == [
        ["invalid", [["schema_mismatch", "/due", {}]]],
        ["failed", [["wrong_total", "/total", {}]]],
        ["failed", [["known_supplier", "/supplier", {"supplier_count": 2}]]],
        ["failed", [["not_overdue", None, {}]]],
        ["passed", []],
    ]
    assert report["booking"] == {"account": "70044", "cents": 2500, "received": "2026-11-20"}
    assert report["fingerprints"] == [
        "invoice",
        "python:known_supplier",
        "python:not_overdue",
        "python:reachable_supplier",
    ]
    assert report["registered"] == [
        ["invoice"],
        ["known_supplier", "not_overdue", "reachable_supplier"],
        ["to_booking"],
    ]


# ---------------------------------------------------------------------------------------------------------------
# README


def run_python(code: str, **environment: str) -> str:
    """What a script prints, in a process that has none of our settings and no Django configured."""
    clean = {name: value for name, value in os.environ.items() if not re.match("OPENAI|TOOLFLOW|DJANGO", name)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_of_the_readme_runs_against_a_server() -> None:
    ((_, code),) = find_blocks("README.md", "python")
    lines = ["Salt on every word", "the gulls correct my spelling", "tide takes the last page"]
    replies = [{"title": "Salt", "lines": lines[:2]}, {"title": "On the sea", "lines": lines}]
    app = SimulatedModel(script=Script({"haiku": replies}), api_keys={"sk-readme"})
    with ModelServer(app) as server:
        printed = run_python(
            code, PYTHONPATH=str(ROOT), OPENAI_API_KEY="sk-readme", OPENAI_BASE_URL=server.base_url
        ).splitlines()
    assert printed == [
        "All steps passed.",
        *lines,
        "attempt 1: A haiku has 3 lines, this one has 2.",
        "attempt 1: Name the sea.",
    ]
    assert app.call_count == 2
