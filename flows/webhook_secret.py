"""The secrets that sign webhooks: each flow has one for its own address, the installation one for those of runs.

They are derived from the secret key and stored nowhere; what is stored is how often one was changed.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from django.conf import settings
from django.db.models import F
from django.utils import timezone
from django.utils.crypto import salted_hmac

from flows.models import WebhookSecretChange

OVERLAP = timedelta(days=7)
"""For how long after a change messages are signed with the previous secret, too."""
_CONTEXT = "toolflow: secret of a webhook"
"""Keeps these keys apart from all others that are derived from the secret key."""


@dataclass(frozen=True, slots=True)
class WebhookSecrets:
    """What messages are signed with now; each secret begins with ``whsec_``, as receivers' libraries take it."""

    current: str
    earlier: Sequence[str]
    """Those that receivers may still have: from before a change, and of fallbacks of the secret key."""
    changes_until: datetime | None
    """When the secret from before a change ends; None if none counts."""
    number: int
    """Of the last change; 0 before the first."""


@dataclass(frozen=True, slots=True)
class WebhookSigner:
    """A flow, or the installation; ``name`` is never used again, since it holds the key of the flow's row."""

    name: str

    @classmethod
    def of_flow(cls, flow_id: int) -> Self:
        """Signs messages to the flow's own address."""
        return cls(f"flow {flow_id}")

    @classmethod
    def of_installation(cls) -> Self:
        """Signs messages to addresses given with runs."""
        return cls("installation")

    @property
    def secret(self) -> str:
        """The current secret. Takes one query."""
        return self.read_secrets().current

    def read_secrets(self) -> WebhookSecrets:
        """What messages are signed with now. Takes one query."""
        change = WebhookSecretChange.objects.filter(signer=self.name).first()
        number, until = (change.number, change.changed_at + OVERLAP) if change else (0, None)
        if until is not None and until <= timezone.now():
            until = None
        numbers = [number] if until is None else [number, number - 1]
        keys = dict.fromkeys((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))
        current, *earlier = [self.derive_secret(one, key) for one in numbers for key in keys]
        return WebhookSecrets(current, earlier, until, number)

    def change_secret(self, *, number: int) -> bool:
        """Use another secret from now on; the previous one counts for ``OVERLAP``, none from before that.

        ``number`` is that of the last change that the caller knows. False, and nothing is changed, if there was
        another one since: two changes in a row would leave receivers no secret that they know.
        """
        now = timezone.now()
        if number == 0:
            change = {"number": 1, "changed_at": now}
            return WebhookSecretChange.objects.get_or_create(signer=self.name, defaults=change)[1]
        known = WebhookSecretChange.objects.filter(signer=self.name, number=number)
        return known.update(number=F("number") + 1, changed_at=now) == 1

    def derive_secret(self, number: int, key: str | None = None) -> str:
        """The secret after that many changes, whether it counts or not; ``key`` is the secret key, else the current."""
        value = f"{self.name}, change {number}" if number else self.name
        derived = salted_hmac(_CONTEXT, value, secret=key or settings.SECRET_KEY, algorithm="sha256").digest()
        return "whsec_" + base64.b64encode(derived).decode("ascii")
