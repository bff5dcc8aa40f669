"""Today on the home page, beside the median of the days before."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_runs, day_ago, stop_clock
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db


def test_the_page_says_what_is_compared(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clock(monkeypatch)
    version = make_version(make_page_flow())
    make_run(version)
    assert "No run ended today or in the 14 days before." in read_words(get_page(viewer, "/"))
    add_runs(version, day_ago(10), succeeded=5)
    assert "No baseline yet" in read_words(get_page(viewer, "/"))
    add_runs(version, day_ago(3), succeeded=12)
    words = read_words(get_page(viewer, "/"))
    assert "Today vs. 7-day median" in words and "7-day median 12" in words
