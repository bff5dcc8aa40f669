"""The difference of two texts, line by line."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flows.engine.differences.sequence_matching import compare_sequences, find_increasing
from flows.engine.differences.text_diff import MOST_LINES, LineKind, compare_texts
from tests.engine.differences.spec_changes import draw

LINES = st.lists(st.sampled_from(["a", "b", "c d", "c e", ""]), max_size=12)


def test_unchanged_stretches_are_folded_beside_three_lines_of_context() -> None:
    lines = [f"line {n}" for n in range(20)]
    changed = [*lines[:10], "another", *lines[11:]]
    assert draw(compare_texts("\n".join(lines), "\n".join(changed))) == [
        "… 7 lines",
        "  line 7",
        "  line 8",
        "  line 9",
        "- line 10",
        "+ another",
        "  line 11",
        "  line 12",
        "  line 13",
        "… 6 lines",
    ]


def test_the_words_that_differ_within_a_line_are_marked() -> None:
    old, new = "Hues are at least 45° apart, always.", "Hues are at least 60° apart."
    assert draw(compare_texts(old, new)) == [
        "- Hues are at least [45]° apart[, always].",
        "+ Hues are at least [60]° apart.",
    ]


def test_lines_that_have_little_in_common_have_no_marks() -> None:
    assert draw(compare_texts("A colour designer.", "Reads bills only")) == [
        "- A colour designer.",
        "+ Reads bills only",
    ]


def test_characters_that_nobody_sees_are_written_as_symbols() -> None:
    assert draw(compare_texts("", "a\x00b\u202ec")) == ["+ a␀b⟨U+202E⟩c"]


def test_of_too_many_lines_the_rest_is_counted() -> None:
    difference = compare_texts("", "\n".join(map(str, range(MOST_LINES + 50))))
    assert (len(draw(difference)), difference.left_out) == (MOST_LINES, 50)


@given(LINES, LINES)
def test_both_texts_can_be_read_from_the_difference(old: list[str], new: list[str]) -> None:
    difference = compare_texts("\n".join(old), "\n".join(new))
    lines = [line for block in difference.blocks for line in block.lines]
    assert "\n".join(line.text for line in lines if line.kind is not LineKind.ADDED) == "\n".join(old)
    assert "\n".join(line.text for line in lines if line.kind is not LineKind.REMOVED) == "\n".join(new)


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30))
def test_stretches_cover_both_sequences_without_gaps(old: list[int], new: list[int]) -> None:
    stretches = compare_sequences(old, new)
    assert [item for one in stretches for item in old[one.old]] == old
    assert [item for one in stretches for item in new[one.new]] == new
    assert all((old[one.old] == new[one.new]) is one.is_same for one in stretches)
    assert all(left.is_same != right.is_same for left, right in pairwise(stretches))


def test_two_changes_far_apart_in_a_long_text_leave_what_is_between_them_alone() -> None:
    old = [f"line {n}" if n % 3 else "}" for n in range(6_000)]
    new = ["first", *old[1:-1], "last"]
    assert [one.is_same for one in compare_sequences(old, new)] == [False, True, False]


@given(st.lists(st.integers(0, 20), unique=True, max_size=10))
def test_the_longest_increasing_part_is_found(values: list[int]) -> None:
    found = [values[position] for position in find_increasing(values)]
    assert found == sorted(found)
    longest: list[int] = []
    for position, value in enumerate(values):
        longest.append(1 + max((longest[i] for i in range(position) if values[i] < value), default=0))
    assert len(found) == max(longest, default=0)
