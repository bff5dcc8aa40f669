"""Reading flow files: what is meant, and everything that is wrong in one go, where it is."""

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
from flows.flow_file import MAX_FILE_BYTES, FlowFileError, read_document, read_flow, write_flow
from flows.flow_file.problems import MOST_PROBLEMS
from tests.engine.builders import make_flow

HEAD = "name: tea\nsteps:\n"
STEP = HEAD + "  - name: Pour\n    compute: '{}'\n"


def read_error(source: str | bytes) -> list[str]:
    with pytest.raises(FlowFileError) as caught:
        read_flow(source)
    return [str(problem) for problem in caught.value.problems]


def read_schema(text: str) -> dict[str, Any]:
    """What stands for the input schema, below that key."""
    document = read_document(f"name: tea\ninput_schema:\n{text}")
    schema: dict[str, Any] = document["input_schema"]
    return schema


# ---------------------------------------------------------------------------------------------------------------
# What is meant


@pytest.mark.parametrize("word", ["no", "yes", "on", "Off", "y", "2026-11-21", "1:30", "=", "<<", "1_000", "0x"])
def test_words_that_only_older_yaml_takes_for_something_else_are_text(word: str) -> None:
    assert read_schema(f"  enum: [{word}]") == {"enum": [word]}


@pytest.mark.parametrize(
    ("word", "value"),
    [("true", True), ("FALSE", False), ("null", None), ("~", None), ("12", 12), ("-0", 0), ("+3", 3), ("0o17", 15),
     ("0x1F", 31), ("1e3", 1000.0), ("-1.5E-2", -0.015), (".5", 0.5), ("2.", 2.0), ("'12'", "12"), ('"true"', "true")],
)  # fmt: skip
def test_scalars_are_those_of_the_core_schema(word: str, value: Any) -> None:
    (found,) = read_schema(f"  enum: [{word}]")["enum"]
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


# ---------------------------------------------------------------------------------------------------------------
# What is wrong

MANY_MISTAKES = """\
name: Tea Time
titel: Tea
description: 12
steps:
  - name: Pour
    severity: high
    tool_name: pour
    output_schema: {type: object, properties: {cup: {type: strng}}, required: [cup], additionalProperties: false}
    stop_on_failure: no
    max_retries: 012
    system_message:
    audits:
      - name: Hot
        rule: output.temperature >
        fail_at: hgh
      - nmae: Full
      - 5
  - name: Pour
    compute: !output.x
    pass_expression: cups == 1
  - name: Drink
    name: Sip
    compute: *cup
    temperature: .nan
  - &last
    name: Wash
    compute: "{'cup': saucer}"
    max_retries: "2"
"""


def test_all_mistakes_of_a_file_are_told_at_once_each_with_its_line() -> None:
    found = read_error(MANY_MISTAKES)
    places = [line.split(": ")[0:2] for line in found]
    assert places == [
        ["Line 1, column 1", "/name"],
        ["Line 2, column 1", "/titel"],
        ["Line 3, column 1", "/description"],
        ["Line 5, column 5", "/steps/0/name"],
        ["Line 6, column 5", "/steps/0/severity"],
        ["Line 8, column 54", "/steps/0/output_schema/properties/cup/type"],
        ["Line 9, column 5", "/steps/0/stop_on_failure"],
        ["Line 10, column 18", "/steps/0/max_retries"],
        ["Line 11, column 5", "/steps/0/system_message"],
        ["Line 14, column 9", "/steps/0/audits/0/rule"],
        ["Line 15, column 9", "/steps/0/audits/0/fail_at"],
        ["Line 16, column 9", "/steps/0/audits/1/name"],
        ["Line 16, column 9", "/steps/0/audits/1/rule"],
        ["Line 16, column 9", "/steps/0/audits/1/nmae"],
        ["Line 17, column 9", "/steps/0/audits/2"],
        ["Line 18, column 5", "/steps/1/name"],
        ["Line 19, column 14", "/steps/1/compute"],
        ["Line 20, column 5", "/steps/1/pass_expression"],
        ["Line 22, column 5", "/steps/2/name"],
        ["Line 23, column 14", "/steps/2/compute"],
        ["Line 24, column 18", "/steps/2/temperature"],
        ["Line 25, column 5", "/steps/3"],
        ["Line 27, column 5", "/steps/3/compute"],
        ["Line 28, column 5", "/steps/3/max_retries"],
    ]


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("titel: Tea", "Unknown field “titel”. Did you mean “title”?"),
        ("rule: 'true'", "Unknown field “rule”. It is a field of an audit."),
        ("zzz: 1", "Unknown field “zzz”."),
        ("title: true", '“title” must be text, and true is a boolean. Put it in quotes: "true".'),
        ("model: 1e3", '“model” must be text, and 1e3 is a number. Put it in quotes: "1e3".'),
        ("title:", "“title” has no value here. Leave the field out, or give it one."),
        ("max_tokens: '5'", "“max_tokens” must be a number, got the text “5”. Take the quotes away."),
        ("temperature: .inf", ".inf is no number of JSON. Write a finite number, or put it in quotes if it is text."),
        ("max_tokens: 012", "Some programs read 012 as octal. Leave out the zeros in front"),
        ("max_tokens: " + "9" * 400, "is too large; ±1.8e+308 is the limit."),
        ("title: !Tea", "“!Tea” is a tag in YAML, and flow files have none. Put text that begins with “!” in quotes."),
        ("title: *tea", "“*tea” refers to another place in YAML, and flow files have no references."),
        ("title: &tea Tea", "“&tea” names a place in YAML, and flow files have no references."),
        ("name: tea", "“name” stands twice here, first in line 1. Keep one of them."),
        ("1: Tea", 'The key 1 is no text. Put it in quotes: "1".'),
        ("? [a]\n: b", "A key is text, and here it is a list, an object or a reference."),
    ],
)
def test_each_mistake_is_told_with_what_would_be_right(field: str, sentence: str) -> None:
    text = STEP.replace("steps:", field + "\nsteps:")
    found = read_error(text)
    assert any(sentence in line and line.startswith("Line 2, ") for line in found), found


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("  - name: Pour\n    compute: '{}'\n    stop_on_failure: no", "got the text “no”. Write false."),
        (
            "  - name: Pour\n    compute: '{}'\n    stop_on_failure: 'true'",
            "got the text “true”. Take the quotes away.",
        ),
        ("  - name: Pour\n    tool_name: pour it", "A tool's name has 1 to 64 letters, digits, “_” and “-”"),
        ("  - name:\n    compute: '{}'", "“name” has no value here, and a step can't do without."),
        ("  - Pour", "Here a step is expected, with fields such as “name: …”; got text."),
        ("  - {name: A, compute: '{}'}\n" * 51, "A flow has at most 50 steps, and this one has 51."),
        ("  - !a b\n" * 60, "A flow has at most 50 steps, and this one has 60."),
    ],
)
def test_mistakes_in_steps_are_told_with_what_would_be_right(step: str, sentence: str) -> None:
    found = read_error(HEAD + step)
    assert any(sentence in line for line in found), found


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        ("a: 'x' + b", "Line 1, column 8", "wholly in quotes"),
        ("a: [0].filter(x)", "Line 1, column 7", "wholly in quotes"),
        ("a: b ? c : d", "Line 1, column 10", "A colon with a space behind it"),
        ("a: !b || c", "Line 1, column 8", "an expression that begins with “!”, in quotes"),
        ("a: @b", "Line 1, column 4", "Text can't begin with “@”"),
        ("a:\n\tb: c", "Line 2, column 1", "with spaces, never with tabs"),
        ('a: "b\nc: d', "Line 1, column 4", "no closing quote"),
        ('a: "\\q"', "Line 1, column 5", "In double quotes a backslash is followed by"),
        ("a: [1, 2\nb: c", "Line 2, column 2", "What has to be closed began in line 1."),
        ("a:\n  - b\n c: d", "Line 3, column 2", "check the indentation"),
        ("a: - b", "Line 1, column 4", "Its dashes stand on the lines below"),
        ("a: b\n---\nc: d", "Line 2, column 1", "A file holds one flow"),
        ("a: \x07", "Line 1, column 4", "U+0007 can't stand in a file as it is"),
        ("a: \x00", "Line 1, column 4", "NUL character"),
        ("- a", "Line 1, column 1", "This is a list."),
        ("tea", "Line 1, column 1", "This is text."),
        ("", "", "The file is empty."),
        ("# tea\n", "", "The file is empty."),
        ("a: " + "[" * 200, "Line 1, column 103", "nested deeper than 100 levels"),
        ('{"name": "tea" "steps": 1}', "Line 1, column 16", "A comma or a closing “}” is missing."),
        ("a: [" + "1," * 60_000 + "]", "Line 1, column", "The file holds more than 50,000 values."),
    ],
)
def test_text_that_is_no_flow_file_is_told_in_our_words(text: str, place: str, sentence: str) -> None:
    (found,) = read_error(text)
    assert found.startswith(place)
    assert sentence in found


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("name: café".encode("latin-1"), "Line 1, column 10: The file is not UTF-8 here."),
        ("name: tea".encode("utf-16"), "Line 1, column 1: The file is not UTF-8 here."),
        (b"#" * (MAX_FILE_BYTES + 1), "The file is too large. A flow file has at most 1,024 KB."),
        ("name: \ud83d", "The file is not UTF-8 here."),
    ],
)
def test_bytes_that_are_no_text_are_refused(source: str | bytes, sentence: str) -> None:
    (found,) = read_error(source)
    assert sentence in found


def test_only_the_first_of_very_many_problems_are_told() -> None:
    found = read_error(STEP + "".join(f"f{number}: 1\n" for number in range(250)))
    assert len(found) == MOST_PROBLEMS + 1
    assert "150 more problems follow." in found


def test_what_a_check_finds_stands_at_its_line() -> None:
    def check(spec: FlowSpec) -> list[Problem]:
        return [Problem("/steps/0/name", "Too short."), Problem("/description", "Missing."), Problem("", "Odd.")]

    with pytest.raises(FlowFileError) as caught:
        read_flow(STEP, check=check)
    assert [str(problem) for problem in caught.value.problems] == [
        "Line 1, column 1: /description: Missing.",
        "Line 1, column 1: Odd.",
        "Line 3, column 5: /steps/0/name: Too short.",
    ]


def test_a_document_need_not_make_sense_to_be_read() -> None:
    assert read_document("name: tea\ncups: 2") == {"name": "tea", "cups": 2}
    with pytest.raises(FlowFileError, match="stands twice"):
        read_document("name: tea\nname: cup")
    assert read_document(write_flow(make_flow())) == make_flow().to_document()
