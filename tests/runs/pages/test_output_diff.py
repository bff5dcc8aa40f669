"""What changed from one output to the next, by structure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.pages.json_lines import list_json
from runs.pages.output_diff import MOST_LINES, Change, DiffLine, OutputDiff, compare_outputs

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

    def test_a_whole_object_that_came_or_went_has_all_its_lines(self) -> None:
        assert draw({"x": 1, "a": {"b": 1}}, {"x": 1}) == ['- "a": {', '- "b": 1', "- }"]

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

    def test_texts_that_have_little_in_common_stand_side_by_side(self) -> None:
        assert draw({"a": "red"}, {"a": "#00ff00"}) == ['~ "a": ["red"] → {"#00ff00"}']

    def test_what_would_deceive_the_reader_is_shown_by_its_code(self) -> None:
        (line,) = draw({"a": "one two three"}, {"a": "one \u202etwo three"})
        assert "\u202e" not in line and "\\u202e" in line


class TestLists:
    def test_an_item_put_in_front_leaves_the_others_alone(self) -> None:
        assert draw([1, 2, 3], [0, 1, 2, 3]) == ["+ 0,"]

    def test_a_field_of_one_item_changed(self) -> None:
        old = [{"text": "Paper", "amount": 1480.0}, {"text": "Freight", "amount": "85,00"}]
        new = [
            {"text": "Paper", "amount": 1480.0},
            {"text": "Freight", "amount": 85.0},
            {"text": "Pallet", "amount": 36.0},
        ]
        assert draw(old, new) == [
            '~ "amount": ["85,00"] → {85.0}',
            "+ {",
            '+ "text": "Pallet",',
            '+ "amount": 36.0',
            "+ }",
        ]

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

    def test_a_short_stretch_is_not_worth_a_fold(self) -> None:
        blocks = compare({"a": 1, "b": 2, "c": 3}, {"a": 9, "b": 2, "c": 3}).blocks
        assert not any(block.is_folded for block in blocks)


class TestLimits:
    def test_outputs_that_are_too_long_are_not_compared(self) -> None:
        long = list(range(MOST_LINES))
        assert compare_outputs(long, [1], list_json(long, max_lines=9_000), list_json([1])) is None
        text = "x" * 400_000
        assert compare_outputs([1], text, list_json([1]), list_json(text, max_characters=500_000)) is None

    def test_outputs_that_are_not_shown_whole_are_not_compared(self) -> None:
        value = list(range(100))
        assert compare_outputs(value, [1], list_json(value, max_lines=10), list_json([1])) is None

    def test_a_hundred_levels_are_compared(self) -> None:
        old: Any = "old"
        new: Any = "new"
        for level in range(98):
            old, new = ({"level": old}, {"level": new}) if level % 2 else ([old], [new])
        assert draw(old, new) == ['~ ["old"] → {"new"}']


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
