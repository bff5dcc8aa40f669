"""Runs that ended long ago, and a file that holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.archive.writing import write_archive
from runs.models import Run
from tests.runs.retention.aged_runs import store_aged_runs


@pytest.fixture
def runs() -> list[Run]:
    return store_aged_runs(8)


@pytest.fixture
def archive(runs: list[Run], tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl.gz"
    write_archive(path, run_ids=[run.pk for run in runs])
    return path
