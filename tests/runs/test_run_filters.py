"""Filters of lists of runs: reading them from an address, writing them into one, and the runs that they find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils import timezone

from runs.models import FacetKind, Run, RunStatus
from runs.rollup import count_ended_runs
from runs.run_filters import RunFilters, find_runs, finding, read_filters
from tests.engine.builders import NOON
from tests.runs.builders import make_version
from tests.runs.listed_runs import make_listed_run, make_varied_runs, store_listed_runs
from tests.runs.pages.history_builders import make_page_flow, make_stored_run

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def read(query: str) -> tuple[RunFilters, tuple[str, ...]]:
    return read_filters(QueryDict(query))


class TestReading:
    def test_everything_that_an_address_asks_for_comes_back_in_one(self) -> None:
        make_version(make_page_flow())
        User.objects.create_user("grace")
        query = (
            "q=green+tea&flow=colour-theme&version=1&status=failed%2Cerrored&severity=high&audit=Hex+colours&code=hex"
            "&model=gpt-5&label=pilot&from=2026-11-01&to=2026-11-21&cost=0.05&tokens=20000&by=grace"
        )
        filters, problems = read(query)
        assert problems == ()
        assert (filters.since, filters.cost, filters.tokens) == (date(2026, 11, 1), Decimal("0.05"), 20_000)
        assert filters.to_query() == query

    def test_numbers_are_read_as_people_write_them(self) -> None:
        filters, problems = read("cost=%240.10&tokens=20+000&q=+%231285+")
        assert (filters.to_query(), problems) == ("q=%231285&cost=0.1&tokens=20000", ())

    def test_statuses_come_with_commas_or_one_by_one_in_any_order(self) -> None:
        for query in ("status=failed,errored", "status=errored,failed", "status=failed&status=&status=errored"):
            assert read(query)[0].statuses == ("failed", "errored")

    def test_all_statuses_are_no_filter(self) -> None:
        assert read("status=" + ",".join(RunStatus.values)) == (RunFilters(), ())

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            ("flow=lost", "There is no flow “lost”; runs of all flows are shown."),
            ("version=3", "Versions are counted within a flow: choose the flow too. Runs of all versions are shown."),
            ("version=-1", "“-1” is not the number of a version, such as 3; runs of all versions are shown."),
            ("version=9999999999", "“9999999999” is not the number of a version"),
            ("status=failed,lost", "“lost” is not a status; it can be queued, running, succeeded, failed, errored,"),
            ("severity=grave", "“grave” is not a severity; it can be low, medium, high, critical."),
            ("from=21.11.2026", "“21.11.2026” is not a day such as 2026-11-21; runs of all days are shown."),
            ("to=9999-12-31", "“9999-12-31” is not a day"),
            ("from=2026-02-30", "“2026-02-30” is not a day"),
            ("from=2026-11-02&to=2026-11-01", "No day is after 2026-11-02 and before 2026-11-01"),
            ("cost=much", "“much” is not a sum in US dollars such as 0.05; runs are shown whatever they cost."),
            ("cost=NaN", "“NaN” is not a sum"),
            ("cost=1e999999", "“1e999999” is not a sum"),
            ("cost=-1", "“-1” is not a sum"),
            ("tokens=1.5", "“1.5” is not a number of tokens such as 20000; runs are shown whatever they used."),
            ("tokens=99999999999999999999", "is not a number of tokens"),
            ("by=nobody", "There is no user “nobody”; runs of everybody are shown."),
            ("label=a%00b", "A filter held characters that no text of a run has; it is left out."),
            ("flow=a%00b", "A filter held characters"),
            (f"code={'x' * 201}", f"“{'x' * 40}…” is longer than 200 characters; the filter is left out."),
            ("q=%E2%80%94", "“—” has no word to look for: words are made of letters and digits. Nothing was searched"),
        ],
    )
    def test_what_makes_no_sense_gets_one_sentence_and_is_left_out(self, query: str, sentence: str) -> None:
        filters, (problem,) = read(query)
        assert problem.startswith(sentence) or sentence in problem
        assert filters == RunFilters()

    def test_a_version_that_the_flow_lacks_leaves_the_flow(self) -> None:
        make_version(make_page_flow())
        filters, problems = read("flow=colour-theme&version=7")
        assert filters == RunFilters(flow="colour-theme")
        assert problems == ("The flow “colour-theme” has no version 7; runs of all its versions are shown.",)

    def test_taking_the_flow_away_takes_its_version_along(self) -> None:
        filters = RunFilters(flow="colour-theme", version=2, status="failed")
        assert filters.without("flow") == RunFilters(status="failed")
        assert filters.without("version") == RunFilters(flow="colour-theme", status="failed")


MEANINGS: dict[str, Callable[[Run], bool]] = {
    "flow=other": lambda run: run.flow.name == "other",
    "flow=colour-theme&version=2": lambda run: run.flow.name == "colour-theme" and run.version.number == 2,
    "status=failed": lambda run: run.status == "failed",
    "status=errored,queued": lambda run: run.status in ("errored", "queued"),
    "severity=high": lambda run: has_facet(run, FacetKind.SEVERITY, "high"),
    "audit=Checks": lambda run: has_facet(run, FacetKind.AUDIT, "Checks"),
    "code=length": lambda run: has_facet(run, FacetKind.CODE, "length"),
    "model=gpt-5": lambda run: has_facet(run, FacetKind.MODEL, "gpt-5"),
    "label=pilot": lambda run: has_facet(run, FacetKind.LABEL, "pilot"),
    "label=nothing": lambda _run: False,
    "from=2026-11-23": lambda run: run.created_at >= datetime(2026, 11, 23, tzinfo=UTC),
    "to=2026-11-26": lambda run: run.created_at < datetime(2026, 11, 27, tzinfo=UTC),
    "cost=0.037": lambda run: run.cost is not None and run.cost > Decimal("0.037"),
    "cost=0": lambda run: bool(run.cost),
    "tokens=7000": lambda run: run.total_tokens > 7_000,
    "tokens=59999999": lambda run: run.total_tokens > 59_999_999,
    "by=linus": lambda run: run.started_by is not None and run.started_by.username == "linus",
}


def has_facet(run: Run, kind: str, value: str) -> bool:
    return any((facet.kind, facet.value) == (kind, value) for facet in run.facets.all())


def choose_queries(random: Random, count: int) -> list[str]:
    """Filters of different names."""
    queries = {query.partition("=")[0]: query for query in random.sample(sorted(MEANINGS), len(MEANINGS))}
    return list(queries.values())[:count]


def load_all() -> list[Run]:
    runs = Run.objects.select_related("flow", "version", "started_by").prefetch_related("facets")
    return list(runs.order_by("-created_at", "-pk"))


class TestFinding:
    def test_every_filter_and_any_of_them_together_find_just_the_runs_that_have_it(self) -> None:
        make_varied_runs(400)
        runs, random = load_all(), Random(5)
        asked = [[query] for query in MEANINGS] + [choose_queries(random, k) for k in (2, 2, 2, 3, 3, 4) * 8]
        found_any = 0
        for queries in asked:
            filters, problems = read("&".join(queries))
            assert problems == ()
            wanted = tuple(run.pk for run in runs if all(MEANINGS[query](run) for query in queries))
            found = find_runs(filters, limit=500)
            assert (found.ids, found.looked_to) == (wanted, None), queries
            found_any += bool(wanted)
        assert found_any > len(asked) / 2

    @pytest.mark.parametrize("queries", [(), ("status=failed,errored",), ("cost=0.037", "by=linus", "severity=low")])
    def test_pages_in_both_directions_hold_every_run_once(self, queries: tuple[str, ...]) -> None:
        make_varied_runs(300)
        filters, _ = read("&".join(queries))
        every = find_runs(filters, limit=1_000).ids
        assert len(every) > 10
        down: list[int] = []
        while found := find_runs(filters, before=down[-1] if down else None, limit=7).ids:
            down += found
        up: list[int] = []
        while found := find_runs(filters, after=up[0] if up else 0, limit=7).ids:
            up = [*found, *up]
        assert tuple(down) == tuple(up) == every

    def test_looking_stops_early_says_where_and_goes_on_from_there(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(finding, "FIRST_LOOK", 10)
        monkeypatch.setattr(finding, "WINDOW", 20)
        version = make_version(make_page_flow())
        failed = {3, 95, 99}
        runs = [make_listed_run(version, status="failed" if n in failed else "succeeded").pk for n in range(100)]
        # Neither is rare: every other run was started by somebody, and every run belongs to the flow.
        grace = User.objects.create_user("grace")
        Run.objects.filter(pk__in=runs[::2]).update(started_by=grace, status="failed", end_reason="")
        Run.objects.filter(pk__in=[runs[n] for n in failed]).update(cost=5)
        Run.objects.update(is_counted=False)
        filters, _ = read("cost=1&flow=colour-theme")
        first = find_runs(filters, limit=5)
        assert (first.ids, first.looked_to) == ((runs[99], runs[95]), runs[70])
        second = find_runs(filters, before=first.looked_to, limit=5)
        assert (second.ids, second.looked_to) == ((), runs[40])
        third = find_runs(filters, before=second.looked_to, limit=5)
        assert (third.ids, third.looked_to) == ((), runs[10])
        last = find_runs(filters, before=third.looked_to, limit=5)
        assert (last.ids, last.looked_to) == ((runs[3],), None)
        upwards = find_runs(filters, after=runs[10], limit=5)
        assert (upwards.ids, upwards.looked_to) == ((), runs[40])

    def test_a_page_that_is_full_has_not_stopped_early(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(finding, "FIRST_LOOK", 10)
        monkeypatch.setattr(finding, "WINDOW", 10)
        version = make_version(make_page_flow())
        numbers = [make_listed_run(version, cost=5).pk for _ in range(20)]
        filters, _ = read("cost=1&status=succeeded")
        found = find_runs(filters, limit=4)
        assert (found.ids, found.looked_to) == (tuple(numbers[:-5:-1]), None)

    def test_days_are_those_of_the_active_time_zone(self) -> None:
        version = make_version(make_page_flow())
        late = make_listed_run(version, created_at=datetime(2026, 11, 20, 23, 30, tzinfo=UTC))
        make_listed_run(version, created_at=datetime(2026, 11, 21, 23, 30, tzinfo=UTC))
        filters, _ = read("from=2026-11-21&to=2026-11-21")
        with timezone.override(ZoneInfo("Europe/Berlin")):
            assert find_runs(filters).ids == (late.pk,)
        with timezone.override(ZoneInfo("America/New_York")):
            assert find_runs(filters).ids == (late.pk + 1,)

    def test_runs_that_were_numbered_in_another_order_than_they_were_created_are_found_by_day(self) -> None:
        version = make_version(make_page_flow())
        # Submitted at the same time, on both sides of midnight.
        minutes = [3, -2, 1, -1, 2, -3]
        midnight = datetime(2026, 11, 21, tzinfo=UTC)
        runs = [make_listed_run(version, created_at=midnight + timedelta(minutes=n)).pk for n in minutes]
        assert find_runs(read("from=2026-11-21")[0]).ids == (runs[0], runs[4], runs[2])
        assert find_runs(read("to=2026-11-20")[0]).ids == (runs[3], runs[1], runs[5])
        assert find_runs(read("")[0], before=runs[4], limit=3).ids == (runs[2], runs[3], runs[1])
        assert find_runs(read("flow=colour-theme")[0], after=runs[1], limit=2).ids == (runs[2], runs[3])

    def test_a_run_that_is_under_way_is_found_by_what_it_has_used_so_far(self) -> None:
        version = make_version(make_page_flow())
        run = make_listed_run(version, status="running", cost=Decimal("0.2"), total_tokens=900)
        assert find_runs(read("cost=0.1&tokens=800")[0]).ids == (run.pk,)
        assert find_runs(read("cost=0.2")[0]).ids == ()

    @pytest.mark.parametrize("is_counted", [False, True])
    def test_a_run_that_has_ended_is_found_by_cost_and_tokens_before_and_after_it_is_counted(
        self, is_counted: bool
    ) -> None:
        run = make_stored_run(cost="0.0500", total_tokens=2_000)
        if is_counted:
            assert count_ended_runs() == 1
        assert find_runs(read("cost=0.0499&tokens=1999")[0]).ids == (run.pk,)
        assert find_runs(read("cost=0.05")[0]).ids == find_runs(read("tokens=2000")[0]).ids == ()

    def test_a_number_leads_to_its_run_and_any_other_text_is_searched_for(self) -> None:
        run = make_stored_run()
        other = make_stored_run()
        Run.objects.filter(pk=other.pk).update(input={"order": run.pk})
        count_ended_runs()
        assert find_runs(read(f"q={run.pk}")[0]).ids == (run.pk,)
        assert find_runs(read(f"q=%23{run.pk}")[0]).ids == (run.pk,)
        assert find_runs(read(f"q=%22{run.pk}%22")[0]).ids == (other.pk,)
        assert find_runs(read("q=tea")[0]).ids == (run.pk,)
        assert find_runs(read("q=tea&status=failed")[0]).ids == ()
        assert find_runs(read("q=tea&status=succeeded")[0], after=run.pk).ids == ()

    def test_a_query_without_bound_is_never_asked_however_many_runs_are_wanted(self) -> None:
        version = make_version(make_page_flow())
        runs = store_listed_runs([Run(flow=version.flow, version=version, input={}, model_settings={}, step_count=3,
                                      created_at=NOON, status="queued") for _ in range(700)], [()] * 700)  # fmt: skip
        assert len(find_runs(read("flow=colour-theme&status=queued")[0], limit=650).ids) == 650
        assert find_runs(read("flow=colour-theme&status=queued")[0], before=runs[650].pk, limit=700).looked_to is None
