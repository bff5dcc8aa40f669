"""Numbers and names in ``docs/scaling.md`` are those of the code."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from runs import sweep
from runs.models.run import MAX_CRASHES
from runs.models.worker import SILENCE
from runs.worker.event_loop import HEARTBEAT
from tests.site.test_settings import read_settings
from tests.test_docs import read_page, read_table

GUIDE = "docs/scaling.md"
ROWS = {row[0].strip("`"): row[1].strip("`") for row in read_table(GUIDE, "## Settings")}
COUNTED = [name for name, default in ROWS.items() if default.isdecimal()]


@pytest.mark.parametrize("name", COUNTED)
def test_defaults_are_what_they_are(name: str, tmp_path: Path) -> None:
    assert read_settings(tmp_path)[name] == int(ROWS[name])


def test_all_settings_of_durable_execution_are_in_the_table() -> None:
    assert {"TOOLFLOW_LEASE", "TOOLFLOW_STOP_SECONDS", "TOOLFLOW_PLUGIN_WAIT", "TOOLFLOW_WORKERS"} <= set(COUNTED)
    assert {"TOOLFLOW_SEVERAL_HOSTS", "TOOLFLOW_SECRET_KEY", "TOOLFLOW_DATA_DIR", "DATABASE_URL"} <= set(ROWS)


def test_times_in_the_text_are_right(tmp_path: Path) -> None:
    lease = read_settings(tmp_path)["TOOLFLOW_LEASE"]
    grace, heartbeat = lease * sweep.GRACE_RATIO, HEARTBEAT
    text = " ".join(read_page(GUIDE).split())
    assert timedelta(seconds=30) == SILENCE and "for 30 seconds is *silent*" in text
    assert f"lease + a third of it + {heartbeat:g} seconds ({lease + grace + heartbeat:g} with the default)" in text
    assert MAX_CRASHES == 5 and "lost its worker five times" in text
