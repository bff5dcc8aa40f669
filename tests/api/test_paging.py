"""Walking through lists page by page, both ways, while they change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import Field
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from flows.models import Flow
from runs.api.base import parse_query
from runs.api.paging import build_page, fetch_page
from runs.documents.base import Page, Paging
from tests.api.asking import Script

pytestmark = pytest.mark.django_db

LETTERS = "abcdefg"


class Letters(Page):
    items: list[Any]


class LetterPaging(Paging):
    before: Annotated[str, Field(min_length=1)] | None = None
    after: Annotated[str, Field(min_length=1)] | None = None


@pytest.fixture
def flows() -> None:
    Flow.objects.bulk_create(Flow(name=letter, title=letter.upper()) for letter in LETTERS)


def ask(query: str, *, is_descending: bool = False) -> Letters:
    """The answer of an endpoint that lists the flows by name."""
    request = Request(APIRequestFactory().get(f"/api/v1/flows?{query}"))
    page = fetch_page(
        Flow.objects.values("name"),
        parse_query(LetterPaging, request.query_params),
        columns=["name"],
        key_of=itemgetter("name"),
        is_descending=is_descending,
    )
    return build_page(Letters, request, page)


def read_names(answer: Letters) -> str:
    return "".join(item["name"] for item in answer.items)


def walk(query: str, way: str, **options: Any) -> Iterator[str]:
    """The names on each page from there on."""
    answer = ask(query, **options)
    while True:
        yield read_names(answer)
        address = getattr(answer, way)
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
    assert list(walk("limit=7", "next")) == [LETTERS]


@pytest.mark.usefixtures("flows")
def test_what_is_added_or_goes_meanwhile_neither_repeats_nor_displaces_anything() -> None:
    first = ask("limit=3")
    Flow.objects.create(name="aa", title="New")
    Flow.objects.filter(name="c").delete()
    assert read_names(ask(urlsplit(first.next).query)) == "def"


@pytest.mark.usefixtures("flows")
def test_addresses_are_absolute_and_keep_the_rest_of_the_query() -> None:
    answer = ask("limit=2&after=b&label=a%26b")
    following, previous = answer.next, answer.previous
    assert following.startswith("http://testserver/api/v1/flows?")
    assert parse_qs(urlsplit(following).query) == {"limit": ["2"], "after": ["d"], "label": ["a&b"]}
    assert parse_qs(urlsplit(previous).query) == {"limit": ["2"], "before": ["c"], "label": ["a&b"]}


@pytest.mark.usefixtures("flows")
@pytest.mark.parametrize(
    ("query", "way", "other"), [("after=zebra", "previous", "next"), ("before=A", "next", "previous")]
)
def test_a_page_without_items_leads_back_to_the_list(query: str, way: str, other: str) -> None:
    page = ask(query)
    assert (page.items, getattr(page, way), getattr(page, other)) == ([], "http://testserver/api/v1/flows", None)


@pytest.mark.usefixtures("flows")
def test_the_header_of_a_list_has_the_addresses_of_its_body(viewer: Script) -> None:
    answer = viewer.get("flows?limit=2&after=b")
    page = json.loads(answer.content)
    assert answer["Link"] == f'<{page["next"]}>; rel="next", <{page["previous"]}>; rel="prev"'
    assert "Link" not in viewer.get("flows").headers
