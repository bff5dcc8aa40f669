"""Listing runs over the API: the same filters and pages as on the page of runs."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.contrib.auth.models import User

from runs import paging
from runs.filters import PARAMETERS
from runs.models import FacetKind, RunStatus
from tests.api.asking import Script, list_ids, read, walk
from tests.engine.builders import make_attempt
from tests.runs.builders import make_run, make_version
from tests.runs.listed_runs import make_listed_run, make_varied_runs
from tests.runs.pages.history_builders import make_page_flow, make_stored_run

pytestmark = pytest.mark.django_db


def list_pages(script: Script, address: str, way: str = "next") -> list[list[int]]:
    return [[item["id"] for item in page] for page in walk(script, address, way)]


def test_an_item_is_the_run_without_its_input_and_history(viewer: Script) -> None:
    run = make_stored_run(make_attempt(1, 1), labels=["nightly"], metadata={"ticket": 7}, cost=Decimal("0.25"))
    (item,) = read(viewer, "runs")["items"]
    whole = read(viewer, f"runs/{run.pk}?attempts=none")
    assert whole.pop("input") == {"topic": "tea"}
    assert item == whole


def test_pages_lead_to_the_oldest_run_and_back_whatever_begins_meanwhile(viewer: Script) -> None:
    numbers = [run.pk for run in make_varied_runs(11)][::-1]
    pages = [numbers[:4], numbers[4:8], numbers[8:]]
    first = read(viewer, "runs?limit=4")
    assert list_pages(viewer, f"runs?limit=4&before={numbers[7]}", "previous") == [pages[2], pages[1], pages[0]]
    for _ in range(2):
        make_run(created_at=datetime(2026, 11, 24, tzinfo=UTC))
    assert list_pages(viewer, first["next"]) == pages[1:]


def test_a_page_beyond_all_runs_is_empty_and_leads_back(viewer: Script) -> None:
    make_run()
    make_version(make_page_flow(name="other"))
    for query in ("before=1", "after=9223372036854775807", "before=" + "9" * 30 + "&flow=other"):
        page = read(viewer, f"runs?{query}")
        assert page["items"] == [] and (page["next"] or page["previous"]), query


def test_a_search_that_stops_early_goes_on_at_the_next_address(viewer: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "FIRST_SCAN_SIZE", 2)
    monkeypatch.setattr(paging, "WINDOW", 4)
    version = make_version(make_page_flow())
    label, code = (FacetKind.LABEL, "a"), (FacetKind.CODE, "c")
    rare = make_listed_run(version, facets=[label, code])
    runs = [make_listed_run(version, facets=[label if number % 2 else code]) for number in range(60)]
    pages = list_pages(viewer, "runs?label=a&code=c&limit=1")
    assert [number for page in pages for number in page] == [rare.pk]
    assert [] in pages and len(pages) < len(runs)


def test_each_filter_of_the_page_is_one_here(viewer: Script) -> None:
    version = make_version(make_page_flow())
    facets = {"label": "nightly", "code": "hex_format", "audit": "Hex", "severity": "high", "model": "gpt-5"}
    run = make_listed_run(
        version,
        facets=[(FacetKind.LABEL, "eu"), *((FacetKind(kind), value) for kind, value in facets.items())],
        status=RunStatus.FAILED,
        end_reason="step_failed",
        created_at=datetime(2026, 11, 20, 23, 30, tzinfo=UTC),
        started_by=User.objects.create(username="grace"),
        cost=Decimal("0.2"),
        total_tokens=30_000,
        accepted_count=2,
    )
    make_listed_run(make_version(make_page_flow(name="other")), created_at=datetime(2026, 11, 22, tzinfo=UTC))
    matching = {
        **facets,
        "q": str(run.pk),
        "flow": "colour-theme",
        "version": "1&flow=colour-theme",
        "status": "failed,errored&status=running",
        "reason": "step_failed",
        "label": "nightly&label=eu",
        "from": "2026-11-20T23:30:00Z&to=2026-11-20",
        "to": "2026-11-20",
        "cost": "0.1",
        "tokens": "20000",
        "accepted": "2",
        "by": "grace",
    }
    assert matching.keys() == set(PARAMETERS)
    for name, value in matching.items():
        assert list_ids(viewer, f"runs?{name}={value}") == [run.pk], name
