"""Outputs as numbered lines, and the line that an issue's pointer leads to."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.pages.json_lines import Place, list_json, list_text

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def write_text(value: Any) -> str:
    return "\n".join(line.text for line in list_json(value).lines)


class TestLines:
    @given(JSON_VALUES)
    def test_the_lines_together_are_the_value(self, value: Any) -> None:
        assert json.loads(write_text(value)) == value

    @given(JSON_VALUES)
    def test_lines_are_laid_out_as_everybody_knows_it(self, value: Any) -> None:
        plain = json.dumps(value, indent=2)
        assert len(list_json(value).lines) == len(plain.split("\n"))
        if plain.isascii() and "\\u" not in plain and "\x7f" not in plain:
            assert write_text(value) == plain

    def test_lines_are_numbered_from_one(self) -> None:
        assert [line.number for line in list_json({"a": 1, "b": []}).lines] == [1, 2, 3, 4]

    def test_plain_text_keeps_its_lines_and_shows_tabs_as_spaces(self) -> None:
        listing = list_text("first\r\n\tsecond\n")
        assert [line.text for line in listing.lines] == ["first", "    second", ""]
        assert listing.find("/first") is None

    @pytest.mark.parametrize("character", ["\u202e", "\u2066", "\x1b", "\x9b", "\u200b", "\ufeff", "\ud83d"])
    def test_characters_that_could_deceive_the_reader_are_shown_by_their_code(self, character: str) -> None:
        code = f"\\u{ord(character):04x}"
        assert list_json({character: character}).lines[1].text == f'  "{code}": "{code}"'
        assert list_text(f"a{character}b").lines[0].text == f"a{code}b"

    def test_other_scripts_and_emoji_stay_as_they_are(self) -> None:
        text = "العربية 日本語 👨‍👩‍👧"
        assert list_json(text).lines[0].text == f'"{text}"'


class TestCutting:
    def test_a_value_of_too_many_lines_is_cut_and_says_so(self) -> None:
        listing = list_json(list(range(5_000)), max_lines=2_000)
        assert listing.is_cut
        assert len(listing.lines) == 2_000
        assert listing.find("/10") == Place(12, is_exact=True)
        assert listing.find("/4000") is None

    def test_a_value_that_just_fits_is_whole(self) -> None:
        assert not list_json(list(range(8)), max_lines=10).is_cut
        assert list_json(list(range(9)), max_lines=10).is_cut

    def test_one_huge_string_is_cut_within_its_line(self) -> None:
        listing = list_json({"a": "x" * 1_000_000, "b": 1})
        assert listing.is_cut
        assert len(listing.lines) == 2
        assert sum(len(line.text) for line in listing.lines) < 210_000
        assert listing.lines[-1].text.endswith("…")

    def test_a_huge_text_is_cut(self) -> None:
        listing = list_text("word " * 100_000)
        assert listing.is_cut
        assert len(listing.lines[0].text) < 210_000

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

    @given(JSON_VALUES)
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
        ("pointer", "line"),
        [("/supplier", 2), ("/lines", 3), ("/lines/1/amount", 8), ("/lines/1/a~1b~0c", 9), ("/", 12)],
    )
    def test_a_pointer_leads_to_its_line(self, pointer: str, line: int) -> None:
        assert list_json(self.VALUE).find(pointer) == Place(line, is_exact=True)

    @pytest.mark.parametrize(
        ("pointer", "line"),
        [("/lines/1/missing", 7), ("/lines/7", 3), ("/lines/0/amount/deep", 5), ("/missing/part", 1)],
    )
    def test_a_pointer_to_what_is_missing_leads_to_the_nearest_parent_and_says_so(
        self, pointer: str, line: int
    ) -> None:
        assert list_json(self.VALUE).find(pointer) == Place(line, is_exact=False)

    @pytest.mark.parametrize("pointer", [None, "", "lines/0", "$.lines"])
    def test_what_points_at_no_single_place_leads_nowhere(self, pointer: str | None) -> None:
        assert list_json(self.VALUE).find(pointer) is None
