"""The list of flows: what each did lately."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from flows.models import Flow
from runs.models import RunStatus
from runs.pages import flow_list
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_runs, day_ago
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import count_queries, get_page, read_table, read_words, sign_in

pytestmark = pytest.mark.django_db

THIN = "\N{NARROW NO-BREAK SPACE}"


def read_plain(client: Client, address: str = "/flows/") -> str:
    return read_words(get_page(client, address)).replace(THIN, " ")


def test_each_flow_has_a_row_with_its_last_run_and_what_it_did_in_thirty_days(viewer: Client) -> None:
    version = make_version(make_page_flow())
    add_runs(version, day_ago(3), succeeded=3, failed=1, first_time=2, cost="1.5")
    add_runs(version, day_ago(40), failed=100)
    make_run(version, status=RunStatus.SUCCEEDED, ended_at=timezone.now())
    run = make_run(version, status=RunStatus.FAILED, ended_at=timezone.now())
    words = read_plain(viewer)
    assert f"Colour theme colour-theme v1 Failed #{run.pk}, " in words
    assert "4 75 % 50 % $1.50" in words
    page = get_page(viewer, "/flows/")
    assert 'href="/flows/colour-theme/"' in page
    assert f'href="/runs/{run.pk}/"' in page


def test_what_is_drawn_by_day_is_also_a_table(viewer: Client) -> None:
    caption = "Runs by flow and day"
    assert caption not in get_page(viewer, "/flows/")
    version = make_version(make_page_flow())
    make_version(make_page_flow(name="idle", title="Idle"))
    add_runs(version, day_ago(2), succeeded=1_200)
    add_runs(version, day_ago(0), failed=1)
    head, *rows = read_table(get_page(viewer, "/flows/"), caption)
    last = day_ago(0)
    assert len(head) == 31 and head[-1] == f"{last.day} {last:%b}"
    assert rows == [["Colour theme", *["—"] * 27, "1 200", "—", "1"]]
    Flow.objects.filter(pk=version.flow_id).update(is_archived=True)
    assert read_table(get_page(viewer, "/flows/"), caption)[1:] == rows


def test_a_flow_that_never_ran_and_one_without_a_version_say_so(viewer: Client) -> None:
    Flow.objects.create(name="draft", title="Draft")
    assert "Draft draft None Never None 0 — — —" in read_plain(viewer)


def test_simulated_runs_stand_for_a_flow_only_where_it_has_no_others(viewer: Client) -> None:
    version = make_version(make_page_flow())
    add_runs(version, day_ago(3), succeeded=7, is_simulated=True)
    assert "7 100 % 0 % simulated" in read_plain(viewer)
    add_runs(version, day_ago(2), succeeded=2, cost="1")
    assert "2 100 % 0 % $1.00" in read_plain(viewer)


def test_archived_flows_come_after_the_others_under_a_heading(viewer: Client) -> None:
    Flow.objects.create(name="old", title="A very old flow", is_archived=True)
    Flow.objects.create(name="young", title="Young")
    words = read_plain(viewer)
    assert words.index("Young young") < words.index("Archived") < words.index("A very old flow")


def test_many_flows_are_spread_over_pages(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_list, "PAGE_SIZE", 2)
    for name in "abcde":
        Flow.objects.create(name=name, title=f"Flow {name}")
    assert 'href="/flows/?page=2" rel="next"' in get_page(viewer, "/flows/")
    page = get_page(viewer, "/flows/?page=2")
    assert "Flow c c" in read_words(page)
    assert "Flow a a" not in read_words(page)
    assert 'href="/flows/?page=1" rel="prev"' in page
    assert 'rel="next"' not in get_page(viewer, "/flows/?page=3")
    assert "There are fewer flows than that." in read_plain(viewer, "/flows/?page=4")


NO_PAGES = ["0", "-1", "x", "10001", "9" * 20, "000000001" + "9" * 20, "000000001" + "9" * 5_000, "%00", "٣"]


@pytest.mark.parametrize("number", NO_PAGES, ids=lambda number: number[:12])
def test_a_page_that_makes_no_sense_is_named_and_the_first_is_shown(viewer: Client, number: str) -> None:
    Flow.objects.create(name="a", title="Flow a")
    words = read_plain(viewer, f"/flows/?page={number}")
    assert "That is not the number of a page; the first one is shown." in words
    assert "Flow a a" in words


def test_without_any_flow_it_says_what_a_flow_is(viewer: Client) -> None:
    assert "No flows yet" in read_plain(viewer)


def test_the_number_of_queries_does_not_depend_on_that_of_flows(viewer: Client) -> None:
    add_runs(make_version(make_page_flow()), day_ago(1), succeeded=1)
    few = count_queries(viewer, "/flows/")
    for number in range(5):
        version = make_version(make_page_flow(name=f"flow-{number}"))
        make_run(version)
        for day in range(5):
            add_runs(version, day_ago(day), succeeded=1)
    # Session, user and two for permissions; flows, runs, statistics.
    assert count_queries(viewer, "/flows/") == 6
    assert few <= 7


def test_only_those_who_may_see_runs_find_it(client: Client) -> None:
    sign_in(client)
    assert client.get("/flows/").status_code == 403
