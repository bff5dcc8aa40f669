"""Reading flow files: what is meant, and what is wrong, each with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows import examples
from flows.engine.errors import Problem
from flows.engine.plugins import load_plugins
from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES, FlowFileError, read_document, read_flow
from flows.flow_file.reading import MAX_PROBLEMS, MAX_VALUES
from tests.engine.builders import make_flow

HEAD = "name: tea\nsteps:\n"
STEP = HEAD + "  - name: Pour\n    compute: '{}'\n"


def refuse(source: str | bytes, **options: Any) -> FlowFileError:
    with pytest.raises(FlowFileError) as caught:
        read_flow(source, **options)
    return caught.value


def find_places(source: str | bytes, **options: Any) -> list[tuple[int | None, int | None, str]]:
    return [(problem.line, problem.column, problem.path) for problem in refuse(source, **options).problems]


# ---------------------------------------------------------------------------------------------------------------
# What is meant

TEXTS = ["no", "yes", "on", "Off", "y", "2026-11-21", "1:30", "=", "<<", "1_000", "0x", "0b11", "-0x1"]


@pytest.mark.parametrize(
    ("word", "value"),
    [(word, word) for word in TEXTS] +
    [("true", True), ("FALSE", False), ("null", None), ("~", None), ("12", 12), ("-0", 0), ("+3", 3), ("0o17", 15),
     ("0x1F", 31), ("1e3", 1000.0), ("-1.5E-2", -0.015), (".5", 0.5), ("2.", 2.0), ("'12'", "12"), ('"true"', "true")],
)  # fmt: skip
def test_scalars_are_those_of_the_core_schema(word: str, value: Any) -> None:
    (found,) = read_document(f"enum: [{word}]")["enum"]
    assert (found, type(found)) == (value, type(value))


def test_a_json_file_is_a_flow_file() -> None:
    spec = make_flow(title="Tea 🍵", description="Line\u2028separator")
    for text in (json.dumps(spec.to_document()), json.dumps(spec.to_document(), indent="\t", ensure_ascii=False)):
        assert read_flow(text).digest == spec.digest


def test_a_file_may_have_windows_lines_comments_and_a_byte_order_mark() -> None:
    text = "\ufeff# Tea\n" + STEP.replace("Pour\n", "Pour # slowly\n") + "# the end"
    assert read_flow(text.replace("\n", "\r\n").encode()).steps[0].name == "Pour"


def test_the_examples_read_as_every_yaml_parser_reads_them() -> None:
    load_plugins(["flows.examples.plugins"])
    for path in Path(examples.__file__).parent.glob("*.yaml"):
        assert read_document(path.read_bytes()) == yaml.safe_load(path.read_text(encoding="utf-8"))
        assert read_flow(path.read_bytes()).name == path.stem


def test_a_document_need_not_be_a_flow_to_be_read() -> None:
    assert read_document("name: tea\ncups: 2") == {"name": "tea", "cups": 2}


# ---------------------------------------------------------------------------------------------------------------
# What is wrong

FIELDS = """\
name: Tea Time
titel: Tea
description: 12
steps:
  - name: Pour
    severity: high
    stop_on_failure: no
    system_message:
    audits:
      - name: Hot
        rule: 'true'
        fail_at: hgh
      - nmae: Full
      - 5
  - name: Drink
    max_retries: "2"
"""
MEANING = """\
name: tea
steps:
  - name: Pour
    tool_name: pour
    output_schema: {type: object, properties: {cup: {type: strng}}, required: [cup], additionalProperties: false}
    audits:
      - name: Hot
        rule: output.temperature >
  - name: Pour
    pass_expression: |
      true &&
"""


def test_all_fields_that_can_t_be_read_are_reported_at_once_each_with_its_line() -> None:
    assert find_places(FIELDS) == [
        (1, 1, "/name"),
        (2, 1, "/titel"),
        (3, 1, "/description"),
        (6, 5, "/steps/0/severity"),
        (7, 5, "/steps/0/stop_on_failure"),
        (8, 5, "/steps/0/system_message"),
        (12, 9, "/steps/0/audits/0/fail_at"),
        (13, 9, "/steps/0/audits/1/name"),
        (13, 9, "/steps/0/audits/1/rule"),
        (13, 9, "/steps/0/audits/1/nmae"),
        (14, 9, "/steps/0/audits/2"),
        (16, 5, "/steps/1/max_retries"),
    ]


def test_if_all_fields_can_be_read_all_that_they_mean_is_checked() -> None:
    assert find_places(MEANING) == [
        (3, 5, "/steps/0/name"),
        (5, 54, "/steps/0/output_schema/properties/cup/type"),
        (8, 9, "/steps/0/audits/0/rule"),
        (9, 5, "/steps/1/name"),
        (9, 5, "/steps/1/tool_name"),
        (9, 5, "/steps/1/output_schema"),
        (10, 5, "/steps/1/pass_expression"),
    ]
    (rule,) = [problem for problem in refuse(MEANING).problems if problem.path.endswith("rule")]
    assert rule.message.startswith("In line 1, column ")


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("titel: Tea", "Did you mean “title”?"),
        ("zzz: 1", "Unknown field “zzz”."),
        ("title: true", "Put text in quotes."),
        ("temperature: .inf", "Put it in quotes"),
        ("max_tokens: 012", "Leave out the zeros"),
        ("max_tokens: " + "9" * 400, "is too large"),
        ("max_tokens: " + "9" * 9_000, "is too large"),
        ("title: !Tea", "quotes"),
        ("title: *tea", "quotes"),
        ("title: &tea Tea", "quotes"),
        ("name: tea", "stands twice"),
        ("1: Tea", "Put it in quotes."),
        ("~: Tea", "Put it in quotes."),
        ("? [a]\n: b", "a list or an object"),
        ("? !a b\n: c", "quotes"),
    ],
)
def test_a_mistake_is_reported_with_what_would_be_right(field: str, hint: str) -> None:
    (problem,) = refuse(STEP.replace("steps:", field + "\nsteps:")).problems
    assert problem.line == 2
    assert problem.message.endswith(hint) or hint in problem.message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 'x' + b", "Line 1, column 8"),
        ("a: [0].filter(x)", "Line 1, column 7"),
        ("a: b ? c : d", "Line 1, column 10"),
        ("a: !b || c", "Line 1, column 8"),
        ("a: @b", "Line 1, column 4"),
        ("a:\n\tb: c", "Line 2, column 1"),
        ('a: "b\nc: d', "Line 2, column 5: This is no YAML: found unexpected end of stream"),
        ('a: "\\q"', "Line 1, column 5"),
        ("a: [1, 2\nb: c", "Line 2, column 2"),
        ("a:\n  - b\n c: d", "Line 3, column 2"),
        ("a: b\n---\nc: d", "Line 2, column 1"),
        ("a: \x07", "Line 1, column 4: The character U+0007"),
        ("a: \x00", "Line 1, column 4: The character U+0000"),
        ("name: \ud83d", "Line 1, column 7"),
        ("- a", "Line 1, column 1"),
        ("tea", "Line 1, column 1"),
        ("", "The file is empty."),
        ("# tea\n", "The file is empty."),
        ('{"name": "tea" "steps": 1}', "Line 1, column 16"),
        ('{"name": "tea",\n"name": "cup"}', "Line 2, column 1: /name: “name” stands twice"),
        ("name: café".encode("latin-1"), "Line 1, column 10: The file is not UTF-8"),
        ("name: tea".encode("utf-16"), "Line 1, column 1: The file is not UTF-8"),
    ],
)
def test_text_that_is_no_flow_file_is_refused_with_one_problem_and_its_line(text: str | bytes, place: str) -> None:
    (problem,) = refuse(text).problems
    assert str(problem).startswith(place)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("a: " + "[" * 500_000, "100 levels"),
        ("a: " + "{a: " * 200_000, "100 levels"),
        ("- " * 500_000, "100 levels"),
        ("a: [" + "1," * MAX_VALUES + "]", "50,000 values"),
        (json.dumps({"a": [1] * MAX_VALUES}), "50,000 values"),
        ("#" * (MAX_FILE_BYTES + 1), "1,024 KB"),
        ("a: " + "é" * (MAX_FILE_BYTES // 2), "1,024 KB"),
    ],
)
def test_hostile_files_are_left_where_they_go_too_far(text: str, limit: str) -> None:
    (problem,) = refuse(text).problems
    assert limit in problem.message


def test_only_the_first_of_very_many_problems_are_reported() -> None:
    problems = refuse(STEP + "".join(f"f{number}: 1\n" for number in range(MAX_PROBLEMS + 150))).problems
    assert [problem.line for problem in problems[:2]] == [5, 6]
    assert len(problems) == MAX_PROBLEMS + 1
    assert "150 more" in problems[-1].message


def test_what_a_check_finds_stands_at_its_line_or_at_what_lacks_it() -> None:
    def check(spec: FlowSpec) -> list[Problem]:
        paths = ["/steps/0/audits/3", "/description", "", "/steps/0/name"]
        return [Problem(path, "Wrong.") for path in paths]

    assert find_places(STEP, check=check) == [
        (1, 1, "/description"),
        (1, 1, ""),
        (3, 5, "/steps/0/audits/3"),
        (3, 5, "/steps/0/name"),
    ]
