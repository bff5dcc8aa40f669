"""By what receivers of webhooks know that a message is ours: secrets that follow from the secret key.

Each flow has one of its own, for its own address; addresses given with runs have that of the installation. They are
stored nowhere: what is stored is how often one was changed.
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
"""For how long messages are signed with the secret of before, too, after a change."""
_CONTEXT = "toolflow: secret of a webhook"
"""Keeps these keys apart from all others that follow from the secret key."""
_PREFIX = "whsec_"


@dataclass(frozen=True, slots=True)
class WebhookSecrets:
    """What somebody signs with now."""

    current: str
    """As receivers' libraries take it."""
    earlier: Sequence[str]
    """Those that receivers may still have: from before a change, and from secret keys of before that still count."""
    changes_until: datetime | None
    """When the secret from before a change ends; None if none counts."""
    number: int
    """Of the last change; 0 before the first. Whoever wants another secret says which one they know by it."""


@dataclass(frozen=True, slots=True)
class WebhookSigner:
    """In whose name a message is signed."""

    name: str
    """Tells signers apart for ever. A flow's holds the number of its row: its name can be used again later."""

    @classmethod
    def of_flow(cls, flow_id: int) -> Self:
        """A flow, for messages to its own address."""
        return cls(f"flow {flow_id}")

    @classmethod
    def of_installation(cls) -> Self:
        """The installation, for messages to addresses given with runs."""
        return cls("installation")

    @property
    def secret(self) -> str:
        """The secret, as receivers' libraries take it. Takes one query."""
        return self.read_secrets().current

    def read_secrets(self) -> WebhookSecrets:
        """What is signed with now. Takes one query."""
        change = WebhookSecretChange.objects.filter(signer=self.name).first()
        number, until = (change.number, change.changed_at + OVERLAP) if change else (0, None)
        if until is not None and until <= timezone.now():
            until = None
        numbers = [number] if until is None else [number, number - 1]
        keys = dict.fromkeys((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))
        current, *earlier = [self._derive_secret(key, one) for one in numbers for key in keys]
        return WebhookSecrets(current, earlier, until, number)

    def change_secret(self, *, number: int) -> bool:
        """Take another secret from now on. The one of before counts for ``OVERLAP``, none that was before that.

        ``number`` is that of the last change that whoever asks knows of. False, and nothing is changed, if there was
        another one since: two changes in a row would leave receivers nothing that they know.
        """
        now = timezone.now()
        if number == 0:
            change = {"number": 1, "changed_at": now}
            return WebhookSecretChange.objects.get_or_create(signer=self.name, defaults=change)[1]
        known = WebhookSecretChange.objects.filter(signer=self.name, number=number)
        return known.update(number=F("number") + 1, changed_at=now) == 1

    def derive_secret(self, number: int) -> str:
        """The secret of after that many changes, whether it counts or not."""
        return self._derive_secret(settings.SECRET_KEY, number)

    def _derive_secret(self, key: str, number: int) -> str:
        value = f"{self.name}, change {number}" if number else self.name
        derived = salted_hmac(_CONTEXT, value, secret=key, algorithm="sha256").digest()
        return _PREFIX + base64.b64encode(derived).decode("ascii")
