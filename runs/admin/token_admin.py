"""API tokens of all users in the admin: whose there are, what they may do, and revoking them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from runs.models import ApiToken
from runs.pages import figures
from runs.templatetags.toolflow import ago
from runs.tokens import revoke_tokens

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[ApiToken]
else:  # Django's classes are generic for type checkers only.
    _ModelAdmin = admin.ModelAdmin

CHANGE_USERS = "auth.change_user"
"""Who may close an account may revoke its tokens, which is less."""


class ApiTokenAdmin(_ModelAdmin):
    """A list to look at, newest first. Tokens themselves are not stored; what stands here begins each."""

    list_display = ("name", "user", "allows_to", "state", "last_used", "expires", "made", "begins_with")
    list_display_links = None
    list_select_related = ("user",)
    search_fields = ("name", "user__username", "token_key")
    search_help_text = "Name, user, or how a token begins"
    actions = ("revoke",)
    sortable_by = ()
    fields = ("name", "user", "allows_to", "state", "last_used", "expires", "made", "begins_with")
    readonly_fields = fields

    @admin.display(description="Scope")
    def allows_to(self, token: ApiToken) -> str:
        """The word of its scope, as its owner sees it."""
        return token.scope.capitalize()

    @admin.display(description="State")
    def state(self, token: ApiToken) -> str:
        """What has become of it."""
        return str(token.find_state(timezone.now()).label)

    @admin.display(description="Last used")
    def last_used(self, token: ApiToken) -> str:
        """To the minute."""
        return "Never" if token.last_used_at is None else ago(token.last_used_at, timezone.now())

    @admin.display(description="Expires")
    def expires(self, token: ApiToken) -> str:
        """When it lets nobody in any more."""
        if token.expiry is None:
            return "Never"
        local = timezone.localtime(token.expiry)
        return f"{local.day} {local:%b %Y}"

    @admin.display(description="Created")
    def made(self, token: ApiToken) -> str:
        """When it was made."""
        return ago(token.created, timezone.now())

    @admin.display(description="Begins with")
    def begins_with(self, token: ApiToken) -> str:
        """By which a token that turned up somewhere is found."""
        return f"{token.token_key}…"

    @admin.action(description="Revoke the chosen tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, tokens: QuerySet[ApiToken]) -> HttpResponse | None:
        """Ask whether they should be, and revoke them from now on. Those of superusers are for superusers."""
        if not getattr(request.user, "is_superuser", False):
            tokens = tokens.filter(user__is_superuser=False)
        now = timezone.now()
        active = list(tokens.active(now).select_related("user").order_by("user__username", "name"))  # type: ignore[attr-defined]  # the manager has no type here
        if active and "_revoke" not in request.POST:
            context = {**self.admin_site.each_context(request), "opts": self.opts, "tokens": active, "now": now}
            context |= {"title": "Revoke tokens", "action_name": helpers.ACTION_CHECKBOX_NAME}
            return TemplateResponse(request, "admin/runs/apitoken/revoke.html", context)
        count = revoke_tokens(tokens.select_related("user"))
        sentence = f"{figures.format_plural(count, 'token')} revoked." if count else "None of them could be revoked."
        self.message_user(request, sentence, messages.SUCCESS if count else messages.WARNING)
        return None

    def get_actions(self, request: HttpRequest) -> Any:
        """Without deleting: revoked tokens stay listed for their owners."""
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever may change users."""
        return request.user.has_perm(CHANGE_USERS)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change users."""
        return request.user.has_perm(CHANGE_USERS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: users make their own."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change users."""
        return request.user.has_perm(CHANGE_USERS)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may delete users: their tokens go with them."""
        return request.user.has_perm("auth.delete_user")
