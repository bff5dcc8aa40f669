"""What receivers are sent: the body about a run, and the headers with its signature.

Each endpoint has a secret, and the installation one for addresses given with runs. They are derived from the secret key
and a stored seed, so that a copy of the database alone signs nothing.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from standardwebhooks import Webhook

from runs.audit_log.events import AuditAction, log_audit_event
from runs.documents.loading import load_ended_run
from runs.models import InstallationSecret, SigningSecret, WebhookDelivery, WebhookEndpoint
from runs.models.webhook import make_secret_seed

OVERLAP = timedelta(days=7)
"""For how long after a rotation messages are signed with the previous secret, too."""
_CONTEXT = "toolflow: secret of a webhook"
"""Keeps these keys apart from all others that are derived from the secret key."""


class RotatedRecentlyError(Exception):
    """Another rotation would end a secret that receivers may still use. ``str(error)`` is a sentence."""


def fetch_installation_secret() -> InstallationSecret:
    """What signs messages to addresses given with runs."""
    return InstallationSecret.objects.get_or_create(pk=1, defaults={"secret_seed": "installation"})[0]


def derive_secret(signer: SigningSecret) -> str:
    """The current secret. It begins with ``whsec_``, as libraries for Standard Webhooks take it."""
    return _derive(signer.secret_seed, settings.SECRET_KEY)


def list_secrets(signer: SigningSecret) -> list[str]:
    """The current secret, then those that receivers may still have: from before a rotation, and of old secret keys."""
    seeds = [signer.secret_seed, *([signer.previous_seed] if find_overlap_end(signer) else [])]
    keys = dict.fromkeys((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))
    return [_derive(seed, key) for seed in seeds for key in keys]


def find_overlap_end(signer: SigningSecret) -> datetime | None:
    """Until when messages are signed with the secret from before the last rotation, too; None if it has ended."""
    if signer.secret_changed_at is None or signer.secret_changed_at + OVERLAP <= timezone.now():
        return None
    return signer.secret_changed_at + OVERLAP


def rotate_secret(signer: SigningSecret, *, ends_previous: bool = False) -> None:
    """Sign with another secret from now on, and with the previous one for ``OVERLAP``.

    Raises ``RotatedRecentlyError`` while the one from before that still counts, unless ``ends_previous``.
    """
    with transaction.atomic():
        signer.refresh_from_db(from_queryset=type(signer)._default_manager.select_for_update())
        until = find_overlap_end(signer)
        if until is not None and not ends_previous:
            valid = f"The previous secret is valid until {until:%Y-%m-%d %H:%M} UTC"
            raise RotatedRecentlyError(f"{valid}; rotating again ends it.")
        signer.previous_seed, signer.secret_seed = signer.secret_seed, make_secret_seed()
        signer.secret_changed_at = timezone.now()
        signer.save(update_fields=["previous_seed", "secret_seed", "secret_changed_at"])
        about = signer if isinstance(signer, WebhookEndpoint) else None
        label = "" if about else "addresses given with runs"
        log_audit_event(action=AuditAction.WEBHOOK_SECRET_CHANGED, about=about, label=label)


def sign(secrets: list[str], *, message_id: str, at: datetime, body: str) -> str:
    """The header ``webhook-signature``: one signature for each secret. ``at`` is in UTC."""
    return " ".join(Webhook(secret).sign(message_id, at, body) for secret in secrets)


def _derive(seed: str, key: str) -> str:
    digest = salted_hmac(_CONTEXT, seed, secret=key, algorithm="sha256").digest()
    return "whsec_" + base64.b64encode(digest).decode("ascii")


def build_body(delivery: WebhookDelivery) -> str:
    """The message as JSON: its type, when it happened, and the run without its attempts."""
    if delivery.run_id is None:
        data: dict[str, Any] = {"endpoint": delivery.endpoint_id}
        message = {"type": delivery.event, "timestamp": delivery.created_at, "data": data}
    else:
        data = load_ended_run(delivery.run_id).model_dump(mode="json", exclude_unset=True)
        message = {"type": delivery.event, "timestamp": data["ended_at"], "data": data}
    return json.dumps(message, cls=DjangoJSONEncoder, ensure_ascii=False, separators=(",", ":"))


def build_headers(*, message_id: str, at: datetime, signature: str) -> dict[str, str]:
    """The headers of a message that was signed at that moment."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }
