"""Pages of the trail over the API."""

from __future__ import annotations

from runs.api.looking import cut_found
from runs.api.paging import Page, Paging
from runs.models import TrailEntry
from runs.trail.finding import TrailFilters, find_entries


def read_trail_page(filters: TrailFilters, paging: Paging[int]) -> Page[TrailEntry]:
    """The page of the entries that match, the newest first."""
    entries, found = find_entries(filters, limit=paging.limit + 1, before=paging.before, after=paging.after)
    page = cut_found(list(entries), found.looked_to, paging)
    return Page([entries[key] for key in page.rows], page.next, page.previous)
