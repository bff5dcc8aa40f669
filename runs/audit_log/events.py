"""The actions of the audit log, and writing an entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.db import models

from runs.audit_log.actor import describe_actor
from runs.models import AuditEntry

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

MAX_NAME_LENGTH, MAX_LABEL_LENGTH, MAX_ID_LENGTH = 150, 200, 64

_is_off: ContextVar[bool] = ContextVar("audit_log_is_off", default=False)


class AuditAction(models.TextChoices):
    """What was done. Values are stored, and part of addresses: they never change."""

    SIGNED_IN = "signed_in", "Signed in"
    SIGN_IN_FAILED = "sign_in_failed", "Failed to sign in"
    LOCKED_OUT = "locked_out", "Locked out"
    SIGNED_OUT = "signed_out", "Signed out"
    SESSIONS_ENDED = "sessions_ended", "Ended sessions"
    PASSWORD_CHANGED = "password_changed", "Changed a password"
    LOCKOUT_LIFTED = "lockout_lifted", "Lifted lock-outs"
    ACCOUNT_LINKED = "account_linked", "Linked an account to a provider"
    ACCOUNT_UNLINKED = "account_unlinked", "Unlinked an account from a provider"

    USER_ADDED = "user_added", "Added a user"
    USER_CHANGED = "user_changed", "Changed a user"
    USER_DELETED = "user_deleted", "Deleted a user"
    GROUP_ADDED = "group_added", "Added a group"
    GROUP_CHANGED = "group_changed", "Changed a group"
    GROUP_DELETED = "group_deleted", "Deleted a group"
    RIGHTS_CHANGED = "rights_changed", "Changed permissions"

    TOKEN_MADE = "token_made", "Created a token"
    TOKEN_REVOKED = "token_revoked", "Revoked a token"
    TOKEN_DELETED = "token_deleted", "Deleted a token"

    FLOW_ADDED = "flow_added", "Added a flow"
    FLOW_CHANGED = "flow_changed", "Changed a flow"
    FLOW_PUBLISHED = "flow_published", "Published a version"
    FLOW_MADE_LIVE = "flow_made_live", "Made a version live"
    FLOW_ARCHIVED = "flow_archived", "Archived a flow"
    FLOW_TAKEN_OUT = "flow_taken_out", "Unarchived a flow"
    FLOW_DELETED = "flow_deleted", "Deleted a flow"
    FLOW_EXPORTED = "flow_exported", "Exported flows"
    VERSION_DELETED = "version_deleted", "Deleted a version"
    STEP_TRIED = "step_tried", "Tried a step with a model call"

    RUN_STARTED = "run_started", "Started a run"
    RUNS_STARTED = "runs_started", "Started runs"
    RUN_CHANGED = "run_changed", "Changed the labels or metadata of a run"
    RUN_CANCELLED = "run_cancelled", "Cancelled a run"
    BULK_CANCEL = "bulk_cancel", "Cancelled many runs"
    BULK_RUN_AGAIN = "bulk_run_again", "Ran many again"
    BULK_STOPPED = "bulk_stopped", "Stopped a bulk action"
    BACKTEST_STARTED = "backtest_started", "Started a backtest"
    BACKTEST_STOPPED = "backtest_stopped", "Stopped a backtest"
    EXPORTED = "exported", "Exported runs"
    DATA_DELETED = "data_deleted", "Deleted runs"
    SAMPLES_ADDED = "samples_added", "Added sample history"
    SAMPLES_REMOVED = "samples_removed", "Removed sample history"
    BACKUP_MADE = "backup_made", "Backed up the database"
    BACKUP_RESTORED = "backup_restored", "Restored a backup of the database"
    WEBHOOK_ENDPOINT_ADDED = "webhook_endpoint_added", "Added a webhook endpoint"
    WEBHOOK_ENDPOINT_CHANGED = "webhook_endpoint_changed", "Changed a webhook endpoint"
    WEBHOOK_ENDPOINT_DELETED = "webhook_endpoint_deleted", "Deleted a webhook endpoint"
    WEBHOOK_TESTED = "webhook_tested", "Sent a test to a webhook endpoint"
    WEBHOOK_SECRET_CHANGED = "webhook_secret_changed", "Changed the secret of a webhook"
    WEBHOOK_SENT_AGAIN = "webhook_sent_again", "Sent a webhook again"

    LIMIT_ADDED = "limit_added", "Added a limit"
    LIMIT_CHANGED = "limit_changed", "Changed a limit"
    LIMIT_DELETED = "limit_deleted", "Deleted a limit"

    TRAIL_EXPORTED = "trail_exported", "Exported the audit log"
    TRAIL_PURGED = "trail_purged", "Deleted old audit log entries"


def log_audit_event(
    *,
    action: AuditAction,
    about: models.Model | None = None,
    kind: str = "",
    label: str = "",
    details: Mapping[str, Any] | None = None,
    actor: AbstractBaseUser | None = None,
) -> None:
    """Write an entry of ``action``, in the transaction that is open, with ``describe_actor``.

    ``about`` is the row that it was done to; ``kind`` and ``label`` name it where its model and its text don't.
    ``details`` are a few figures and names: no inputs, outputs or secrets. ``actor`` is for what is done for a user who
    sends no request.
    """
    if _is_off.get():
        return
    done_by = describe_actor(actor)
    # A flow that is loaded from a file has its name before it has its title.
    label = label or (str(about) or getattr(about, "name", "") if about else "")
    AuditEntry.objects.create(
        **done_by | {"actor_name": _fit(done_by["actor_name"], MAX_NAME_LENGTH)},
        action=action,
        object_kind=kind or (about._meta.model_name or "" if about else ""),
        object_id=str(about.pk)[:MAX_ID_LENGTH] if about else "",
        object_label=_fit(label, MAX_LABEL_LENGTH),
        details=dict(details or {}),
    )


@contextmanager
def without_entries() -> Iterator[None]:
    """Write no entries in this block: one entry stands for all of it."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def _fit(text: str, length: int) -> str:
    """A text as a column can hold it: without NUL and lone surrogates, and not too long."""
    return text.replace("\0", "").encode(errors="replace").decode()[:length]
