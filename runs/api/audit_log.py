"""The audit log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from django.urls import URLPattern, path
from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.access import READ_AUDIT_LOG
from runs.api.base import ApiView, build_page, operation
from runs.api.paging import cut_page
from runs.audit_log.entries import KINDS, EntryFilters, fetch_entries
from runs.audit_log.events import AuditAction
from runs.documents.base import Answer, Page, RowPaging, Text, TextOrNull


class AuditLogEntry(Answer):
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
    action: str = Field(description="The action: one of the values of the parameter `action`, or one added later.")
    object_kind: TextOrNull = Field(description="The kind of object, such as `flow` or `run`.")
    object_id: TextOrNull = Field(description="The number of the object.")
    object_label: TextOrNull = Field(description="The name of the object.")
    details: Mapping[str, Any] = Field(description="A few figures and names; no inputs, no outputs, no secrets.")
    request_id: TextOrNull = Field(description="The id of the request in the log.")


class AuditLogPage(Page):
    """A page of the audit log."""

    items: list[AuditLogEntry] = Field(description="The newest first.")


def _parse_day(text: Any) -> date:
    if not re.fullmatch(r"(19[7-9]|20[0-9]|21[0-9])[0-9]-[0-9]{2}-[0-9]{2}", text, re.ASCII):
        raise ValueError("This must be a day such as 2026-11-21.")
    return date.fromisoformat(text)


Day = Annotated[date, BeforeValidator(_parse_day)]
FilterText = Annotated[Text, Field(min_length=1, max_length=200)]


class AuditLogQuery(RowPaging):
    """Which entries are meant."""

    actor: FilterText | None = Field(None, description="Only actions of the user with this name.")
    action: list[AuditAction] = Field(default_factory=list, description="Only these actions.")
    kind: Annotated[str, WithJsonSchema({"type": "string", "enum": list(KINDS)})] | None = Field(
        None, description="Only actions on this kind of object."
    )
    id: FilterText | None = Field(None, description="Only actions on the object with this number; requires `kind`.")
    since: Day | None = Field(None, alias="from", description="Only actions on this day or later, in UTC.")
    until: Day | None = Field(None, alias="to", description="Only actions on this day or earlier, in UTC.")

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
            raise ValueError("“id” requires “kind”, such as kind=run.")
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


class AuditLog(ApiView):
    """``/trail``"""

    @operation(
        "listTrail",
        "Read the audit log",
        tag="Trail",
        requires=READ_AUDIT_LOG,
        query=AuditLogQuery,
        answers={200: AuditLogPage},
    )
    def get(self, request: Request, query: AuditLogQuery) -> Response:
        """Sign-ins, changes of flows, users, tokens and limits, runs started or cancelled, exports: the newest first.

        It takes the permission to see the audit log, which administrators have. To read on from where a script
        stopped, send `after` with the number of the last entry that it has.
        """
        # One more than the page holds tells whether there is another.
        limit = query.limit + 1
        entries = fetch_entries(query.to_filters(), limit=limit, before=query.before, after=query.after)
        page = cut_page(entries, query, is_descending=True)
        return build_page(AuditLogPage, request, page.rows, next=page.next, previous=page.previous)


urls: list[URLPattern] = [path("trail", AuditLog.as_view(), name="trail")]
