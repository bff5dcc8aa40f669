"""JSON as numbered lines: what they say, where they are cut, and which line a pointer means."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.json_values import format_pointer
from runs.history.json_lines import MAX_LINE_MARKS, Listing, Mark, list_compact, list_json, list_text

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def list_parts(value: Any) -> list[tuple[str, Any]]:
    """All parts of a value with their pointers, without the value itself."""
    parts: list[tuple[str, Any]] = [("", value)]
    for pointer, part in parts:
        children = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        parts += [(pointer + format_pointer([key]), child) for key, child in children]
    return parts[1:]


def join(listing: Listing) -> str:
    return "\n".join(line.text for line in listing.lines)


def nest(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@given(ANY_JSON)
def test_lines_are_the_value_as_json_lays_it_out_and_every_part_has_one(value: Any) -> None:
    listing, plain = list_json(value), json.dumps(value, indent=2)
    text = join(listing)
    assert json.loads(text) == value and len(listing.lines) == len(plain.split("\n"))
    if plain.isascii() and "\\u" not in plain and "\x7f" not in plain:
        assert text == plain
    assert sum(bool(line.holds) for line in listing.lines) == sum(line.closes for line in listing.lines)
    assert json.loads(list_compact(value, 100_000)) == value
    for pointer, part in list_parts(value):
        assert listing.places[pointer].value[0] == json.dumps(part)[0]


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\x1b", "\x9b", "\u200b", "\ufeff", "\ud83d", "\0"])
def test_deceptive_characters_are_shown_by_their_code(character: str) -> None:
    code = f"\\u{ord(character):04x}"
    assert list_json({character: character}).lines[1].text == f'  "{code}": "{code}"'
    assert list_text(f"a{character}b").lines[0].text == f"a{code}b"


def test_keys_and_values_have_each_their_direction() -> None:
    line = list_json({"مفتاح": "Πληρωμή (نعم)", "b": 1}).lines[1]
    assert (line.key.direction, line.value.direction, line.value, line.tail) == ("rtl", "ltr", '"Πληρωμή (نعم)"', ",")
    assert list_json({"b": 1}).lines[1].value.direction == ""


@pytest.mark.parametrize(
    ("value", "lines", "unclosed"),
    [
        (list(range(5_000)), 2_000, 1),
        ({"a": "x" * 1_000_000, "b": 1}, 2, 1),
        (nest(sys.getrecursionlimit() * 3), 0, 10),
    ],
    ids=["items", "one long line", "depth"],
)
def test_a_value_too_large_is_cut_and_says_so(value: Any, lines: int, unclosed: int) -> None:
    listing = list_json(value)
    assert listing.is_cut and len(listing.lines) == (lines or len(listing.lines))
    assert len(join(listing)) < 210_000 and len(listing.unclosed) == unclosed
    assert not listing.mark([Mark("low", "Title", "i0", "/4000")])


VALUE: Any = {
    "supplier": "Nordwind",
    "lines": [{"amount": 1.5}, {"amount": "85,00", "a/b~c": None}],
    "": "empty key",
}


@pytest.mark.parametrize(
    ("pointer", "line"),
    [
        ("/lines/1/amount", 8),
        ("/lines/1/a~1b~0c", 9),
        ("/", 12),
        # What is missing leads to the nearest parent.
        ("/lines/1/missing", 7),
        ("/lines/7", 3),
        ("/lines/0/amount/deep", 5),
        ("/missing/part", 1),
        *((pointer, None) for pointer in (None, "", "lines/0", "$.lines")),
    ],
)
def test_a_pointer_leads_to_its_line(pointer: str | None, line: int | None) -> None:
    listing = list_json(VALUE)
    listing.mark([Mark("low", "Title", "i0", pointer)])
    assert [one.number for one in listing.lines if one.marks] == ([] if line is None else [line])


def test_marks_stand_on_their_lines_and_beyond_the_limit_share_a_badge() -> None:
    many = [Mark("low", "Title", f"i{number}", "/supplier", number) for number in range(MAX_LINE_MARKS + 2)]
    listing = list_json(VALUE)
    anchors = listing.mark([*many, Mark("high", "Other", "x", None)])
    marks = listing.lines[1].marks
    assert marks is not None and (len(marks["shown"]), marks["more"], marks["severities"]) == (MAX_LINE_MARKS, 2, "low")
    assert anchors[many[-1].issue_id] == anchors[many[0].issue_id] == "i0-at" and "x" not in anchors
    assert [line.number for line in listing.lines if line.marks] == [2]
