"""JSON values: reading them, and making them safe to store."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from flows.engine.json_value import (
    MAX_DEPTH,
    clean_value,
    describe_type,
    dump_json,
    format_pointer,
    parse_object,
    parse_pointer,
    resolve_pointer,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda parts: (
        st.lists(parts, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=4), parts, max_size=4)
    ),
    max_leaves=20,
)


def nest(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


class TestReading:
    def test_an_object_is_read_as_it_is(self) -> None:
        assert parse_object('{"b": 1, "a": [1.5, null, true, "é\\u00e9"]}') == {"b": 1, "a": [1.5, None, True, "éé"]}

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "The text is empty; a JSON object such as {} is expected."),
            (" \n ", "The text is empty; a JSON object such as {} is expected."),
            ("{", "Line 1, column 2: the JSON ends too early."),
            ('{"a": [1, 2', "Line 1, column 12: the JSON ends too early."),
            ('{\n  "a": 1,\n}', "Line 2, column 9: the last entry must not be followed by a comma."),
            ("{\n  'a': 1\n}", "Line 2, column 3: text stands in double quotes in JSON, not in single quotes."),
            ("{a: 1}", "Line 1, column 2: a key in double quotes is expected."),
            ('{"a" 1}', "Line 1, column 6: a colon is missing after the key."),
            ('{"a": [1 2]}', "Line 1, column 10: a comma is missing."),
            ('{"a": True}', "Line 1, column 7: JSON writes true, false and null in lower case."),
            ('{"a": "x', "Line 1, column 7: the text that begins here has no closing double quote."),
            (
                '{"a": "\n"}',
                "Line 1, column 8: a line break or control character inside text must be escaped (\\n, \\t).",
            ),
            ('{"a": "\\q"}', "Line 1, column 8: a backslash must be followed by"),
            ('{"a": 1 // one\n}', "Line 1, column 9: JSON has no comments."),
            ("{} {}", "Line 1, column 4: the JSON object has ended, yet more text follows."),
            ("```json\n{}\n```", "Line 1, column 1: the text begins with a Markdown fence"),
            ("\ufeff{}", "Line 1, column 1: the text begins with a byte order mark; leave it out."),
            ("[1]", "A JSON object is expected, got a list."),
            ('"x"', "A JSON object is expected, got text."),
            ("null", "A JSON object is expected, got null."),
            ('{"a": NaN}', "NaN is not a JSON number; use null or a finite number."),
            ('{"a": -Infinity}', "-Infinity is not a JSON number; use null or a finite number."),
            ('{"a": {"b": [1e999]}}', "The number at /a/b/0 is too large; ±1.8e+308 is the limit."),
            ('{"a": ' + "9" * 400 + "}", "The number at /a is too large; ±1.8e+308 is the limit."),
            ('{"a": ' + "9" * 5000 + "}", "The JSON holds an integer that is too large; ±1.8e+308 is the limit."),
            ('{"a": 1, "b": 2, "a": 3}', "The key “a” stands twice in one object; keep one of them."),
            ("[" * 100_000, "The JSON can't be used: it is nested deeper than 100 levels."),
            ('{"a":' * 100_000, "The JSON can't be used: it is nested deeper than 100 levels."),
        ],
    )
    def test_what_can_not_be_read_is_told_in_one_sentence_with_its_place(self, text: str, says: str) -> None:
        with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
            parse_object(text)

    def test_a_hundred_levels_are_read_and_one_more_is_refused(self) -> None:
        assert parse_object(json.dumps(nest(MAX_DEPTH))) == nest(MAX_DEPTH)
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            parse_object(json.dumps(nest(MAX_DEPTH + 1)))

    def test_integers_beyond_64_bits_stay_exact(self) -> None:
        assert parse_object('{"a": 123456789012345678901234567890}') == {"a": 123456789012345678901234567890}

    @given(st.text() | st.text('{}[]",:\\u0tfn1e9.- \n'))
    def test_no_text_makes_it_raise_anything_but_a_sentence(self, text: str) -> None:
        try:
            value = parse_object(text)
        except ValueError as error:
            sentence = str(error)
        else:
            sentence = "" if type(value) is dict else "no object"
        assert not sentence or re.search(r"(Line \d+, column \d+: |expected|number|key|integer).*\.$", sentence)

    @given(st.dictionaries(st.text(), VALUES, max_size=4))
    def test_what_was_cleaned_and_written_is_read_back_the_same(self, value: dict[str, Any]) -> None:
        cleaned = clean_value(value).value
        assert parse_object(dump_json(cleaned)) == cleaned
        assert parse_object(dump_json(cleaned, indent=2)) == cleaned


class TestCleaning:
    def test_a_clean_value_comes_back_as_the_same_object(self) -> None:
        value = {"a": [1, 1.5, True, None, "é😀"], "b": {"c": {}}}
        cleaned = clean_value(value)
        assert cleaned.value is value and cleaned.notes == ()

    def test_what_no_database_stores_is_replaced_and_told(self) -> None:
        value = {"a\0": "x\0y", "b": ["\ud800!", float("nan"), float("-inf"), 10**400]}
        cleaned = clean_value(value)
        assert cleaned.value == {"a\ufffd": "x\ufffdy", "b": ["\ufffd!", None, None, None]}
        assert [note.split(":")[0] for note in cleaned.notes] == [
            "The whole value",
            "/a\ufffd",
            "/b/0",
            "/b/1",
            "/b/2",
            "/b/3",
        ]
        assert value["b"][0] == "\ud800!", "the value that was given is left alone"

    def test_two_halves_of_one_character_become_that_character(self) -> None:
        assert clean_value("\ud83d\ude00").value == "😀"

    def test_keys_that_become_equal_are_told(self) -> None:
        cleaned = clean_value({"a\0": 1, "a\ufffd": 2})
        assert cleaned.value == {"a\ufffd": 2}
        assert any("came up twice" in note for note in cleaned.notes)

    def test_of_many_changes_the_first_ten_are_told(self) -> None:
        assert len(clean_value(["\0"] * 50).notes) == 10

    def test_objects_of_python_take_their_json_form(self) -> None:
        class Colour(StrEnum):
            RED = "red"

        class Level(IntEnum):
            HIGH = 3

        class Pair(Enum):
            BOTH = (1, 2)

        class Model(BaseModel):
            when: datetime
            price: Decimal

        @dataclass
        class Point:
            x: int

        moment = datetime(2030, 1, 31, tzinfo=UTC)
        value = {
            1: (1, 2),
            None: Point(x=1),
            Colour.RED: Model(when=moment, price=Decimal("1.50")),
            "enums": [Colour.RED, Level.HIGH, Pair.BOTH],
            "id": uuid.UUID(int=1),
        }
        cleaned = clean_value(value)
        assert cleaned.notes == ()
        assert cleaned.value == {
            "1": [1, 2],
            "null": {"x": 1},
            "red": {"when": "2030-01-31T00:00:00Z", "price": "1.50"},
            "enums": ["red", 3, [1, 2]],
            "id": "00000000-0000-0000-0000-000000000001",
        }
        assert clean_value({True: 1}).value == {"true": 1}

    def test_dirt_inside_an_object_of_python_is_found(self) -> None:
        class Model(BaseModel):
            text: str

        assert clean_value([Model(text="a\0")]).value == [{"text": "a\ufffd"}]

    @pytest.mark.parametrize("value", [object(), {"a": [b"\xff"]}, {(1, 2): 1}, print])
    def test_what_has_no_json_form_is_refused(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"no JSON form|a key must be text"):
            clean_value(value)

    def test_too_deep_or_endless_values_are_refused(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        deep: Any = 1
        for _ in range(100_000):
            deep = [deep]
        for value in (nest(MAX_DEPTH + 1), endless, deep):
            with pytest.raises(ValueError, match="nested deeper than 100 levels"):
                clean_value(value)
        assert clean_value(nest(MAX_DEPTH)).value == nest(MAX_DEPTH)

    @given(VALUES)
    def test_whatever_comes_out_can_be_stored_and_is_clean(self, value: Any) -> None:
        cleaned = clean_value(value)
        text = dump_json(cleaned.value)
        text.encode()
        assert "\\u0000" not in text
        assert clean_value(cleaned.value).value is cleaned.value

    def test_a_number_that_json_does_not_know_is_never_written(self) -> None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            dump_json([float("nan")])

    @pytest.mark.parametrize(
        ("value", "words"),
        [(None, "null"), (True, "a boolean"), (1, "an integer"), (1.5, "a number"), ("", "text"), ({}, "an object")],
    )
    def test_types_are_named_in_plain_words(self, value: Any, words: str) -> None:
        assert describe_type(value) == words


class TestPointers:
    DOCUMENT: dict[str, Any] = {"a/b": [{"m~n": 1}], "": {"": 2}, "0": "zero"}

    @pytest.mark.parametrize(
        ("pointer", "parts", "value"),
        [
            ("", [], DOCUMENT),
            ("/a~1b/0/m~0n", ["a/b", 0, "m~n"], 1),
            ("//", ["", ""], 2),
            ("/0", ["0"], "zero"),
        ],
    )
    def test_a_pointer_leads_to_the_part_it_names(self, pointer: str, parts: list[str | int], value: Any) -> None:
        assert format_pointer(parts) == pointer
        assert parse_pointer(pointer) == tuple(str(part) for part in parts)
        assert resolve_pointer(self.DOCUMENT, pointer) == value

    @pytest.mark.parametrize("pointer", ["/x", "/a~1b/1", "/a~1b/00", "/a~1b/-", "/a~1b/-1", "/a~1b/²", "/0/0"])
    def test_a_pointer_to_nothing_is_refused(self, pointer: str) -> None:
        with pytest.raises(LookupError, match="There is nothing at"):
            resolve_pointer(self.DOCUMENT, pointer)

    def test_what_is_no_pointer_is_refused(self) -> None:
        with pytest.raises(ValueError, match="begins with “/”"):
            parse_pointer("a/b")

    @given(st.lists(st.text(), max_size=4))
    def test_any_keys_survive_the_way_there_and_back(self, parts: list[str]) -> None:
        assert parse_pointer(format_pointer(parts)) == tuple(parts)
