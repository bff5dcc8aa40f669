"""Entries of the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from runs.api.schemas.base import Answer, Page, Query, TextOrNull
from runs.audit_log.entries import KINDS, EntryFilters
from runs.audit_log.events import TrailAction

_YEARS = range(1970, 2200)


class TrailEntry(Answer):
    """An action of a user, a command or the worker. Names are those of the time of the action."""

    id: int = Field(ge=1, description="The number of the entry.")
    at: datetime = Field(description="When, in UTC.")
    actor: TextOrNull = Field(
        validation_alias="actor_name",
        description="The user, command or part of ToolFlow; null for a failed sign-in by an unknown name.",
    )
    token: TextOrNull = Field(validation_alias="token_name", description="The name of the API token, if one was used.")
    ip_address: TextOrNull = Field(
        validation_alias="address", description="Where the request came from; null without a request."
    )
    action: str = Field(description="What was done: one of those of the parameter `action`, or a later one.")
    object_kind: TextOrNull = Field(description="To what it was done: `flow`, `run`.")
    object_id: TextOrNull = Field(description="The number of that.")
    object_label: TextOrNull = Field(description="What that was called.")
    details: Mapping[str, Any] = Field(description="A few figures and names; no inputs, no outputs, no secrets.")
    request_id: TextOrNull = Field(description="The id of the request in the log.")


class TrailPage(Page):
    """A page of the audit log."""

    items: list[TrailEntry] = Field(description="The newest first.")


def _parse_day(text: Any) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if len(text) != len("2026-11-21") or day.year not in _YEARS:
        raise ValueError("This must be a day such as 2026-11-21.")
    return day


def _refuse_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("This can’t be stored.")
    return text


def _check_action(text: Any) -> Any:
    if text not in TrailAction.values:
        raise ValueError(f"This must be one of {', '.join(TrailAction.values)}.")
    return text


Day = Annotated[date, BeforeValidator(_parse_day)]
FilterText = Annotated[str, Field(min_length=1, max_length=200), BeforeValidator(_refuse_nul)]
Action = Annotated[
    str, BeforeValidator(_check_action), WithJsonSchema({"type": "string", "enum": list(TrailAction.values)})
]


class TrailQuery(Query):
    """Which entries are meant."""

    actor: FilterText | None = Field(None, description="Only what the user of this name did.")
    action: list[Action] = Field(default_factory=list, description="Only these actions.")
    kind: Annotated[str, WithJsonSchema({"type": "string", "enum": list(KINDS)})] | None = Field(
        None, description="Only what was done to such a thing."
    )
    id: FilterText | None = Field(None, description="Only what was done to the one with this number; only with `kind`.")
    since: Day | None = Field(None, alias="from", description="Only what was done on this day or later, in UTC.")
    until: Day | None = Field(None, alias="to", description="Only what was done on this day or earlier, in UTC.")

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str | None) -> str | None:
        if kind is not None and kind not in KINDS:
            raise ValueError(f"This must be one of {', '.join(KINDS)}.")
        return kind

    @field_validator("id")
    @classmethod
    def _check_id(cls, key: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("kind", "") is None:
            raise ValueError("Numbers are those of a kind of thing: give “kind” too, such as kind=run.")
        return key

    @field_validator("until")
    @classmethod
    def _check_order(cls, until: date | None, info: ValidationInfo) -> date | None:
        since = info.data.get("since")
        if until is not None and since is not None and since > until:
            raise ValueError("This must not be before “from”.")
        return until

    def to_filters(self) -> EntryFilters:
        """The filters, with days in UTC."""
        return EntryFilters(
            actor=self.actor or "",
            actions=self.action,
            kind=self.kind or "",
            object_id=self.id or "",
            since=None if self.since is None else datetime.combine(self.since, time.min, UTC),
            until=None if self.until is None else datetime.combine(self.until + timedelta(days=1), time.min, UTC),
        )
