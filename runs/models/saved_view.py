"""Filters of the list of runs that users keep under a name."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

LONGEST_NAME = 60


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def seen_by(self, user_id: int) -> Self:
        """Views of that user, and those that others share with everybody."""
        return self.filter(Q(owner=user_id) | Q(is_shared=True))


class SavedView(models.Model):
    """One view of one user: a name, and the filters as the query string of the list."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=LONGEST_NAME)
    query = models.TextField(help_text="The filters as they stand in the address of the list.")
    is_shared = models.BooleanField(default=False, help_text="Everybody who may see runs sees this view.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SavedViewQuerySet.as_manager()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="saved_view_name_once")]
        indexes = [models.Index(fields=["name"], condition=Q(is_shared=True), name="saved_view_shared")]

    def __str__(self) -> str:
        return self.name
