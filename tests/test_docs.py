"""The documentation says what the code does: links lead somewhere, names exist, tables and numbers are right."""

from __future__ import annotations

import json
import re
import subprocess
from enum import Enum
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from flows.engine import (
    AuditSpec,
    FlowSpec,
    Outcome,
    SimulatedModel,
    StepSpec,
    execution,
    planner,
    run_flow,
    simulated_client,
    strict_schema,
)
from flows.engine.audits import MAX_ISSUES
from flows.engine.cel_evaluation import Scope
from flows.engine.expression_functions import FUNCTIONS, MAX_PRODUCED, MAX_RANGE
from flows.engine.expression_process import TIMEOUT
from flows.engine.expressions import FIELD_VARIABLES, MAX_LENGTH, parse_expression
from flows.engine.plugins import load_plugins
from flows.engine.spec import MAX_EXPRESSION_LENGTH, MAX_SCHEMA_BYTES, MAX_STEPS
from flows.examples import load_documents, load_sample_input
from flows.examples.scripts import example_script
from runs.limits import gate
from runs.limits.ledger import HOLDING_SECONDS
from runs.limits.rules import Bucket
from runs.models import EndReason, RateLimit, RunStatus
from runs.worker import run_task
from tests.processes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL_PAGES = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
OF_AUTOMATORS = {"TOOLFLOW_URL", "TOOLFLOW_TOKEN"}
"""What scripts and the command ``toolflow`` read, on machines of their own."""

_BLOCK = re.compile(r"^ *```(?P<info>[^\n]*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)


def read_page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def find_blocks(page: str, language: str) -> list[tuple[str, str]]:
    """The code blocks in a language: what is behind its name, and the code."""
    found = [(match["info"].split(maxsplit=1), match["body"]) for match in _BLOCK.finditer(read_page(page))]
    return [(info[1] if len(info) > 1 else "", body) for info, body in found if info and info[0] == language]


def read_table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head and the quotes of code."""
    section = read_page(page).partition(f"\n{heading}\n")[2]
    assert section, f"{page} has no heading “{heading}”"
    rows = re.search(r"^\|.*(?:\n\|.*)*", section, re.MULTILINE)
    assert rows is not None
    cells = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in rows[0].splitlines()[2:]]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def find_wrong_links(source: Path, text: str) -> list[str]:
    """Links of a page that lead to no file or heading."""
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        place = source.parent / path if path else source
        if "://" in target:
            continue
        if not place.exists():
            wrong.append(target)
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            wrong += [] if anchor in anchors else [target]
    return wrong


def find_unknown_names(text: str) -> list[str]:
    """Settings, targets of make, commands and options that a page names and that don't exist."""
    used = set(re.findall(r"\b(?:TOOLFLOW|OPENAI|DATABASE)_[A-Z_]+", text)) - OF_AUTOMATORS
    known = read_page(".env.example")
    unknown = [name for name in used if f"#{name}=" not in known]
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
    unknown += targets - set(re.findall(r"^([a-z]+):", read_page("Makefile"), re.MULTILINE))
    for command, rest in re.findall(r"(?:manage\.py|toolflow-admin) ([a-z_]+)((?:\\\n|[^\n`#|;)&])*)", text):
        parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
        options = {word.partition("=")[0] for word in rest.split() if word.startswith("--")}
        unknown += [f"{command} {option}" for option in options if option not in parser._option_string_actions]
    return unknown


@pytest.mark.parametrize("source", ALL_PAGES, ids=lambda source: source.name)
def test_links_lead_somewhere_names_exist_and_code_can_be_read(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert find_wrong_links(source, text) == []
    if source in PAGES:
        assert find_unknown_names(text) == []
    name = source.relative_to(ROOT).as_posix()
    for _, code in find_blocks(name, "python"):
        compile(code, "<page>", "exec")
    for _, code in find_blocks(name, "json"):
        assert isinstance(json.loads(code), dict)
    for _, code in [*find_blocks(name, "sh"), *find_blocks(name, "bash")]:
        done = subprocess.run(["bash", "-n", "-c", code], capture_output=True, check=False, text=True, timeout=20)
        assert done.stderr == "", code


def test_every_page_is_in_the_index() -> None:
    index = read_page("docs/index.md")
    assert all(f"({page.name})" in index for page in (ROOT / "docs").glob("*.md") if page.name != "index.md")


def test_the_architecture_names_each_file_of_the_engine_and_none_that_does_not_exist() -> None:
    named = {}
    for side in ("engine", "execution side", "history side", "pages"):
        section = read_page("docs/architecture.md").partition(f"## The {side}, file by file")[2].partition("\n## ")[0]
        named[side] = set(re.findall(r"`([a-z_/]+\.(?:py|html|js))`", section))
    engine = (ROOT / "flows/engine").rglob("*.py")
    assert named["engine"] == {path.name for path in engine if not path.name.startswith("__")}
    places = ("runs/**/*.py", "flows/admin/*.py", "templates/runs/*.html", "static/toolflow/js/*.js")
    known = [path.as_posix() for place in places for path in ROOT.glob(place)]
    others = named["execution side"] | named["history side"] | named["pages"]
    assert [name for name in others if not any(path.endswith(f"/{name}") for path in known)] == []


# Tables and numbers


def describe_default(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return "none"
    if field.default == ():
        return "`[]`"
    return f"`{field.default.value}`" if isinstance(field.default, Enum) else f"`{json.dumps(field.default)}`"


@pytest.mark.parametrize(("heading", "model"), [("## Flow", FlowSpec), ("## Step", StepSpec), ("## Audit", AuditSpec)])
def test_the_reference_has_every_field_with_its_default(heading: str, model: type[BaseModel]) -> None:
    documented = [(row[0].strip("`"), row[2]) for row in read_table("docs/flow-reference.md", heading)]
    assert documented == [(name, describe_default(model, name)) for name in model.model_fields]


LIMITS = [str(field.verbose_name).capitalize() for field in RateLimit._meta.fields if not field.primary_key]


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("concepts", "## Outcomes of an attempt", [outcome.value for outcome in Outcome]),
        ("concepts", "## Statuses of a run", RunStatus.values),
        ("running", "## Why runs end", EndReason.values),
        ("limits", "## Limits of the provider", LIMITS),
    ],
)
def test_a_table_has_every_name(page: str, heading: str, names: list[str]) -> None:
    assert [row[0].strip("`") for row in read_table(f"docs/{page}.md", heading)] == names


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("flow-reference", [
            f"1 to {MAX_EXPRESSION_LENGTH:,} characters", f"1 to {MAX_STEPS} steps",
            f"at most {MAX_SCHEMA_BYTES // 1024} KB", f"at most {strict_schema.MAX_NESTING} levels deep",
            f"{strict_schema.MAX_ENUM_VALUES:,} values", f"at most {MAX_ISSUES} issues",
            *(f"`{name}`" for name in (*strict_schema.TYPES, *strict_schema.FORMATS)),
        ]),
        ("running", [
            f"({StepSpec.model_fields['max_retries'].default} unless the step says otherwise)",
            f"the wait is {planner.FIRST_BACKOFF / 2} to {planner.FIRST_BACKOFF:g} second",
            f"up to {planner.MAX_BACKOFF:g} seconds", f"more than {run_task.MAX_WAIT_SECONDS:g} seconds",
            f"One call may take {execution.DEFAULT_CALL_TIMEOUT:g} seconds",
        ]),
        ("expressions", [
            f"at most {MAX_LENGTH:,} characters", f"at most {MAX_PRODUCED:,} characters and elements",
            f"`lists.range` goes to {MAX_RANGE:,}", f"stopped after {TIMEOUT:g} seconds",
        ]),
        ("limits", [
            f"it waits for up to {gate.MAX_WAIT.seconds} seconds", f"else {gate.DEFAULT_COMPLETION_TOKENS})",
            f"count for at most {HOLDING_SECONDS:.0f} seconds more",
            f"would let {Bucket.for_minute(500).rate:.1f} calls begin each second",
            f"the 200,000 tokens only {Bucket.for_minute(200_000).rate / 1_500:.1f}",
        ]),
    ],
)  # fmt: skip
def test_the_numbers_of_a_page_hold(page: str, texts: list[str]) -> None:
    words = " ".join(read_page(f"docs/{page}.md").split())
    assert [text for text in texts if text not in words] == []


def test_expressions_list_every_function_and_the_variables_of_every_field() -> None:
    functions = [(use.strip("`"), gives) for use, gives in read_table("docs/expressions.md", "## Functions")]
    assert functions == list(FUNCTIONS.values())
    documented = {
        field.strip("`"): set(re.findall(r"`(\w+)`", variables))
        for fields, variables, *_ in read_table("docs/expressions.md", "## Variables")
        for field in fields.split(", ")
    }
    assert documented == {field: set(variables) for field, variables in FIELD_VARIABLES.items()}


@pytest.mark.parametrize(("field", "code"), find_blocks("docs/expressions.md", "cel"))
def test_an_expression_gives_what_the_page_says(field: str, code: str) -> None:
    ((_, variables),) = find_blocks("docs/expressions.md", "json")
    text, _, expected = code.rstrip().rpartition("\n// ")
    value = Scope(json.loads(variables)).evaluate(parse_expression(text, variables=FIELD_VARIABLES[field]))
    assert (value, type(value)) == (json.loads(expected), type(json.loads(expected)))


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
