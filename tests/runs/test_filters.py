"""Filters of runs: reading them from an address, writing them into one, and the runs that they find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from runs import matching_runs, paging
from runs.admin.filters import AttemptFilters
from runs.facets import add_facets, list_facets
from runs.filters import RunFilters
from runs.issue_groups import IssueFilters
from runs.matching_runs import fetch_matching_runs
from runs.models import FacetKind, Run, RunStatus
from runs.paging import cut_page
from runs.rollup import count_ended_runs
from runs.search import index_runs
from tests.engine.builders import make_attempt, make_issue
from tests.runs.builders import make_version
from tests.runs.listed_runs import make_listed_run, make_varied_runs
from tests.runs.pages.history_builders import make_page_flow, make_stored_run

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def find(query: str) -> tuple[int, ...]:
    filters = RunFilters(query)
    assert filters.problems == []
    return fetch_matching_runs(filters).ids


class TestReading:
    def test_everything_that_an_address_asks_for_comes_back_in_one(self) -> None:
        make_version(make_page_flow())
        User.objects.create_user("grace")
        query = (
            "q=green+tea&flow=colour-theme&version=1&status=failed%2Cerrored&reason=step_failed&severity=high"
            "&audit=Hex+colours&code=hex&model=gpt-5&label=pilot&label=a%2Cb&from=2026-11-01T08%3A00%3A00Z"
            "&to=2026-11-21&cost=0.05&tokens=20000&by=grace"
        )
        filters = RunFilters(query)
        assert (filters.to_query(), filters.problems) == (query, [])
        others = filters.to_query("flow", "label", "q", "audit", "code", "model", "from", "to", "by", status="queued")
        assert others == "status=queued&reason=step_failed&severity=high&cost=0.05&tokens=20000"

    @pytest.mark.parametrize(
        ("query", "written"),
        [
            ("cost=%240.10&tokens=20+000&q=+%231285+", "q=%231285&cost=0.1&tokens=20000"),
            ("status=failed&status=&status=errored,failed", "status=failed%2Cerrored"),
            ("status=" + ",".join(RunStatus.values), ""),
            ("label=&label=a&label=a", "label=a"),
        ],
        ids=["numbers", "status", "every status", "label"],
    )
    def test_values_are_read_as_people_write_them(self, query: str, written: str) -> None:
        filters = RunFilters(query)
        assert (filters.to_query(), filters.problems) == (written, [])

    @pytest.mark.parametrize(
        "query",
        [
            "flow=lost",
            "flow=a%00b",
            "version=3",
            "version=-1",
            "version=9999999999",
            "status=failed,lost",
            "reason=boredom",
            "severity=grave",
            "from=21.11.2026",
            "from=2026-11-21T25:00",
            "from=20261121T0800",
            "from=2026-W47-6",
            "to=9999-12-31",
            "to=2026-11-01&from=2026-11-02",
            "cost=NaN",
            "cost=1e999999",
            "cost=-1",
            "tokens=1.5",
            "tokens=99999999999999999999",
            "by=nobody",
            "label=a%00b",
            f"code={'x' * 201}",
            "q=%E2%80%94",
        ],
    )
    def test_what_is_not_valid_is_reported_and_left_out(self, query: str) -> None:
        filters = RunFilters(query)
        assert [problem.parameter for problem in filters.problems] == [query.partition("=")[0]]
        assert not filters.values


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("status=queued&label=pilot", "status"),
        ("status=failed&severity=high", "status"),
        ("status=succeeded,failed&severity=high", "severity"),
        ("status=succeeded&cost=1", "status"),
        ("cost=1", ""),
    ],
)
def test_runs_are_read_from_the_index_that_fewest_of_them_match(query: str, index: str) -> None:
    assert RunFilters(query).choose_index() == index


@pytest.mark.parametrize(
    ("filters", "own"),
    [(IssueFilters, {"q", "step", "period", "order"}), (AttemptFilters, {"outcome", "from", "to"})],
)
def test_lists_of_other_rows_have_the_filters_that_mean_something_there(filters: Any, own: set[str]) -> None:
    assert set(filters.base_filters) == {"flow", "version", "severity", "audit", "code", *own}


MEANINGS: dict[str, Callable[[Run], bool]] = {
    "flow=other": lambda run: run.flow.name == "other",
    "flow=colour-theme&version=2": lambda run: run.flow.name == "colour-theme" and run.version.number == 2,
    "status=failed": lambda run: run.status == "failed",
    "status=errored,queued": lambda run: run.status in ("errored", "queued"),
    "reason=crashed": lambda run: run.end_reason == "crashed",
    "severity=high": lambda run: has_facet(run, FacetKind.SEVERITY, "high"),
    "model=gpt-5": lambda run: has_facet(run, FacetKind.MODEL, "gpt-5"),
    "label=pilot": lambda run: has_facet(run, FacetKind.LABEL, "pilot"),
    "label=pilot&label=nightly": lambda run: all(has_facet(run, FacetKind.LABEL, one) for one in ("pilot", "nightly")),
    "from=2026-11-23": lambda run: run.created_at >= datetime(2026, 11, 23, tzinfo=UTC),
    "from=2026-11-23T07:00Z": lambda run: run.created_at >= datetime(2026, 11, 23, 7, tzinfo=UTC),
    "to=2026-11-26": lambda run: run.created_at < datetime(2026, 11, 27, tzinfo=UTC),
    "to=2026-11-26T08:00:00%2B01:00": lambda run: run.created_at <= datetime(2026, 11, 26, 7, tzinfo=UTC),
    "cost=0.037": lambda run: run.cost is not None and run.cost > Decimal("0.037"),
    "cost=0": lambda run: bool(run.cost),
    "tokens=7000": lambda run: run.total_tokens > 7_000,
    "by=linus": lambda run: run.started_by is not None and run.started_by.username == "linus",
}


def has_facet(run: Run, kind: str, value: str) -> bool:
    return any((facet.kind, facet.value) == (kind, value) for facet in run.facets.all())


def choose_queries(random: Random, count: int) -> list[str]:
    """Filters of different names."""
    queries = {query.partition("=")[0]: query for query in random.sample(sorted(MEANINGS), len(MEANINGS))}
    return list(queries.values())[:count]


class TestFinding:
    def test_every_filter_and_any_of_them_together_find_just_the_runs_that_have_it(self) -> None:
        make_varied_runs(400)
        Run.objects.filter(status="errored", cost__gt=0.1).update(end_reason="crashed")
        nightly = Run.objects.filter(pk__in=list(Run.objects.values_list("pk", flat=True))[::3])
        add_facets((run.pk, (FacetKind.LABEL, "nightly")) for run in nightly)
        runs = list(
            Run.objects.select_related("flow", "version", "started_by")
            .prefetch_related("facets")
            .order_by("-created_at", "-pk")
        )
        random = Random(5)
        asked = [[query] for query in MEANINGS] + [choose_queries(random, k) for k in (2, 2, 2, 3, 3, 4) * 6]
        found_any = 0
        for queries in asked:
            filters = RunFilters("&".join(queries))
            assert filters.problems == []
            wanted = tuple(run.pk for run in runs if all(MEANINGS[query](run) for query in queries))
            found = fetch_matching_runs(filters, limit=500)
            assert (found.ids, found.searched_to) == (wanted, None), queries
            found_any += bool(wanted)
        assert found_any > len(asked) / 2

    @pytest.mark.parametrize("query", ["", "status=failed,errored", "cost=0.037&by=linus&severity=low"])
    def test_pages_in_both_directions_hold_every_run_once(self, query: str) -> None:
        make_varied_runs(300)
        # Created within the same moment: their numbers decide.
        Run.objects.filter(pk__in=list(Run.objects.values_list("pk", flat=True))[::7]).update(created_at=timezone.now())
        filters = RunFilters(query)
        every = fetch_matching_runs(filters, limit=1_000).ids
        assert len(every) > 10
        down: list[int] = []
        while found := fetch_matching_runs(filters, before=down[-1] if down else None, limit=7).ids:
            down += found
        up: list[int] = []
        while found := fetch_matching_runs(filters, after=up[0] if up else 0, limit=7).ids:
            up = [*found, *up]
        assert tuple(down) == tuple(up) == every

    def test_filters_on_issues_hold_for_one_and_the_same_issue(self) -> None:
        attempt = make_attempt(
            1, 1, "failed",
            issues=(make_issue("critical", code="length", audit="Long"), make_issue("low", code="hex", audit="Hex")),
        )  # fmt: skip
        run = make_stored_run(attempt)
        add_facets((run.pk, facet) for facet in list_facets(attempt))
        for query in ("severity=critical", "audit=Hex", "code=hex&audit=Hex", "severity=high&code=length&audit=Long"):
            assert find(query) == (run.pk,), query
        for query in ("severity=medium&audit=Hex", "code=hex&severity=critical", "audit=Long&code=hex"):
            assert find(query) == (), query

    def test_a_search_that_ends_early_says_where_and_continues_from_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paging, "FIRST_SCAN_SIZE", 10)
        monkeypatch.setattr(paging, "WINDOW", 20)
        version = make_version(make_page_flow())
        runs = [make_listed_run(version, cost=5 if n in (3, 95, 99) else None).pk for n in range(100)]
        filters = RunFilters("cost=1&flow=colour-theme")
        looked, before = [], None
        for _ in range(4):
            found = fetch_matching_runs(filters, before=before, limit=5)
            looked.append((found.ids, found.searched_key))
            before = found.searched_key
        assert looked == [((runs[99], runs[95]), runs[70]), ((), runs[40]), ((), runs[10]), ((runs[3],), None)]
        upwards = fetch_matching_runs(filters, after=runs[10], limit=5)
        assert (upwards.ids, upwards.searched_key) == ((), runs[40])
        # A window without any run leads back to where it began, whatever the numbers of the runs are.
        empty = fetch_matching_runs(filters, before=runs[70], limit=5)
        assert cut_page(empty, limit=4, before=runs[70], after=None).newer == {"after": runs[40]}
        assert cut_page(upwards, limit=4, before=None, after=runs[10]).older == {"before": runs[40]}
        full = fetch_matching_runs(filters, limit=2)
        assert (len(full.ids), full.searched_to) == (2, None), "a page that is full has not ended early"

    def test_days_are_those_of_the_active_time_zone(self) -> None:
        version = make_version(make_page_flow())
        late = make_listed_run(version, created_at=datetime(2026, 11, 20, 23, 30, tzinfo=UTC))
        make_listed_run(version, created_at=datetime(2026, 11, 21, 23, 30, tzinfo=UTC))
        with timezone.override(ZoneInfo("Europe/Berlin")):
            assert find("from=2026-11-21&to=2026-11-21") == (late.pk,)
            assert find("from=2026-11-21T00:30&to=2026-11-21T00:30") == (late.pk,)
        with timezone.override(ZoneInfo("America/New_York")):
            assert find("from=2026-11-21&to=2026-11-21") == (late.pk + 1,)

    def test_a_number_leads_to_its_run_and_any_other_text_is_searched_for(self) -> None:
        run = make_stored_run()
        other = make_stored_run()
        Run.objects.filter(pk=other.pk).update(input={"order": run.pk})
        count_ended_runs()
        assert find(f"q={run.pk}") == find(f"q=%23{run.pk}") == (run.pk,)
        assert find(f"q=%22{run.pk}%22") == (other.pk,)
        assert find("q=tea") == (run.pk,)
        assert find("q=tea&status=failed") == find(f"q={run.pk}&status=failed") == ()


def search(text: str, *, before: int | None = None, after: int | None = None, limit: int = 50) -> list[int]:
    """The runs that match, however far they are searched for."""
    found: list[int] = []
    while True:
        part = fetch_matching_runs(RunFilters({"q": text}), before=before, after=after, limit=limit - len(found))
        found = [*part.ids, *found] if after is not None else [*found, *part.ids]
        if part.searched_key is None:
            return found
        before, after = (None, part.searched_key) if after is not None else (part.searched_key, None)


@pytest.mark.parametrize("max_hits", [1, 100], ids=["too-many-hits", "all-hits"])
@pytest.mark.parametrize("window", [3, 100])
def test_a_search_finds_every_run_once_both_ways_in_the_order_of_lists(
    monkeypatch: pytest.MonkeyPatch, window: int, max_hits: int
) -> None:
    monkeypatch.setattr(paging, "FIRST_SCAN_SIZE", 2)
    monkeypatch.setattr(paging, "WINDOW", window)
    monkeypatch.setattr(matching_runs, "MAX_HITS", max_hits)
    ids = [make_stored_run(input={"text": text}).pk for text in ("old tea", "tea old", *["tea"] * 5)]
    index_runs(ids)
    for text, found in (("old", ids[:2]), ('"old tea"', ids[:1]), ("tea -old", ids[2:]), ('tea -"old tea"', ids[1:])):
        assert search(text) == search(text, after=ids[0] - 1) == found[::-1]
        assert search(text, limit=1) == found[-1:]
        assert search(text, after=ids[0] - 1, limit=1) == found[:1]
    assert search("tea", before=ids[4], limit=3) == [ids[3], ids[2], ids[1]]
    assert search("tea", after=ids[1], limit=3) == [ids[4], ids[3], ids[2]]
    assert search("tea", before=ids[0]) == search("tea", after=ids[6]) == []
