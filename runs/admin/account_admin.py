"""Users in the admin: who belongs to which group, and what only a superuser may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import ManyToManyField, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from runs.models import ProviderIdentity
from runs.trail.actions import TrailAction
from runs.trail.ended_sessions import end_sessions
from runs.trail.entries import leave_trail

ADMIN_APPS = ("flows", "auth")
"""Whose permissions serve for the admin only."""

HELP_TEXTS = {
    "is_staff": "Opens the admin: flows, history and, for administrators, users. Pages of runs need a group only.",
    "groups": "What the user may do. Each group may do all that those before it in this order may: "
    "Viewer, Operator, Editor, Administrator.",
}


if TYPE_CHECKING:
    _UserAdmin = UserAdmin[User]
else:  # Django's classes are generic for type checkers only.
    _UserAdmin = UserAdmin


class AccountAdmin(_UserAdmin):
    """Users. Superusers are changed by superusers only: else whoever may change users could become one."""

    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("What the user may do", {"fields": ("is_active", "groups", "is_staff", "is_superuser")}),
        ("Name", {"fields": ("first_name", "last_name", "email")}),
        ("Single permissions", {"fields": ("user_permissions",), "classes": ("collapse",)}),
        ("Dates", {"fields": ("last_login", "date_joined"), "classes": ("collapse",)}),
    )
    list_display = ("username", "email", "member_of", "is_staff", "is_active", "last_login")
    filter_horizontal = ("user_permissions",)
    readonly_fields = ("last_login", "date_joined")
    actions = ("end_all_sessions", "unlink_from_provider")

    def get_queryset(self, request: HttpRequest) -> Any:
        """Users with their groups."""
        return super().get_queryset(request).prefetch_related("groups")

    def member_of(self, user: User) -> str:
        """The names of the user's groups."""
        names = [group.name for group in user.groups.all()]
        return ", ".join(sorted(names)) or ("Superuser" if user.is_superuser else "—")

    member_of.short_description = "Groups"  # type: ignore[attr-defined]  # how the admin names a column

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers are for superusers."""
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers are for superusers."""
        return super().has_delete_permission(request, obj) and _may_touch(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Nobody makes a superuser without being one."""
        fields = super().get_readonly_fields(request, obj)
        return fields if getattr(request.user, "is_superuser", False) else (*fields, "is_superuser")

    def formfield_for_manytomany(self, db_field: ManyToManyField[Any, Any], request: Any, **kwargs: Any) -> Any:
        """Groups are a few boxes to tick."""
        if db_field.name == "groups":
            kwargs["widget"] = forms.CheckboxSelectMultiple()
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """The form, with what its fields mean here."""
        if obj is not None:
            kwargs["help_texts"] = HELP_TEXTS
        return super().get_form(request, obj, change=change, **kwargs)

    @admin.action(description="End all sessions", permissions=["change"])
    def end_all_sessions(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Sign the chosen users out of all browsers."""
        count = sum(end_sessions(user=user) for user in self._list_changeable(request, users))
        messages.success(request, "1 session ended." if count == 1 else f"{count} sessions ended.")

    @admin.action(description="Unlink from the sign-in provider", permissions=["change"])
    @transaction.atomic
    def unlink_from_provider(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Let accounts be linked anew, to whoever comes next with their address; whoever is in them is signed out."""
        unlinked = 0
        for user in self._list_changeable(request, users):
            if ProviderIdentity.objects.filter(user=user).delete()[0]:
                unlinked += 1
                leave_trail(action=TrailAction.ACCOUNT_UNLINKED, about=user)
                end_sessions(user=user)
        messages.success(request, "1 account unlinked." if unlinked == 1 else f"{unlinked} accounts unlinked.")

    def _list_changeable(self, request: HttpRequest, users: QuerySet[User]) -> list[User]:
        """Those of the chosen ones that this administrator may change; the others are named to them."""
        chosen = list(users)
        kept = [user for user in chosen if not self.has_change_permission(request, user)]
        if kept:
            names = ", ".join(user.get_username() for user in kept)
            messages.warning(request, f"Superusers are for superusers: {names} stayed as before.")
        return [user for user in chosen if user not in kept]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save, and say so if what the user may do can't be reached."""
        super().save_related(request, form, formsets, change)
        user: User = form.instance
        if change and user.is_active and not user.is_staff and _can_do_more_than_runs(user):
            messages.warning(
                request,
                format_html(
                    "{} may see or change flows, but can’t open the admin, where they are: tick “Staff status”.", user
                ),
            )


def _may_touch(request: HttpRequest, user: User | None) -> bool:
    return user is None or not user.is_superuser or bool(getattr(request.user, "is_superuser", False))


def _can_do_more_than_runs(user: User) -> bool:
    # A fresh one: the user that was saved remembers what it might do before.
    permissions = User.objects.get(pk=user.pk).get_all_permissions()
    return any(permission.partition(".")[0] in ADMIN_APPS for permission in permissions)
