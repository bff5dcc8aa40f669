"""Walking through lists page by page, both ways, while they change. Those that begin with the newest: test_run_list."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from flows.models import Flow
from tests.api.asking import Script, read, walk

pytestmark = pytest.mark.django_db

LETTERS = "abcdefg"
LIST = "http://testserver/api/v1/flows"


@pytest.fixture(autouse=True)
def _flows() -> None:
    Flow.objects.bulk_create(Flow(name=letter, title=letter.upper()) for letter in LETTERS)


def list_pages(script: Script, address: str, way: str = "next") -> list[str]:
    """The names on each page from there on."""
    return ["".join(item["name"] for item in page) for page in walk(script, address, way)]


def test_the_pages_of_a_list_lead_to_the_end_and_back(viewer: Script) -> None:
    assert list_pages(viewer, "flows?limit=3") == ["abc", "def", "g"]
    assert list_pages(viewer, "flows?limit=3&after=f", "previous") == ["g", "def", "abc"]
    assert list_pages(viewer, "flows?limit=7") == [LETTERS]


def test_what_is_added_or_goes_meanwhile_neither_repeats_nor_displaces_anything(viewer: Script) -> None:
    first = read(viewer, "flows?limit=3")
    Flow.objects.create(name="aa", title="New")
    Flow.objects.filter(name="c").delete()
    assert list_pages(viewer, first["next"])[0] == "def"


def test_addresses_are_absolute_and_keep_the_rest_of_the_query(viewer: Script) -> None:
    answer = viewer.get("flows?limit=2&after=b&archived=all")
    page = json.loads(answer.content)
    assert page["next"].startswith(f"{LIST}?")
    kept = {"limit": ["2"], "archived": ["all"]}
    assert parse_qs(urlsplit(page["next"]).query) == {**kept, "after": ["d"]}
    assert parse_qs(urlsplit(page["previous"]).query) == {**kept, "before": ["c"]}
    assert answer["Link"] == f'<{page["next"]}>; rel="next", <{page["previous"]}>; rel="prev"'
    assert "Link" not in viewer.get("flows").headers


@pytest.mark.parametrize(
    ("query", "way", "other"), [("after=zebra", "previous", "next"), ("before=A", "next", "previous")]
)
def test_a_page_without_items_leads_back_to_the_list(viewer: Script, query: str, way: str, other: str) -> None:
    page = read(viewer, f"flows?{query}")
    assert (page["items"], page[way], page[other]) == ([], LIST, None)
