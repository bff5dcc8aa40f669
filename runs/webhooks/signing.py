"""By what receivers know that a message is ours: the headers of the Standard Webhooks scheme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from standardwebhooks import Webhook

from flows.webhook_secret import WebhookSigner
from runs.models import Run, WebhookDelivery
from runs.webhooks.making import cut_address


def find_signers(delivery: WebhookDelivery) -> Sequence[WebhookSigner]:
    """In whose name a delivery is signed: that of the installation for the run's own address, that of the flow for all
    others; that of both for an address that both have.
    """
    row = Run.objects.filter(pk=delivery.run_id).values_list("webhook_url", "flow_id", "flow__webhook_url")
    own, flow_id, of_flow = row.get()
    signers = []
    if is_own := bool(own) and cut_address(own) == delivery.url:
        signers.append(WebhookSigner.of_installation())
    # What is neither was the flow's address when the run ended.
    if not is_own or cut_address(of_flow) == delivery.url:
        signers.append(WebhookSigner.of_flow(flow_id))
    return signers


def sign(signers: Iterable[WebhookSigner], *, message_id: str, at: datetime, body: str) -> str:
    """The header ``webhook-signature``: one signature for each secret, so that receivers may change over in peace.

    ``at`` is in UTC.
    """
    held = [signer.read_secrets() for signer in signers]
    secrets = [secret for one in held for secret in (one.current, *one.earlier)]
    return " ".join(Webhook(secret).sign(message_id, at, body) for secret in secrets)


def build_headers(*, message_id: str, at: datetime, signature: str) -> dict[str, str]:
    """The headers of a message that was signed at that moment."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }
