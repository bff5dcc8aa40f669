"""Finding the line and column that a JSON pointer means."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.json_places import find_places
from flows.engine.json_value import format_pointer

TEXT = """{
  "type": "object",
  "properties": {
    "a/b": {"type": "string", "note": "not a key: {[,"},
    "list": [1, {"x": [[], 2]}, 3]
  }
}"""


@pytest.mark.parametrize(
    ("pointer", "place"),
    [
        ("", (1, 1)),
        ("/type", (2, 3)),
        ("/properties", (3, 3)),
        ("/properties/a~1b", (4, 5)),
        ("/properties/a~1b/note", (4, 31)),
        ("/properties/list/0", (5, 14)),
        ("/properties/list/1/x", (5, 18)),
        ("/properties/list/1/x/0", (5, 24)),
        ("/properties/list/1/x/1", (5, 28)),
        ("/properties/list/2", (5, 33)),
    ],
)
def test_a_key_or_an_element_is_found_where_it_begins(pointer: str, place: tuple[int, int]) -> None:
    assert find_places(TEXT, [pointer]) == {pointer: place}


def test_a_pointer_that_leads_nowhere_has_no_place() -> None:
    assert find_places(TEXT, ["/properties/none", "/type"]) == {"/type": (2, 3)}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def list_pointers(value: object, path: tuple[str | int, ...] = ()) -> list[str]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [format_pointer(path), *(one for key, item in entries for one in list_pointers(item, (*path, key)))]


@given(VALUES, st.sampled_from([None, 0, 2]))
def test_every_part_of_any_json_is_found(value: object, indent: int | None) -> None:
    pointers = list_pointers(value)
    assert set(find_places(json.dumps(value, indent=indent), pointers)) == set(pointers)
