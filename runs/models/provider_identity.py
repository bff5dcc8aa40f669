"""Who signs in to an account through a provider of OpenID Connect."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ProviderIdentity(models.Model):
    """The person behind an account, as the provider tells people apart: by a subject that it gives to nobody else.

    Addresses are given to others when somebody leaves; a subject never is.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="provider_identities")
    issuer = models.CharField(max_length=400)
    subject = models.CharField(max_length=255)
    linked_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_of_a_subject"),
            models.UniqueConstraint(fields=["issuer", "user"], name="one_subject_of_an_account"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"
