"""What changed from one output to the next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.template.loader import render_to_string
from hypothesis import given
from hypothesis import strategies as st

from runs.history.json_lines import Change, Line, Mark
from runs.history.output_diff import MAX_LINES, MAX_SHOWN_LINES, compare_outputs

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.floats(0, 3) | st.text("ab ", max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=4),
    max_leaves=12,
)


def compare(old: Any, new: Any, marks: tuple[Mark, ...] = ()) -> dict[str, Any]:
    diff = compare_outputs(old, new, marks)
    assert diff is not None
    return diff


def list_parts(line: Line) -> list[tuple[Change, str]]:
    """The old and the new value of a line in one."""
    if line.old is not None:
        return list(line.parts) or [(Change.REMOVED, line.old), (Change.ADDED, line.value)]
    return [(Change.SAME, line.value)]


def write(line: Line) -> str:
    """A line as ``~ "a": [1]{2}``: what was removed in square brackets, what was added in curly ones."""
    marks = {Change.REMOVED: "[{}]", Change.ADDED: "{{{}}}", Change.SAME: "{}"}
    text = "".join(marks[change].format(part) for change, part in list_parts(line))
    sign = line.change.sign.replace("\N{MINUS SIGN}", "-")
    return f"{sign} {f'{line.key}: ' if line.key else ''}{text}{line.tail}"


def draw(old: Any, new: Any) -> list[str]:
    """The changed lines of a difference."""
    return [
        write(line)
        for block in compare(old, new)["blocks"]
        for line in block["lines"]
        if line.change is not Change.SAME
    ]


def test_keys_in_another_order_are_no_change() -> None:
    diff = compare({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
    numbers = [line.number for block in diff["blocks"] for line in block["lines"]]
    assert diff["is_same"] and numbers == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("old", "new"), [(1, 1.0), (1, True), (0, False), ("1", 1), (None, "null")])
def test_values_that_only_look_equal_differ(old: Any, new: Any) -> None:
    assert compare({"a": old}, {"a": new})["counts"][Change.CHANGED] == 1


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 9, "a": 1}, ['+ "d": 4,', '~ "c": [3]{9},', '- "b": 2,']),
        ({"a": [1]}, {"a": "x"}, ['- "a": [', "- 1", "- ]", '+ "a": "x"']),
        ([1, 2, 3], [0, 1, 2, 3], ["+ 0,"]),
        (["red", "blue"], ["#ff0000", "#0000ff"], ['~ ["red"]{"#ff0000"},', '~ ["blue"]{"#0000ff"}']),
        (
            [{"id": 1, "a": "x", "b": "y"}, {"id": 2, "a": "p", "b": "q"}],
            [{"id": 2, "a": "p2", "b": "q2"}, {"id": 3, "a": "n", "b": "m"}],
            [
                *("- {", '- "id": 1,', '- "a": "x",', '- "b": "y"', "- },"),
                *('~ "a": ["p"]{"p2"},', '~ "b": ["q"]{"q2"}'),
                *("+ {", '+ "id": 3,', '+ "a": "n",', '+ "b": "m"', "+ }"),
            ],
        ),
        # Words, with their combining marks; a word that nothing replaces goes with its space.
        (
            ["Delivered on Monday to the back door."],
            ["Delivered on Tuesday to the front door."],
            ['~ "Delivered on [Monday]{Tuesday} to the [back]{front} door."'],
        ),
        (["المعتاد 30 يومًا على الأقل."], ["المعتاد 60 يومًا على الأقل."], ['~ "المعتاد [30]{60} يومًا على الأقل."']),
        (["a very long day"], ["a long day"], ['~ "a [very ]long day"']),
        (["two  spaces"], ["two spaces"], ['~ ["two  spaces"]{"two spaces"}']),
    ],
)
def test_changes(old: Any, new: Any, lines: list[str]) -> None:
    assert draw(old, new) == lines


def test_the_old_value_stands_before_the_new_one_in_every_script() -> None:
    long = "يتحمل البائع المسؤولية الكاملة وغير المحدودة عن أي ضرر مباشر أو غير مباشر"
    diff = compare({"a": "low", "b": long, "c": "x"}, {"a": "χαμηλό", "b": "Limited to the price " * 4, "c": "نعم"})
    short, stacked, third = (
        line for block in diff["blocks"] for line in block["lines"] if line.change is Change.CHANGED
    )
    directions = [text.direction for line in (short, stacked, third) for text in (line.old, line.value) if text]
    assert directions == ["", "ltr", "rtl", "", "", "rtl"]
    assert (short.is_stacked, stacked.is_stacked) == (False, True)
    html = render_to_string("runs/output_diff.html", {"diff": diff})
    assert '<del>&quot;low&quot;</del> → <ins dir="ltr">&quot;χαμηλό&quot;</ins>' in html
    assert html.index('<del class="whole" dir="rtl">') < html.index('<ins class="whole">')


def test_lines_far_from_a_change_are_folded_unless_an_issue_points_at_them() -> None:
    old = {str(n): n for n in range(20)}
    blocks = compare(old, {**old, "10": "x"})["blocks"]
    assert [(block["is_folded"], block["count"]) for block in blocks] == [(True, 9), (False, 5), (True, 8)]
    diff = compare(old, {**old, "10": "x"}, (Mark("low", "Title", "i0", "/3"),))
    assert [block["lines"][0].number for block in diff["blocks"] if block["count"] == 1] == [5]
    assert diff["anchors"] == {"i0": "i0-at"}


def test_what_is_too_long_is_bounded_and_says_so() -> None:
    many = compare([str(n) for n in range(1_500)], [str(n) for n in range(900, 2_400)])
    shown = sum(len(block["lines"]) for block in many["blocks"])
    assert shown + many["left_out"] >= MAX_SHOWN_LINES and many["left_out"] > 0
    assert (many["counts"][Change.ADDED], many["counts"][Change.REMOVED]) == (900, 900)
    assert compare_outputs(list(range(MAX_LINES)), [1]) is None
    assert compare_outputs([1], "x" * 400_000) is None
    assert draw(["word " * 3_000], ["word " * 3_000 + "x"])[0].startswith('~ ["word')


@given(JSON_VALUES, JSON_VALUES)
def test_without_what_is_gone_the_lines_are_the_new_output(old: Any, new: Any) -> None:
    diff = compare(old, new)
    shown = [line for block in diff["blocks"] for line in block["lines"] if line.change is not Change.REMOVED]
    assert [line.number for line in shown] == list(range(1, len(shown) + 1))
    text = "".join(
        f"{f'{line.key}: ' if line.key else ''}"
        + "".join(text for change, text in list_parts(line) if change is not Change.REMOVED)
        + line.tail
        for line in shown
    )
    assert json.loads(text) == new
    assert diff["is_same"] is (json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True))
