"""JSON as numbered lines: what they say, where they are cut, and which line a pointer means."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.history.json_lines import MAX_LINE_MARKS, Listing, Mark, Place, list_compact, list_json, list_text

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


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
    assert json.loads(list_compact(value, 100_000)[0]) == value
    parts: list[tuple[str, Any]] = [("", value)]
    for pointer, part in parts:
        if isinstance(part, dict):
            parts += [(f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", part[key]) for key in part]
        elif isinstance(part, list):
            parts += [(f"{pointer}/{index}", item) for index, item in enumerate(part)]
    for pointer, part in parts[1:]:
        place = listing.find(pointer)
        assert place is not None and place.is_exact
        assert listing.lines[place.line - 1].value[0] == json.dumps(part)[0]


def test_plain_text_keeps_its_lines_and_shows_tabs_as_spaces() -> None:
    listing = list_text("first\r\n\tsecond\n")
    assert [line.text for line in listing.lines] == ["first", "    second", ""]
    assert listing.find("/first") is None


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\x1b", "\x9b", "\u200b", "\ufeff", "\ud83d", "\0"])
def test_deceptive_characters_are_shown_by_their_code(character: str) -> None:
    code = f"\\u{ord(character):04x}"
    assert list_json({character: character}).lines[1].text == f'  "{code}": "{code}"'
    assert list_text(f"a{character}b").lines[0].text == f"a{code}b"


def test_keys_and_values_have_each_their_direction() -> None:
    line = list_json({"مفتاح": "Πληρωμή (نعم)", "b": 1}).lines[1]
    assert (line.key_direction, line.direction, line.value, line.tail) == ("rtl", "ltr", '"Πληρωμή (نعم)"', ",")
    assert list_json({"b": 1}).lines[1].direction == ""


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
    assert listing.find("/4000") is None


VALUE: Any = {
    "supplier": "Nordwind",
    "lines": [{"amount": 1.5}, {"amount": "85,00", "a/b~c": None}],
    "": "empty key",
}


@pytest.mark.parametrize(
    ("pointer", "place"),
    [
        ("/lines/1/amount", Place(8, is_exact=True)),
        ("/lines/1/a~1b~0c", Place(9, is_exact=True)),
        ("/", Place(12, is_exact=True)),
        # What is missing leads to the nearest parent.
        ("/lines/1/missing", Place(7, is_exact=False)),
        ("/lines/7", Place(3, is_exact=False)),
        ("/lines/0/amount/deep", Place(5, is_exact=False)),
        ("/missing/part", Place(1, is_exact=False)),
        *((pointer, None) for pointer in (None, "", "lines/0", "$.lines")),
    ],
)
def test_a_pointer_leads_to_its_line(pointer: str | None, place: Place | None) -> None:
    assert list_json(VALUE).find(pointer) == place


def test_marks_stand_on_their_lines_and_beyond_the_limit_share_a_badge() -> None:
    many = [Mark("low", "Title", f"i{number}", "/supplier", number) for number in range(MAX_LINE_MARKS + 2)]
    listing, anchors = list_json(VALUE).mark([*many, Mark("high", "Other", "x", None)])
    marks = listing.lines[1].marks
    assert marks is not None and (len(marks.shown), marks.more, marks.severities) == (MAX_LINE_MARKS, 2, "low")
    assert anchors[many[-1].issue_id] == anchors[many[0].issue_id] == "i0-at" and "x" not in anchors
    assert [line.number for line in listing.lines if line.marks] == [2]
