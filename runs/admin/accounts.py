"""Users and their API tokens in the admin: groups, sessions, and what only a superuser may change."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import ManyToManyField, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from runs import formatting
from runs.admin.history import column
from runs.audit_log.events import AuditAction, log_audit_event
from runs.audit_log.sign_ins import end_sessions
from runs.models import ApiToken, ProviderIdentity
from runs.tokens import revoke_token

CHANGE_USERS = "auth.change_user"
"""Who may close an account may revoke its tokens, which is less."""

HELP_TEXTS = {
    "is_staff": "Gives access to the admin (flows, history and, for administrators, users). Run pages need a group.",
    "groups": "What the user may do. Each group may do all that those before it in this order may: "
    "Viewer, Operator, Editor, Administrator.",
}


class AccountAdmin(UserAdmin):  # type: ignore[type-arg]  # generic for type checkers only
    """Users. Only superusers change superusers: else all who may change users could become one."""

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

    @admin.display(description="Groups")
    def member_of(self, user: User) -> str:
        """The names of the user's groups."""
        names = sorted(group.name for group in user.groups.all())
        return ", ".join(names) or ("Superuser" if user.is_superuser else formatting.NOTHING)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers are for superusers."""
        return super().has_change_permission(request, obj) and _can_change(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers are for superusers."""
        return super().has_delete_permission(request, obj) and _can_change(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Only superusers make superusers."""
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
        messages.success(request, f"{formatting.format_plural(count, 'session')} ended.")

    @admin.action(description="Unlink from the sign-in provider", permissions=["change"])
    @transaction.atomic
    def unlink_from_provider(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Let the next sign-in with their address link the accounts again; their sessions end."""
        unlinked = 0
        for user in self._list_changeable(request, users):
            if ProviderIdentity.objects.filter(user=user).delete()[0]:
                unlinked += 1
                log_audit_event(action=AuditAction.ACCOUNT_UNLINKED, about=user)
                end_sessions(user=user)
        messages.success(request, f"{formatting.format_plural(unlinked, 'account')} unlinked.")

    def _list_changeable(self, request: HttpRequest, users: QuerySet[User]) -> list[User]:
        """Those that this administrator may change; a message names the others."""
        chosen = list(users)
        kept = [user for user in chosen if not self.has_change_permission(request, user)]
        if kept:
            names = ", ".join(user.get_username() for user in kept)
            messages.warning(request, f"Superusers are for superusers: {names} stayed as before.")
        return [user for user in chosen if user not in kept]


def _can_change(request: HttpRequest, user: User | None) -> bool:
    return user is None or not user.is_superuser or bool(getattr(request.user, "is_superuser", False))


class ApiTokenAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # see above
    """The tokens of all users, to see and to revoke. Tokens themselves are not stored, only how each begins."""

    list_display = (
        column("Name", "name"),
        column("User", "user"),
        column("Scope", lambda token: token.scope.capitalize()),
        column("State", lambda token: str(token.find_state(timezone.now()).label)),
        column("Last used", "last_used_at"),
        column("Expires", "expiry"),
        column("Created", "created"),
        column("Begins with", lambda token: f"{token.token_key}…"),
    )
    list_display_links = None
    list_select_related = ("user",)
    search_fields = ("name", "user__username", "token_key")
    search_help_text = "Name, user, or how a token begins"
    actions = ("revoke",)
    sortable_by = ()
    fields: ClassVar[Any] = list_display
    readonly_fields: ClassVar[Any] = list_display

    @admin.action(description="Revoke selected tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, tokens: QuerySet[ApiToken]) -> HttpResponse | None:
        """Ask for confirmation, then revoke them. Only superusers revoke those of superusers."""
        if not getattr(request.user, "is_superuser", False):
            tokens = tokens.filter(user__is_superuser=False)
        now = timezone.now()
        active = list(tokens.active(now).select_related("user").order_by("user__username", "name"))  # type: ignore[attr-defined]  # the manager has no type here
        if active and "_revoke" not in request.POST:
            context = {**self.admin_site.each_context(request), "opts": self.opts, "tokens": active, "now": now}
            context |= {"title": "Revoke tokens", "action_name": helpers.ACTION_CHECKBOX_NAME}
            return TemplateResponse(request, "admin/runs/apitoken/revoke.html", context)
        count = sum(map(revoke_token, tokens.select_related("user")))
        sentence = f"{formatting.format_plural(count, 'token')} revoked." if count else "No token was revoked."
        self.message_user(request, sentence, messages.SUCCESS if count else messages.WARNING)
        return None

    def get_actions(self, request: HttpRequest) -> Any:
        """Without deletion: revoked tokens stay listed for their owners."""
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def has_module_permission(self, request: HttpRequest) -> bool:
        """For users who may change users."""
        return request.user.has_perm(CHANGE_USERS)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """For users who may change users."""
        return request.user.has_perm(CHANGE_USERS)

    has_change_permission = has_view_permission

    def has_add_permission(self, request: HttpRequest) -> bool:
        """For no one: users create their own."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """For users who may delete users: their tokens go with them."""
        return request.user.has_perm("auth.delete_user")
