"""Where items of lists stood in an earlier output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.engine.json_values import format_pointer
from runs.pages.item_moves import ItemMoves

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "a b", "0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "a/b", "0", ""]), inner),
    max_leaves=12,
)


def list_pointers(value: Any, parts: tuple[str | int, ...] = ()) -> Iterator[str]:
    yield format_pointer(parts)
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, child in children:
        yield from list_pointers(child, (*parts, part))


def test_an_item_is_found_where_it_stood() -> None:
    moves = ItemMoves({"a": [1, 2, {"name": "x"}]}, {"a": [2, {"name": "x", "more": True}, 9]})
    assert moves.trace_back("/a/0") == "/a/1"
    assert moves.trace_back("/a/1/name") == "/a/2/name"
    assert moves.trace_back("/a/1/missing/3") == "/a/2/missing/3"
    assert moves.trace_back("/a/2") is None
    assert moves.trace_back("/a") == "/a"


def test_one_that_was_wholly_changed_is_the_same_only_in_its_place() -> None:
    moves = ItemMoves(["gone", "one", "keep", "two"], ["keep", "three", "one!"])
    assert moves.trace_back("/0") == "/2"
    assert moves.trace_back("/1") is None
    assert ItemMoves(["one"], ["two"]).trace_back("/0") == "/0"


@given(VALUES)
def test_in_the_same_output_everything_stood_where_it_stands(value: Any) -> None:
    moves = ItemMoves(value, value)
    assert [moves.trace_back(pointer) for pointer in list_pointers(value)] == list(list_pointers(value))


@given(VALUES, VALUES, st.text(alphabet="/01ab~-", max_size=6))
def test_no_two_places_come_from_one(old: Any, new: Any, text: str) -> None:
    moves = ItemMoves(old, new)
    moves.trace_back(text)
    found = [origin for pointer in list_pointers(new) if (origin := moves.trace_back(pointer)) is not None]
    assert len(set(found)) == len(found)
