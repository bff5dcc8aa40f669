"""What must be kept can’t be deleted; the page says why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import DELETION, LogEntry
from django.db import models
from django.db.models import ProtectedError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from flows.models import ImmutableVersionError


def is_referred_to(row: models.Model) -> bool:
    """Whether rows that protect this one, such as runs, refer to it. Asks for one row, however many there are."""
    return any(
        relation.on_delete is models.PROTECT
        and relation.related_model._default_manager.filter(**{relation.field.name: row}).exists()
        for relation in row._meta.related_objects
    )


class ProtectedDeletionMixin:
    """For a ``ModelAdmin`` whose rows may have runs: refuses to delete those with a sentence.

    What it deletes is reported and logged in its own words.
    """

    deletion_words = "Deleted."
    """What the log says of a deletion."""

    def find_obstacle(self, row: Any) -> str | None:
        """Why ``row`` can't be deleted; None if it can."""
        raise NotImplementedError

    def get_deleted_objects(self, objs: Iterable[Any], request: HttpRequest) -> Any:
        """What deleting would take along; where something stands in the way, only that."""
        obstacles = [obstacle for row in objs if (obstacle := self.find_obstacle(row))]
        if obstacles:
            return [], {}, set(), obstacles
        return super().get_deleted_objects(objs, request)  # type: ignore[misc]  # a mixin

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Ask, and delete. A run that is started in between wins."""
        try:
            return super().delete_view(request, object_id, extra_context)  # type: ignore[misc, no-any-return]  # a mixin
        except (ProtectedError, ImmutableVersionError):
            messages.error(request, "Not deleted: it has just been used.")
            options = self.model._meta  # type: ignore[attr-defined]  # a mixin
            name = f"admin:{options.app_label}_{options.model_name}_change"
            return HttpResponseRedirect(reverse(name, args=[object_id]))

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: int) -> HttpResponse:
        """Say what was deleted, and go to the list, or home if the user may not see the list."""
        messages.success(request, f"“{obj_display}” is deleted.")
        options = self.model._meta  # type: ignore[attr-defined]  # a mixin
        name = f"admin:{options.app_label}_{options.model_name}_changelist"
        may_see = self.has_view_or_change_permission(request)  # type: ignore[attr-defined]  # a mixin
        return HttpResponseRedirect(reverse(name if may_see else "admin:index"))

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Any]) -> Any:
        """Log what is about to be deleted."""
        return LogEntry.objects.log_actions(
            user_id=request.user.pk or 0,  # only signed-in users delete
            queryset=queryset,
            action_flag=DELETION,
            change_message=self.deletion_words,
        )
