"""What editors have typed and not published: one draft of a flow for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.models import Flow, FlowDraft

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet


def save_draft(*, flow: Flow | None, user: User, document: dict[str, Any], base_version: int) -> FlowDraft:
    """Keep what ``user`` has typed into a flow, or into a new one; it may be no valid definition yet."""
    values = {"document": document, "base_version": base_version}
    draft, _ = FlowDraft.objects.update_or_create(flow=flow, user=user, defaults=values)
    return draft


def find_draft(*, flow: Flow | None, user: User) -> FlowDraft | None:
    """What ``user`` has typed and not published."""
    return FlowDraft.objects.filter(flow=flow, user=user).first()


def discard_draft(*, flow: Flow | None, user: User) -> None:
    """Forget what ``user`` has typed."""
    FlowDraft.objects.filter(flow=flow, user=user).delete()


def list_other_drafts(*, flow: Flow, user: User) -> QuerySet[FlowDraft]:
    """Drafts of other editors with their users, the newest first; their documents are not loaded."""
    return FlowDraft.objects.filter(flow=flow).exclude(user=user).select_related("user").defer("document")
