"""Reading flow files: hints, limits, encodings. ``tests/contract`` pins what scalars mean and the lines of mistakes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.engine.errors import Problem
from flows.flow_file import MAX_FILE_BYTES, FlowFileError, parse_flow
from flows.flow_file.reading import MAX_PROBLEMS, MAX_VALUES
from tests.engine.builders import make_flow

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


def test_a_place_in_an_expression_is_not_one_in_the_file() -> None:
    (problem,) = refuse(STEP.replace("'{}'", "|\n      true &&")).problems
    assert problem.line == 4 and problem.message.startswith("In line 2, column 1")


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
