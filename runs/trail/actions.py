"""What the trail tells of."""

from __future__ import annotations

from django.db import models


class TrailAction(models.TextChoices):
    """What somebody did. Values are stored and stand in addresses: they never change."""

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
    RIGHTS_CHANGED = "rights_changed", "Changed what somebody may do"

    TOKEN_MADE = "token_made", "Created a token"
    TOKEN_REVOKED = "token_revoked", "Revoked a token"
    TOKEN_DELETED = "token_deleted", "Deleted a token"

    FLOW_ADDED = "flow_added", "Added a flow"
    FLOW_CHANGED = "flow_changed", "Changed a flow"
    FLOW_PUBLISHED = "flow_published", "Published a version"
    FLOW_MADE_LIVE = "flow_made_live", "Made a version live"
    FLOW_ARCHIVED = "flow_archived", "Archived a flow"
    FLOW_TAKEN_OUT = "flow_taken_out", "Took a flow out of the archive"
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
    EXPORTED = "exported", "Exported runs"
    DATA_DELETED = "data_deleted", "Deleted runs"
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

    TRAIL_EXPORTED = "trail_exported", "Exported the trail"
    TRAIL_PURGED = "trail_purged", "Deleted old entries of the trail"
