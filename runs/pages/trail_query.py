"""What the address of the trail asks for, and the entries that it finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from runs.filter_fields import shorten
from runs.models import TrailEntry
from runs.pages.list_turns import ListTurns, turn_pages
from runs.trail.actions import TrailAction
from runs.trail.finding import KINDS, TrailFilters, find_entries

PAGE_SIZE = 100
NAMES = ("actor", "action", "kind", "id", "from", "to", "before", "after")


@dataclass(frozen=True, slots=True)
class TrailQuery:
    """Filters, and where a page begins. What is empty does not filter."""

    actor: str = ""
    action: str = ""
    kind: str = ""
    object_id: str = ""
    first_day: date | None = None
    last_day: date | None = None
    before: int | None = None
    after: int | None = None

    def to_values(self) -> dict[str, str]:
        """The filters as an address has them."""
        values = {
            "actor": self.actor,
            "action": self.action,
            "kind": self.kind,
            "id": self.object_id,
            "from": self.first_day.isoformat() if self.first_day else "",
            "to": self.last_day.isoformat() if self.last_day else "",
        }
        return {name: value for name, value in values.items() if value}

    def build_url(self, view: str = "runs:trail", **position: int) -> str:
        """An address with these filters."""
        query = urlencode({**self.to_values(), **position})
        return f"{reverse(view)}?{query}" if query else reverse(view)

    def to_filters(self) -> TrailFilters:
        """The filters as entries are found by; days are those of the active time zone."""
        return TrailFilters(
            actor=self.actor,
            actions=frozenset({self.action} - {""}),
            kind=self.kind,
            object_id=self.object_id,
            since=_begin(self.first_day) if self.first_day else None,
            until=_begin(self.last_day + timedelta(days=1)) if self.last_day else None,
        )


@dataclass(frozen=True, slots=True)
class TrailPage:
    """One page of the trail, and the ways from it."""

    rows: Sequence[TrailEntry]
    turns: ListTurns


def read_trail_query(query: Mapping[str, str]) -> tuple[TrailQuery, list[str]]:
    """What a query string asks for, with a sentence for each value that makes no sense and is left out.

    Days are those of the active time zone.
    """
    problems: list[str] = []
    found = TrailQuery(
        actor=query.get("actor", "").strip()[:150].replace("\0", ""),
        object_id=query.get("id", "").strip().removeprefix("#")[:64].replace("\0", ""),
        first_day=_read_day(query, "from", problems),
        last_day=_read_day(query, "to", problems),
        before=_read_number(query, "before", problems),
        after=_read_number(query, "after", problems),
    )
    action, kind = query.get("action", ""), query.get("kind", "")
    if action and action not in TrailAction.values:
        problems.append(f"There is no action “{shorten(action)}”; all are shown.")
        action = ""
    if kind and kind not in KINDS:
        problems.append(f"Nothing of the kind “{shorten(kind)}” is told of; it can be {', '.join(KINDS)}.")
        kind = ""
    if found.first_day and found.last_day and found.first_day > found.last_day:
        problems.append("“From” is after “to”: no entry can match.")
    if found.before is not None and found.after is not None:
        problems.append("“before” and “after” can’t be combined; the newest entries are shown.")
        found = replace(found, before=None, after=None)
    return replace(found, action=action, kind=kind), problems


def load_page(query: TrailQuery) -> TrailPage:
    """The page that ``query`` asks for."""
    entries, found = find_entries(query.to_filters(), limit=PAGE_SIZE + 1, before=query.before, after=query.after)
    keys, turns = turn_pages(
        found,
        page_size=PAGE_SIZE,
        before=query.before,
        after=query.after,
        build_url=query.build_url,
    )
    return TrailPage([entries[key] for key in keys if key in entries], turns)


def walk_entries(filters: TrailFilters, *, batch: int, most: int) -> Iterator[Sequence[TrailEntry]]:
    """Up to ``most`` entries that match, the newest first, in batches; empty ones where there is little among much."""
    before: int | None = None
    while most > 0:
        limit = min(batch, most)
        entries, found = find_entries(filters, limit=limit, before=before)
        yield list(entries.values())
        most -= len(found.ids)
        if (found.searched_to is None and len(found.ids) < limit) or found.last is None:
            return
        before = found.last.key


def _begin(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


def _read_day(query: Mapping[str, str], name: str, problems: list[str]) -> date | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
        _begin(day + timedelta(days=1)).timestamp()
        _begin(day).timestamp()
    except (ValueError, OverflowError):
        problems.append(f"“{shorten(text)}” is no day; write “{name}” as 2026-03-31.")
        return None
    return day


def _read_number(query: Mapping[str, str], name: str, problems: list[str]) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        problems.append(f"“{shorten(text)}” is no number of an entry; the newest are shown.")
        return None
    return int(text)
