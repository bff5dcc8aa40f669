"""JSON values: reading them, making them safe to store, and finding their parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine import json_values
from flows.engine.json_values import (
    MAX_DEPTH,
    JsonError,
    clean_value,
    dump_json,
    find_unstorable,
    format_pointer,
    parse_object,
    parse_pointer,
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
    @pytest.mark.parametrize(
        ("text", "place", "says"),
        [
            ("{", (1, 2), ""),
            ('{\n  "a": [1 2]\n}', (2, 11), ""),
            ('{"a": "x', (1, 7), ""),
            ("{} {}", (1, 4), ""),
            (" \n ", None, "text is empty"),
            ("[1]", None, "object is expected, got a list"),
            ('{"a": -Infinity}', None, "-Infinity is not a JSON number"),
            ('{"a": {"b": [1e999]}}', None, "number at /a/b/0 is too large"),
            ('{"a": ' + "9" * 5000 + "}", None, "integer that is too large"),
            ('{"a": 1, "b": 2, "a": 3}', None, "key “a” "),
            ("[" * 100_000, None, "deeper than 100 levels"),
            (json.dumps(nest(MAX_DEPTH + 1)), None, "deeper than 100 levels"),
        ],
    )
    def test_what_is_no_json_object_is_refused_with_line_and_column(
        self, text: str, place: tuple[int, int] | None, says: str
    ) -> None:
        with pytest.raises(JsonError) as refusal:
            parse_object(text)
        assert says in str(refusal.value)
        assert place is None or (refusal.value.line, refusal.value.column) == place

    @given(st.dictionaries(st.text(), VALUES, max_size=4))
    def test_what_was_cleaned_and_written_can_be_stored_and_is_read_back_the_same(self, value: dict[str, Any]) -> None:
        cleaned = clean_value(value).value
        for text in (dump_json(cleaned), dump_json(cleaned, indent=2)):
            assert (parse_object(text), "\\u0000" in text) == (cleaned, False)
        again = clean_value(cleaned)
        assert again.value is cleaned and again.problems == ()


class TestCleaning:
    def test_what_no_database_stores_is_replaced_and_reported(self) -> None:
        value = {"a\0": "x\0y", "b": ["\ud800!", float("nan"), 10**400, "\ud83d\ude00"]}
        cleaned = clean_value(value)
        assert cleaned.value == {"a\ufffd": "x\ufffdy", "b": ["\ufffd!", None, None, "😀"]}
        assert [one.path for one in cleaned.problems] == ["", "/a\ufffd", "/b/0", "/b/1", "/b/2", "/b/3"]
        assert value["b"][0] == "\ud800!", "the value that was given is left alone"

    def test_of_many_problems_a_hundred_are_listed_with_their_place_and_ten_noted(self) -> None:
        assert len(clean_value(["\0"] * 500).notes) == 10
        paths = [problem.path for problem in find_unstorable(["\0"] * 500, "input", "a/b")]
        assert paths == [f"/input/a~1b/{index}" for index in range(100)]

    def test_what_has_no_json_form_or_no_end_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_values, "MAX_VALUES", 10_000)
        endless: list[Any] = []
        endless += [endless, endless]
        deep: Any = 1
        for _ in range(100_000):
            deep = [deep]
        doubled: Any = "x"
        for _ in range(60):
            doubled = [doubled, doubled]
        values = (object(), {"a": [b"\xff"]}, {(1, 2): 1}, nest(MAX_DEPTH + 1), endless, deep, doubled)
        words = r"no JSON form|a key must be text|nested deeper than 100 levels|more than 10,000 values"
        for value in values:
            with pytest.raises(ValueError, match=words):
                clean_value(value)
        assert clean_value(nest(MAX_DEPTH)).value == nest(MAX_DEPTH)


class TestPointers:
    @given(st.lists(st.text(), max_size=4))
    def test_any_keys_survive_the_way_there_and_back(self, parts: list[str]) -> None:
        assert parse_pointer(format_pointer(parts)) == tuple(parts)
