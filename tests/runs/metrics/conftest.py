"""A process whose metrics are read for the first time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.runs.metrics.scraping import TOKEN, forget


@pytest.fixture(autouse=True)
def _fresh(settings: Any) -> Iterator[None]:
    """Metrics are on, and no process has measured anything."""
    settings.TOOLFLOW_METRICS_TOKEN = TOKEN
    forget()
    yield
    forget()
