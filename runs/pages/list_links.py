"""Addresses of the list of runs with filters."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from runs.filters import PARAMETERS
from runs.pages.addresses import find_address


def link_runs(**filters: Any) -> str:
    """The list of runs with these filters; empty ones are left out. ``since`` is the filter ``from``."""
    values = {"from": filters.pop("since", None), **filters}
    query = urlencode({name: values[name] for name in PARAMETERS if values.get(name)})
    return find_address("runs:list") + (f"?{query}" if query else "")
