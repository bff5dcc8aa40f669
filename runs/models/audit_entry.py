"""The audit log: each action with its actor, time and address. Entries are added and never changed.

A trigger in the database refuses what goes past this model: see ADR 0016.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from django.conf import settings
from django.db import connections, models, transaction
from django.db.models.functions import Now


class AppendOnlyError(Exception):
    """An entry of the audit log was to be changed or deleted."""

    def __init__(self) -> None:
        super().__init__("Entries of the audit log are kept as they are; “manage.py purge_trail” deletes old ones.")


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    """Entries, which can be added and read."""

    def update(self, **values: Any) -> NoReturn:
        """Refused."""
        raise AppendOnlyError

    def delete(self) -> NoReturn:
        """Refused."""
        raise AppendOnlyError

    def purge(self, *, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` entries from before that time, the oldest first; return their number.

        This is the only way to delete any.
        """
        connection = connections[self.db]
        with transaction.atomic(using=self.db):
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    # The trigger lets this transaction through.
                    cursor.execute("SET LOCAL toolflow.purges_trail = 'on'")
            oldest = self.filter(at__lt=before).order_by("at", "pk").values_list("pk", flat=True)[:limit]
            rows: models.QuerySet[AuditEntry] = models.QuerySet(model=self.model, using=self.db)
            return rows.filter(pk__in=list(oldest))._raw_delete(self.db)


class AuditEntry(models.Model):
    """One action of a user, a command or the worker.

    Names are those of the time of the action and outlive what they name. ``details`` is small and holds no inputs,
    outputs or secrets.
    """

    at = models.DateTimeField(db_default=Now())
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(
        max_length=150, blank=True, default="", help_text="Of a sign-in that failed, the name that was tried."
    )
    token_name = models.CharField(max_length=100, blank=True, default="", help_text="If it was done by an API token.")
    address = models.CharField(max_length=45, blank=True, default="", help_text="Where the request came from.")
    action = models.CharField(max_length=40)
    object_kind = models.CharField(max_length=30, blank=True, default="")
    object_id = models.CharField(max_length=64, blank=True, default="")
    object_label = models.CharField(max_length=200, blank=True, default="")
    details: models.JSONField[Mapping[str, Any], Mapping[str, Any]] = models.JSONField(blank=True, default=dict)
    request_id = models.CharField(max_length=64, blank=True, default="")

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]
        verbose_name = "audit log entry"
        verbose_name_plural = "audit log"
        # No page adds, changes or deletes one. The name of the permission is stored with groups and users.
        default_permissions = ()
        permissions = [("view_trailentry", "Can view trail entry")]
        indexes = [
            models.Index(fields=["at", "id"], name="trail_by_time"),
            models.Index(fields=["actor_name", "at", "id"], name="trail_by_actor"),
            models.Index(fields=["action", "at", "id"], name="trail_by_action"),
            models.Index(fields=["object_kind", "at", "id"], name="trail_by_kind"),
            models.Index(fields=["object_kind", "object_id", "at", "id"], name="trail_by_object"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name or 'unknown'}: {self.action} {self.object_label}".strip()

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Add it. Raises ``AppendOnlyError`` if it is stored already."""
        if not self._state.adding:
            raise AppendOnlyError
        super().save(*args, **{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise AppendOnlyError
