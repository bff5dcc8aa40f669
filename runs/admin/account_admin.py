"""Users in the admin: who belongs to which group, and what only a superuser may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db.models import ManyToManyField
from django.http import HttpRequest
from django.utils.html import format_html

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
