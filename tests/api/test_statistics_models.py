"""Runs by the model that they ask, over the API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.asking import Script
from tests.runs.builders import make_version
from tests.runs.pages.daily_rows import add_models, day_ago
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db


def read(script: Script, query: str = "") -> Any:
    answer = script.get(f"flows/colour-theme/statistics{'?' if query else ''}{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()  # type: ignore[attr-defined]  # answers to test clients have it


def test_runs_are_told_apart_by_the_model_that_they_ask(viewer: Script) -> None:
    version, newer = (make_version(make_page_flow()) for _ in range(2))
    counts = {"runs": 8, "succeeded": 4, "failed": 2, "cancelled": 2, "first_time": 3, "begun": 10, "retries": 5}
    for days, took in ((2, 10.0), (1, 30.0)):
        add_models(version, day_ago(days), "gpt-5", took=took, **counts, total_tokens=800, cost="0.8", attempts=16)
    add_models(newer, day_ago(1), "", has_several=True, runs=3, errored=3, unpriced=4)
    add_models(newer, day_ago(1), "", runs=1, succeeded=1)
    for query in ("", "model=gpt-5"):
        found = read(viewer, query)
        first, several, none = found["runs_by_model"]
        assert (first["model"], first["has_several"]) == ("gpt-5", False)
        runs = first["runs"]
        assert (runs["total"], runs["pass_rate"], runs["first_attempt_pass_rate"]) == (16, 8 / 12, 0.5)
        assert runs["duration_p50"] == pytest.approx(10, rel=0.03)
        assert runs["duration_p95"] == pytest.approx(30, rel=0.03)
        assert first["steps"] == {"begun": 20, "attempts": 32, "retries": 10, "attempts_per_step": 1.5}
        assert first["tokens"] == {"total": 1_600, "per_run": 100, "per_accepted_output": 200}
        assert first["cost"] == {
            "total": "1.60000000",
            "per_run": "0.10000000",
            "per_accepted_output": "0.20000000",
            "unpriced": 0,
        }
        assert (several["model"], several["has_several"], several["runs"]["errored"]) == (None, True, 3)
        assert (several["cost"]["total"], several["cost"]["unpriced"]) == (None, 4)
        assert (none["model"], none["has_several"], none["runs"]["total"]) == (None, False, 1)
    assert [one["runs"]["total"] for one in read(viewer, "version=2")["runs_by_model"]] == [3, 1]
