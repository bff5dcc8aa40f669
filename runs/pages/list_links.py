"""Addresses of the list of runs with filters."""

from __future__ import annotations

from typing import Any

from runs.pages.addresses import find_address
from runs.run_filters import RunFilters


def link_runs(**filters: Any) -> str:
    """The list of runs with the filters of ``RunFilters`` that are given; empty ones are left out."""
    query = RunFilters(**filters).to_query()
    return find_address("runs:list") + (f"?{query}" if query else "")
