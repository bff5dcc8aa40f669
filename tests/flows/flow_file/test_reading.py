"""Reading flow files and their JSON Schema; ``tests/contract`` pins what scalars mean and the lines of mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from flows.engine.errors import Problem, SpecError
from flows.engine.spec import FlowSpec
from flows.examples import load_documents
from flows.flow_file import MAX_FILE_BYTES, SCHEMA_PATH, FlowFileError, parse_document, parse_flow, render_flow
from flows.flow_file.reading import MAX_PROBLEMS, MAX_VALUES
from flows.models import Flow
from tests.engine.builders import TEXT_SCHEMA, make_flow
from tests.flows.loading import load_flow
from tests.test_docs import find_blocks

STEP = "name: tea\nsteps:\n  - name: Pour\n    compute: '{}'\n"


def refuse(source: str | bytes, **options: Any) -> FlowFileError:
    with pytest.raises(FlowFileError) as caught:
        parse_flow(source, **options)
    return caught.value


def test_a_json_file_is_a_flow_file() -> None:
    spec = make_flow(title="Tea 🍵", description="Line\u2028separator")
    for text in (json.dumps(spec.to_document()), json.dumps(spec.to_document(), indent="\t", ensure_ascii=False)):
        assert parse_flow(text).digest == spec.digest


def test_problems_are_at_their_lines_in_the_order_of_the_file() -> None:
    fields = STEP.replace("    compute", "    audits:\n      - nmae: Full\n      - 5\n    severity: high\n    compute")
    assert [(problem.line, problem.column, problem.path) for problem in refuse(fields).problems] == [
        (5, 9, "/steps/0/audits/0/name"),
        (5, 9, "/steps/0/audits/0/rule"),
        (5, 9, "/steps/0/audits/0/nmae"),
        (6, 9, "/steps/0/audits/1"),
        (7, 5, "/steps/0/severity"),
    ]

    def check(spec: Any) -> list[Problem]:
        return [Problem(path, "Wrong.") for path in ("/steps/0/audits/3", "/description", "", "/steps/0/name")]

    # What is missing is at what lacks it.
    assert [(problem.line, problem.column, problem.path) for problem in refuse(STEP, check=check).problems] == [
        (1, 1, "/description"),
        (1, 1, ""),
        (3, 5, "/steps/0/audits/3"),
        (3, 5, "/steps/0/name"),
    ]


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("titel: Tea", "Did you mean “title”?"),
        ("zzz: 1", "Unknown field “zzz”."),
        ("title: true", "Put text in quotes."),
        ("temperature: .inf", "Put it in quotes"),
        ("max_tokens: 012", "leading zeros"),
        ("max_tokens: " + "9" * 9_000, "is too large"),
        ("title: !Tea", "quotes"),
        ("name: tea", "“name” "),
        ("~: Tea", "Put it in quotes."),
        ("? [a]\n: b", "a list or an object"),
    ],
)
def test_a_mistake_is_reported_with_what_would_be_right(field: str, hint: str) -> None:
    (problem,) = refuse(STEP.replace("steps:", field + "\nsteps:")).problems
    assert problem.line == 2 and hint in problem.message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [0].filter(x)", "Line 1, column 7"),
        ('a: "b\nc: d', "Line 2, column 5: This is not valid YAML: found unexpected end of stream"),
        ('a: "\\q"', "Line 1, column 5"),
        ("a: \x00", "Line 1, column 4: The character U+0000"),
        ("name: \ud83d", "Line 1, column 7"),
        ("name: café".encode("latin-1"), "Line 1, column 10: The file is not UTF-8"),
    ],
)
def test_text_that_is_no_flow_file_is_refused_with_one_problem_and_its_place(text: str | bytes, place: str) -> None:
    (problem,) = refuse(text).problems
    assert str(problem).startswith(place)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("a: " + "[" * 500_000, "100 levels"),
        ("a: " + "{a: " * 200_000, "100 levels"),
        ("a: [" + "1," * MAX_VALUES + "]", "50,000 values"),
        (json.dumps({"a": [1] * MAX_VALUES}), "50,000 values"),
        ("a: " + "é" * (MAX_FILE_BYTES // 2), "1,024 KB"),
    ],
)
def test_hostile_files_are_left_where_they_go_too_far(text: str, limit: str) -> None:
    (problem,) = refuse(text).problems
    assert limit in problem.message


def test_only_the_first_of_very_many_problems_are_reported() -> None:
    problems = refuse(STEP + "".join(f"f{number}: 1\n" for number in range(MAX_PROBLEMS + 150))).problems
    assert [problem.line for problem in problems[:2]] == [5, 6]
    assert len(problems) == MAX_PROBLEMS + 1 and "150 more" in problems[-1].message


PAGE = "docs/flow-files.md"


@pytest.mark.django_db
def test_the_example_can_be_imported_and_means_the_same_to_every_yaml_parser() -> None:
    ((_, text),) = find_blocks(PAGE, "yaml")
    spec = parse_flow(text)
    assert load_flow(document=spec.to_document()).digest == spec.digest
    assert Flow.objects.runnable().get().title == "Answers to letters"
    assert parse_document(text) == yaml.safe_load(text)


ROOT = Path(__file__).resolve().parents[3]
SCHEMA: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)

STEP_FIELDS = {"name": "Pour", "tool_name": "pour", "output_schema": TEXT_SCHEMA}


def make_document(step: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": "tea", "steps": [{**STEP_FIELDS, **(step or {})}], **fields}


def test_the_committed_schema_is_what_the_classes_and_the_reference_say() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "write_flow_schema.py", "-"], capture_output=True, check=True, timeout=60
    )
    assert made.stdout.decode() == SCHEMA_PATH.read_text(encoding="utf-8"), (
        "Write it anew: .venv/bin/python scripts/write_flow_schema.py"
    )


@pytest.mark.parametrize("document", load_documents().values(), ids=lambda document: document["name"])
def test_the_examples_fit_the_schema_as_they_are_and_as_they_are_written(document: dict[str, Any]) -> None:
    VALIDATOR.validate(document)
    VALIDATOR.validate(parse_document(render_flow(FlowSpec.from_document(document))))


@pytest.mark.parametrize(
    "fields",
    [
        *({"steps": []}, {"name": "Tea Time"}, {"titel": "Tea"}, {"title": 12}, {"cost_budget": 0}),
        *({"max_tokens": 1.5}, {"input_schema": "{}"}),
    ],
)
def test_what_is_no_flow_does_not_fit_the_schema(fields: dict[str, Any]) -> None:
    refuse_document(make_document(**fields))


def refuse_document(document: Any) -> None:
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(SpecError):
        FlowSpec.from_document(document)


def test_a_step_calls_the_model_or_is_local() -> None:
    typed, local = {"tool_name": "pour", "output_type": "cup"}, {"compute": "{}"}
    for step, fits in (({}, False), ({"tool_name": "pour"}, False), (local, True), (typed, True)):
        assert VALIDATOR.is_valid({"name": "tea", "steps": [{"name": "Pour", **step}]}) is fits
