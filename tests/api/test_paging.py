"""Walking through lists page by page, both ways, while they change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.http import QueryDict
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from flows.models import Flow
from runs.api.paging import NAMES, NUMBERS, answer_page, read_page, read_paging
from runs.api.problems import InvalidQuery

pytestmark = pytest.mark.django_db

LETTERS = "abcdefg"


@pytest.fixture
def flows() -> None:
    Flow.objects.bulk_create(Flow(name=letter, title=letter.upper()) for letter in LETTERS)


def ask(query: str, *, is_descending: bool = False) -> Response:
    """The answer of an endpoint that lists the flows by name."""
    request = Request(APIRequestFactory().get(f"/api/v1/flows?{query}"))
    paging = read_paging(request.query_params, NAMES)
    rows = Flow.objects.values("name")
    page = read_page(rows, paging, column="name", key_of=itemgetter("name"), is_descending=is_descending)
    return answer_page(request, page, [{"name": row["name"]} for row in page.rows])


def read_names(answer: Response) -> str:
    return "".join(item["name"] for item in answer.data["items"])


def walk(query: str, way: str, **options: Any) -> Iterator[str]:
    """The names on each page from there on."""
    answer = ask(query, **options)
    while True:
        yield read_names(answer)
        address = answer.data[way]
        if address is None:
            return
        answer = ask(urlsplit(address).query, **options)


@pytest.mark.usefixtures("flows")
@pytest.mark.parametrize(
    ("is_descending", "pages", "last"),
    [(False, ["abc", "def", "g"], "after=f"), (True, ["gfe", "dcb", "a"], "before=b")],
)
def test_the_pages_of_a_list_lead_to_the_end_and_back(is_descending: bool, pages: list[str], last: str) -> None:
    assert list(walk("limit=3", "next", is_descending=is_descending)) == pages
    assert list(walk(f"limit=3&{last}", "previous", is_descending=is_descending)) == pages[::-1]


@pytest.mark.usefixtures("flows")
def test_what_fills_a_page_exactly_has_no_next_page() -> None:
    answer = ask("limit=7")
    assert (read_names(answer), answer.data["next"], answer.data["previous"]) == (LETTERS, None, None)
    assert "Link" not in answer.headers


@pytest.mark.usefixtures("flows")
def test_what_is_added_or_goes_meanwhile_neither_repeats_nor_displaces_anything() -> None:
    first = ask("limit=3")
    Flow.objects.create(name="aa", title="New")
    Flow.objects.filter(name="c").delete()
    assert read_names(ask(urlsplit(first.data["next"]).query)) == "def"


@pytest.mark.usefixtures("flows")
def test_addresses_are_absolute_keep_the_rest_of_the_query_and_stand_in_the_headers_too() -> None:
    answer = ask("limit=2&after=b&label=a%26b")
    following, previous = answer.data["next"], answer.data["previous"]
    assert following.startswith("http://testserver/api/v1/flows?")
    assert parse_qs(urlsplit(following).query) == {"limit": ["2"], "after": ["d"], "label": ["a&b"]}
    assert parse_qs(urlsplit(previous).query) == {"limit": ["2"], "before": ["c"], "label": ["a&b"]}
    assert answer.headers["Link"] == f'<{following}>; rel="next", <{previous}>; rel="prev"'


@pytest.mark.usefixtures("flows")
@pytest.mark.parametrize(("query", "way"), [("after=zebra", "previous"), ("before=A", "next")])
def test_from_a_page_without_items_one_comes_back_to_the_list(query: str, way: str) -> None:
    answer = ask(query)
    assert answer.data["items"] == []
    assert answer.data[way] == "http://testserver/api/v1/flows"
    assert answer.data["next" if way == "previous" else "previous"] is None


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("limit=0", ["limit"]),
        ("limit=201", ["limit"]),
        ("limit=", ["limit"]),
        ("limit=ten", ["limit"]),
        ("limit=%D9%A3", ["limit"]),
        ("limit=5&limit=" + "9" * 5_000, ["limit"]),
        ("before=0", ["before"]),
        ("after=-1", ["after"]),
        ("after=1.0", ["after"]),
        ("before=%00", ["before"]),
        ("before=" + "9" * 5_000, ["before"]),
        ("before=2&after=1", ["after"]),
        ("limit=0&before=x&after=y", ["limit", "before", "after"]),
    ],
)
def test_what_makes_no_sense_is_told_by_the_name_of_the_parameter(query: str, names: list[str]) -> None:
    with pytest.raises(InvalidQuery) as caught:
        read_paging(QueryDict(query), NUMBERS)
    assert [error.path for error in caught.value.errors] == names
    assert all(
        re.fullmatch(r"“.*\.", error.message, re.DOTALL) and len(error.message) < 120 for error in caught.value.errors
    )


@pytest.mark.parametrize("query", ["after=", "after=%00", "before=" + "x" * 201])
def test_what_is_no_name_is_refused(query: str) -> None:
    with pytest.raises(InvalidQuery):
        read_paging(QueryDict(query), NAMES)


def test_a_number_larger_than_any_row_s_bounds_nothing() -> None:
    assert read_paging(QueryDict("before=" + "9" * 40), NUMBERS).before == 2**63 - 1
