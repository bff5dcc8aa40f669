"""The page of a flow: runs by the model that they ask, beside the attempts that each model answered."""

from __future__ import annotations

import pytest
from django.test import Client

from flows.models import FlowVersion
from runs.rollup import count_ended_runs
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_models, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.reading import get_page, read_table, read_words

pytestmark = pytest.mark.django_db

ADDRESS = "/flows/colour-theme/"
THIN = "\N{NARROW NO-BREAK SPACE}"


@pytest.fixture
def version() -> FlowVersion:
    version = make_version(make_page_flow())
    make_run(version)
    return version


def read_plain(client: Client, query: str = "") -> str:
    return read_words(get_page(client, f"{ADDRESS}{query}")).replace(THIN, " ")


def fill(version: FlowVersion) -> None:
    """Eight runs that ask a model on each of two days, and some that ask several or none."""
    counts = {"runs": 8, "succeeded": 4, "failed": 2, "cancelled": 2, "first_time": 3, "begun": 10, "retries": 5}
    for days, took in ((2, 10.0), (1, 30.0)):
        add_models(version, day_ago(days), "gpt-5", took=took, **counts, total_tokens=800, cost="0.8", attempts=16)
    add_models(version, day_ago(1), "", has_several=True, runs=3, errored=3, total_tokens=30, unpriced=4)
    add_models(version, day_ago(1), "", runs=1, succeeded=1)
    add_steps(version, day_ago(1), model="gpt-5", attempts=4, passed=3)
    add_steps(version, day_ago(1), model="o3", attempts=2)


def test_models_are_compared_by_runs_beside_their_attempts(viewer: Client, version: FlowVersion) -> None:
    fill(version)
    words = read_plain(viewer)
    assert "gpt-5 16 67 % 50 % 1.50 9.9 s 30.3 s 100 200 $0.1000 $0.2000" in words
    assert "Several models 3 0 % 0 % — 9.9 s 9.9 s 10 — — —" in words
    assert "None: local steps only 1 100 % 0 %" in words
    assert "gpt-5 4 75 %" in words
    assert "o3 2 0 %" in words
    assert words.index("None: local steps only") < words.index("Attempts count for the model that answered")


def test_the_figures_of_its_runs_stand_beside_the_attempts_of_a_model_that_is_chosen(
    viewer: Client, version: FlowVersion
) -> None:
    fill(version)
    assert 'href="/flows/colour-theme/?model=gpt-5"' in get_page(viewer, ADDRESS)
    words = read_plain(viewer, "?model=gpt-5")
    assert "Attempts 4 by gpt-5" in words
    assert "Runs 16 whose steps all ask gpt-5 Pass rate 67 %" in words
    assert "Duration 9.9 s p50, 30.3 s p95" in words
    assert "Cost per run $0.1000 $0.2000 per accepted output" in words
    assert "An accepted output is that of a run that succeeded" in words
    assert "whose steps all ask" not in read_plain(viewer, "?model=o3")


def test_other_versions_and_periods_are_left_out(viewer: Client, version: FlowVersion) -> None:
    fill(version)
    newer = make_version(make_page_flow())
    add_models(newer, day_ago(10), "gpt-5", runs=7, succeeded=7)
    assert "gpt-5 23 79 %" in read_plain(viewer)
    assert "gpt-5 7 100 %" in read_plain(viewer, "?version=2")
    assert "gpt-5 16 67 %" in read_plain(viewer, "?period=7d")


def test_runs_that_ended_are_shown_once_they_are_counted(viewer: Client) -> None:
    make_retried_run(status="failed")
    count_ended_runs()
    (_, row) = read_table(get_page(viewer, ADDRESS), "Runs by the model that they ask")
    assert row[:2] == ["gpt-4.1", "1"]


def test_a_model_can_not_write_into_the_page(viewer: Client, version: FlowVersion) -> None:
    add_models(version, day_ago(1), "<script>alert(1)</script>\u202e", runs=1)
    page = get_page(viewer, ADDRESS)
    assert "<script>alert" not in page
    assert "\u202e" not in page
