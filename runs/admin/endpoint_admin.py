"""Webhook endpoints in the admin."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from runs.models import WebhookEndpoint
from runs.models.webhook import RUN_EVENTS, hide_path
from runs.webhooks.addresses import find_target_problem
from runs.webhooks.deliveries import create_test
from runs.webhooks.messages import RotatedRecentlyError, derive_secret, rotate_secret


class WebhookEndpointForm(forms.ModelForm):  # type: ignore[type-arg]  # generic for type checkers only
    """An address that webhooks may reach, as far as is known now, and the ends of runs that are sent to it."""

    url = forms.URLField(label="URL", max_length=2_000, assume_scheme="https")
    event_types = forms.MultipleChoiceField(
        choices=[(event.value, event.label) for event in RUN_EVENTS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None: all of them.",
    )

    class Meta:
        model = WebhookEndpoint
        fields = ("url", "flow", "event_types", "is_enabled")

    def clean_url(self) -> str:
        """The address. Raises ``ValidationError`` for one that nothing can be sent to."""
        url: str = self.cleaned_data["url"]
        if "url" in self.changed_data and (obstacle := find_target_problem(url)):
            raise forms.ValidationError(obstacle)
        return url


class WebhookEndpointAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # see above
    """Endpoints, of one flow or of all. A secret is shown when it is created, and never again."""

    form = WebhookEndpointForm
    list_display = ("__str__", "address", "flow", "is_enabled")
    list_filter = ("is_enabled", "flow")
    list_select_related = ("flow",)
    actions = ("send_test", "rotate_secrets")

    @admin.display(description="URL")
    def address(self, endpoint: WebhookEndpoint) -> str:
        """The address without what may hold a key."""
        return hide_path(endpoint.url)

    def save_model(self, request: HttpRequest, obj: WebhookEndpoint, form: Any, change: bool) -> None:
        """Save, and show the secret of a new endpoint."""
        super().save_model(request, obj, form, change)
        if not change:
            self._show_secret(request, obj)

    @admin.action(description="Send a test", permissions=["change"])
    def send_test(self, request: HttpRequest, endpoints: QuerySet[WebhookEndpoint]) -> None:
        """Send each of them a message of the type ``webhook.test``."""
        for endpoint in endpoints:
            create_test(endpoint)
            self.message_user(request, f"{endpoint}: test requested. See the result under Webhooks.")

    @admin.action(description="Rotate secret", permissions=["change"])
    def rotate_secrets(self, request: HttpRequest, endpoints: QuerySet[WebhookEndpoint]) -> None:
        """Sign with another secret, and for some days with the previous one, too."""
        for endpoint in endpoints:
            try:
                rotate_secret(endpoint)
            except RotatedRecentlyError as error:
                self.message_user(request, f"{endpoint}: {error}", messages.WARNING)
            else:
                self._show_secret(request, endpoint)

    def _show_secret(self, request: HttpRequest, endpoint: WebhookEndpoint) -> None:
        sentence = f"{endpoint}: its secret is {derive_secret(endpoint)}; it is not shown again."
        self.message_user(request, sentence, messages.SUCCESS)
