"""Outputs as numbered lines, and what changed from one to the next."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.history.json_lines import Place, list_json, list_text
from runs.history.output_diff import MOST_LINES, Change, DiffLine, OutputDiff, compare_outputs

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def write_text(value: Any) -> str:
    return "\n".join(line.text for line in list_json(value).lines)


class TestLines:
    @given(ANY_JSON)
    def test_the_lines_together_are_the_value_as_everybody_lays_it_out(self, value: Any) -> None:
        text, plain = write_text(value), json.dumps(value, indent=2)
        assert json.loads(text) == value and len(text.split("\n")) == len(plain.split("\n"))
        if plain.isascii() and "\\u" not in plain and "\x7f" not in plain:
            assert text == plain

    def test_plain_text_keeps_its_lines_and_shows_tabs_as_spaces(self) -> None:
        listing = list_text("first\r\n\tsecond\n")
        assert [line.text for line in listing.lines] == ["first", "    second", ""]
        assert listing.find("/first") is None

    @pytest.mark.parametrize("character", ["\u202e", "\u2066", "\x1b", "\x9b", "\u200b", "\ufeff", "\ud83d"])
    def test_characters_that_could_deceive_the_reader_are_shown_by_their_code(self, character: str) -> None:
        code = f"\\u{ord(character):04x}"
        assert list_json({character: character}).lines[1].text == f'  "{code}": "{code}"'
        assert list_text(f"a{character}b").lines[0].text == f"a{code}b"


class TestCutting:
    def test_a_value_of_too_many_lines_is_cut_and_says_so(self) -> None:
        listing = list_json(list(range(5_000)), max_lines=2_000)
        assert listing.is_cut
        assert len(listing.lines) == 2_000
        assert listing.find("/10") == Place(12, is_exact=True)
        assert listing.find("/4000") is None

    def test_one_huge_string_is_cut_within_its_line(self) -> None:
        listing = list_json({"a": "x" * 1_000_000, "b": 1})
        assert listing.is_cut
        assert len(listing.lines) == 2
        assert sum(len(line.text) for line in listing.lines) < 210_000
        assert listing.lines[-1].text.endswith("…")

    def test_nesting_deeper_than_python_recurses_is_no_problem(self) -> None:
        value: Any = []
        for _ in range(sys.getrecursionlimit() * 3):
            value = [value]
        listing = list_json(value)
        assert listing.is_cut
        assert sum(len(line.text) for line in listing.lines) < 210_000


class TestPointers:
    VALUE: Any = {
        "supplier": "Nordwind",
        "lines": [{"amount": 1.5}, {"amount": "85,00", "a/b~c": None}],
        "": "empty key",
    }

    @given(ANY_JSON)
    def test_every_part_of_a_value_has_a_line_that_begins_it(self, value: Any) -> None:
        listing = list_json(value)
        parts: list[tuple[str, Any]] = [("", value)]
        for pointer, part in parts:
            if isinstance(part, dict):
                parts += [(f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", part[key]) for key in part]
            elif isinstance(part, list):
                parts += [(f"{pointer}/{index}", item) for index, item in enumerate(part)]
        for pointer, part in parts[1:]:
            place = listing.find(pointer)
            assert place is not None and place.is_exact
            shown = listing.lines[place.line - 1].value.rstrip(",")
            assert shown[0] == json.dumps(part)[0]

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
            # What points at no single place leads nowhere.
            *((pointer, None) for pointer in (None, "", "lines/0", "$.lines")),
        ],
    )
    def test_a_pointer_leads_to_its_line(self, pointer: str | None, place: Place | None) -> None:
        assert list_json(self.VALUE).find(pointer) == place


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.floats(0, 3) | st.text("ab ", max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=4),
    max_leaves=12,
)
SIGNS = {Change.SAME: " ", Change.ADDED: "+", Change.REMOVED: "-", Change.CHANGED: "~"}


def compare(old: Any, new: Any, *, kept: tuple[int, ...] = ()) -> OutputDiff:
    diff = compare_outputs(old, new, list_json(old), list_json(new), kept=kept)
    assert diff is not None
    return diff


def write(line: DiffLine) -> str:
    """A line as ``~ "a": [1]{2}``: what was removed in square brackets, what was added in curly ones."""
    marks = {Change.REMOVED: "[{}]", Change.ADDED: "{{{}}}"}
    is_changed = line.change is Change.CHANGED
    text = "".join(marks.get(part.change, "{}").format(part.text) if is_changed else part.text for part in line.parts)
    return f"{SIGNS[line.change]} {f'{line.key}: ' if line.key else ''}{text}"


def draw(old: Any, new: Any) -> list[str]:
    """The changed lines of a difference."""
    return [write(line) for block in compare(old, new).blocks for line in block.lines if line.change is not Change.SAME]


class TestObjects:
    def test_keys_in_another_order_are_no_change(self) -> None:
        diff = compare({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
        assert diff.is_same
        assert [line.number for block in diff.blocks for line in block.lines] == [1, 2, 3, 4, 5, 6, 7]

    def test_values_are_added_removed_and_changed(self) -> None:
        diff = compare({"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 9, "a": 1})
        assert (diff.added, diff.removed, diff.changed) == (1, 1, 1)
        assert draw({"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 9, "a": 1}) == [
            '+ "d": 4,',
            '~ "c": [3] → {9},',
            '- "b": 2,',
        ]

    @pytest.mark.parametrize(("old", "new"), [(1, 1.0), (1, True), (0, False), ("1", 1), (None, "null")])
    def test_values_that_only_python_finds_equal_or_that_only_look_so_are_told_apart(self, old: Any, new: Any) -> None:
        assert compare({"a": old}, {"a": new}).changed == 1

    def test_another_kind_of_value_is_shown_as_the_old_one_gone_and_the_new_one_come(self) -> None:
        assert draw({"a": [1]}, {"a": "x"}) == ['- "a": [', "- 1", "- ]", '+ "a": "x"']
        assert compare({"a": [1]}, {"a": "x"}).changed == 1


class TestTexts:
    def test_the_words_that_changed_are_marked(self) -> None:
        old, new = "Delivered on Monday to the back door.", "Delivered on Tuesday to the front door."
        assert draw({"note": old}, {"note": new}) == [
            '~ "note": "Delivered on [Monday]{Tuesday} to the [back]{front} door."'
        ]


class TestLists:
    def test_an_item_put_in_front_leaves_the_others_alone(self) -> None:
        assert draw([1, 2, 3], [0, 1, 2, 3]) == ["+ 0,"]

    def test_an_item_is_known_by_its_id_whatever_else_changed(self) -> None:
        old = [{"id": 1, "a": "x", "b": "y"}, {"id": 2, "a": "p", "b": "q"}]
        new = [{"id": 2, "a": "p2", "b": "q2"}, {"id": 3, "a": "n", "b": "m"}]
        assert draw(old, new) == [
            *("- {", '- "id": 1,', '- "a": "x",', '- "b": "y"', "- },"),
            *('~ "a": ["p"] → {"p2"},', '~ "b": ["q"] → {"q2"}'),
            *("+ {", '+ "id": 3,', '+ "a": "n",', '+ "b": "m"', "+ }"),
        ]

    def test_as_many_items_as_before_are_the_same_ones_changed(self) -> None:
        assert draw(["red", "blue"], ["#ff0000", "#0000ff"]) == ['~ ["red"] → {"#ff0000"},', '~ ["blue"] → {"#0000ff"}']

    def test_thousands_of_items_keep_what_they_have_in_common(self) -> None:
        assert len(draw([str(n) for n in range(1_500)], [str(n) for n in range(900, 2_400)])) == 1_800


class TestFolding:
    def test_what_is_unchanged_and_far_from_a_change_is_folded(self) -> None:
        old = {str(n): n for n in range(20)}
        blocks = compare(old, {**old, "10": "x"}).blocks
        assert [(block.is_folded, len(block.lines)) for block in blocks] == [(True, 9), (False, 5), (True, 8)]

    def test_lines_that_issues_point_at_stay_in_view(self) -> None:
        old = {str(n): n for n in range(20)}
        blocks = compare(old, {**old, "10": "x"}, kept=(5,)).blocks
        assert [block.lines[0].number for block in blocks if len(block.lines) == 1] == [5]
        assert not any(block.is_folded for block in blocks if len(block.lines) == 1)


class TestLimits:
    def test_outputs_that_are_too_long_are_not_compared(self) -> None:
        long = list(range(MOST_LINES))
        assert compare_outputs(long, [1], list_json(long, max_lines=9_000), list_json([1])) is None
        text = "x" * 400_000
        assert compare_outputs([1], text, list_json([1]), list_json(text, max_characters=500_000)) is None


class TestAnyValues:
    @given(JSON_VALUES, JSON_VALUES)
    def test_without_what_is_gone_the_lines_are_those_of_the_new_output(self, old: Any, new: Any) -> None:
        lines = [line for block in compare(old, new).blocks for line in block.lines]
        shown = [line for line in lines if line.change is not Change.REMOVED]
        assert [line.number for line in shown] == list(range(1, len(shown) + 1))
        text = "".join(
            f"{f'{line.key}: ' if line.key else ''}"
            + "".join(part.text for part in line.parts if part.change is not Change.REMOVED).replace(" → ", "")
            for line in shown
        )
        assert json.loads(text) == new

    @given(JSON_VALUES, JSON_VALUES)
    def test_nothing_changed_means_that_the_values_are_equal(self, old: Any, new: Any) -> None:
        is_equal = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
        assert compare(old, new).is_same is is_equal
