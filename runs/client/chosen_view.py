"""Filters that somebody keeps under a name: which ones are meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runs.client.errors import ClientError
from runs.client.server import Server

ALL = 100_000
"""More views than any installation has."""


def find_view(server: Server, wanted: str) -> dict[str, Any]:
    """The view of that name, or else of that number. Raises ``ClientError`` if it is none, or one of several."""
    views = list(server.list("saved-views", ALL))
    found = [view for view in views if view["name"] == wanted] or [view for view in views if str(view["id"]) == wanted]
    if not found:
        raise ClientError(f"There is no saved view “{wanted[:100]}”; “toolflow views list” has their names.")
    if len(found) > 1:
        listed = ", ".join(f"{view['id']} of {view['created_by']}" for view in found)
        raise ClientError(f"{len(found):,} saved views are called “{wanted}”; name one by its number: {listed}.")
    return found[0]


def join_filters(view: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of a view, with those that are ``given`` in their place, as the addresses of lists have them."""
    kept = dict(view["filters"])
    if "flow" in given:
        # Versions are counted by flow.
        kept.pop("version", None)
    return {name: ",".join(value) if isinstance(value, list) else value for name, value in {**kept, **given}.items()}


def write_body(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Filters as bodies of requests have them."""
    statuses = filters.get("status")
    return {**filters, **({} if statuses is None else {"status": statuses.split(",")})}
