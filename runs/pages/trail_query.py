"""What the address of the trail asks for, and the entries that it finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from runs.models import TrailEntry
from runs.run_filters.reading import shorten
from runs.trail.actions import TrailAction

PAGE_SIZE = 100
KINDS: Mapping[str, str] = {
    "run": "Run",
    "flow": "Flow",
    "user": "User",
    "group": "Group",
    "apitoken": "API token",
    "bulkaction": "Bulk action",
    "webhookdelivery": "Webhook",
    "ratelimit": "Limit",
}
"""What entries are about, by ``object_kind``."""
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

    def find(self) -> QuerySet[TrailEntry]:
        """All entries that match, the newest first."""
        rows = TrailEntry.objects.order_by("-pk")
        given = {"actor_name": self.actor, "action": self.action, "object_kind": self.kind, "object_id": self.object_id}
        rows = rows.filter(**{name: value for name, value in given.items() if value})
        if self.first_day:
            rows = rows.filter(at__gte=_begin(self.first_day))
        if self.last_day:
            rows = rows.filter(at__lt=_begin(self.last_day + timedelta(days=1)))
        return rows


@dataclass(frozen=True, slots=True)
class TrailPage:
    """One page of the trail."""

    rows: Sequence[TrailEntry]
    newer_url: str
    older_url: str
    newest_url: str
    """Leads to the first page; empty on it."""


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
    """The page that ``query`` asks for, in one query of the database."""
    rows = query.find()
    if query.after is not None:
        found = list(rows.filter(pk__gt=query.after).order_by("pk")[: PAGE_SIZE + 1])
        is_more, page = len(found) > PAGE_SIZE, found[:PAGE_SIZE][::-1]
        newer = query.build_url(after=page[0].pk) if is_more else ""
        older = query.build_url(before=page[-1].pk if page else query.after + 1)
        return TrailPage(page, newer, older, query.build_url())
    if query.before is not None:
        rows = rows.filter(pk__lt=query.before)
    found = list(rows[: PAGE_SIZE + 1])
    is_more, page = len(found) > PAGE_SIZE, found[:PAGE_SIZE]
    older = query.build_url(before=page[-1].pk) if is_more else ""
    if query.before is None:
        return TrailPage(page, "", older, "")
    return TrailPage(page, query.build_url(after=page[0].pk if page else query.before - 1), older, query.build_url())


def walk_entries(query: TrailQuery, *, batch: int, most: int) -> Iterator[Sequence[TrailEntry]]:
    """Up to ``most`` entries that match, the newest first, in batches."""
    rows, left = query.find(), most
    last: int | None = None
    while left > 0:
        part = list((rows if last is None else rows.filter(pk__lt=last))[: min(batch, left)])
        if not part:
            return
        yield part
        last, left = part[-1].pk, left - len(part)


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
