"""A search lists runs in the order of lists, whichever of them hold its words."""

from __future__ import annotations

import pytest

from runs import paging
from runs.filters import RunFilters, find_runs
from runs.search import index_runs
from tests.runs.pages.history_builders import make_stored_run

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def search(text: str, *, before: int | None = None, after: int | None = None, limit: int = 50) -> list[int]:
    """The runs that match, however far they are searched for."""
    found: list[int] = []
    while True:
        part = find_runs(RunFilters({"q": text}), before=before, after=after, limit=limit - len(found))
        found = [*part.ids, *found] if after is not None else [*found, *part.ids]
        if part.looked_to is None:
            return found
        before, after = (None, part.looked_to) if after is not None else (part.looked_to, None)


@pytest.mark.parametrize("window", [3, 100], ids=["too-many-hits", "all-hits"])
def test_a_search_finds_every_run_once_both_ways(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(paging, "FIRST_LOOK", 2)
    monkeypatch.setattr("runs.filters.WINDOW", window)
    ids = [make_stored_run(input={"text": text}).pk for text in ("old tea", "tea old", *["tea"] * 5)]
    index_runs(ids)
    for text, found in (("old", ids[:2]), ('"old tea"', ids[:1]), ("tea -old", ids[2:]), ('tea -"old tea"', ids[1:])):
        assert search(text) == search(text, after=ids[0] - 1) == found[::-1]
        assert search(text, limit=1) == found[-1:]
        assert search(text, after=ids[0] - 1, limit=1) == found[:1]
    assert search("tea", before=ids[4], limit=3) == [ids[3], ids[2], ids[1]]
    assert search("tea", after=ids[1], limit=3) == [ids[4], ids[3], ids[2]]
    assert search("tea", before=ids[0]) == search("tea", after=ids[6]) == []
