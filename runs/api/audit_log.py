"""The audit log: each action with its actor, time and address."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from django.db.models import QuerySet
from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator
from rest_framework.request import Request

from runs.api.access import READ_AUDIT_LOG
from runs.api.base import ApiView, operation
from runs.api.paging import build_page, cut_rows
from runs.audit_log.entries import KINDS, fetch_entries, filter_entries
from runs.audit_log.events import AuditAction
from runs.documents.base import Answer, Day, Name, Omitted, Page, RowPaging, TextOrNull
from runs.models import AuditEntry


class AuditLogEntry(Answer):
    """An action of a user, a command or the worker. Names are those of the time of the action."""

    list_name = "AuditLog"

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


class AuditLogQuery(RowPaging):
    """Which entries are meant."""

    actor: Name | Omitted = Field(None, description="Only actions of the user with this name.")
    action: list[AuditAction] = Field(default_factory=list, description="Only these actions.")
    kind: Annotated[str, WithJsonSchema({"type": "string", "enum": list(KINDS)})] | Omitted = Field(
        None, description="Only actions on this kind of object."
    )
    id: Name | Omitted = Field(None, description="Only actions on the object with this number; requires `kind`.")
    since: Day | Omitted = Field(None, alias="from", description="Only actions on this day or later, in UTC.")
    until: Day | Omitted = Field(None, alias="to", description="Only actions on this day or earlier, in UTC.")

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

    def filter_entries(self) -> QuerySet[AuditEntry]:
        """The entries that match; days are in UTC."""
        return filter_entries(
            actor=self.actor or "",
            actions=self.action,
            kind=self.kind or "",
            object_id=self.id or "",
            since=None if self.since is None else datetime.combine(self.since, time.min, UTC),
            until=None if self.until is None else datetime.combine(self.until + timedelta(days=1), time.min, UTC),
        )


class AuditLog(ApiView):
    """What was recorded."""

    @operation("GET trail", "Read the audit log", READ_AUDIT_LOG, tag="Trail")
    def list_trail(self, request: Request, query: AuditLogQuery) -> Page[AuditLogEntry]:
        """Sign-ins, changes of flows, users, tokens and limits, runs started or cancelled, exports: the newest first.

        It takes the permission to see the audit log, which administrators have. To read on from where a script
        stopped, send `after` with the number of the last entry that it has.
        """
        # One more than the page holds shows whether there is another.
        limit = query.limit + 1
        entries = fetch_entries(query.filter_entries(), limit=limit, before=query.before, after=query.after)
        page = cut_rows(entries, query, is_descending=True)
        return build_page(Page[AuditLogEntry], request, page)
