"""Filters of the list of runs that users keep under a name."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.db.models import Q

MAX_NAME_LENGTH = 60
MAX_VIEWS = 50
"""Views that one user may keep, and shared views of others that the list offers."""


class TooManyViewsError(Exception):
    """The user keeps ``MAX_VIEWS`` views already. ``str(error)`` is a sentence."""


class NameTakenError(Exception):
    """The user has a view of that name. ``str(error)`` is a sentence."""


def parse_name(text: str) -> str:
    """The name of a view with single spaces. Raises ``ValueError`` with a sentence for what can't be one."""
    name = " ".join(text.split())
    if not name:
        raise ValueError("A view needs a name.")
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"The name of a view has at most {MAX_NAME_LENGTH} characters; this one has {len(name)}.")
    if not name.isprintable():
        raise ValueError("The name of a view can’t have invisible characters.")
    return name


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def seen_by(self, user_id: int) -> Self:
        """Views of that user, and those that others share."""
        return self.filter(Q(owner=user_id) | Q(is_shared=True))

    def store(self, *, owner_id: int, name: str, query: str, is_shared: bool) -> SavedView:
        """Store a view. Raises ``TooManyViewsError`` and ``NameTakenError``."""
        if self.filter(owner=owner_id).count() >= MAX_VIEWS:
            raise TooManyViewsError(f"You have {MAX_VIEWS} views already; delete one that you no longer need.")
        try:
            with transaction.atomic():
                return self.create(owner_id=owner_id, name=name, query=query, is_shared=is_shared)
        except IntegrityError:
            sentence = f"You have a view “{name}” already; choose another name, or delete that one first."
            raise NameTakenError(sentence) from None


class SavedView(models.Model):
    """One view of one user: a name, and the filters as the query string of the list."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=MAX_NAME_LENGTH)
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
