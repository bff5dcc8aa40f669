"""What tests of webhooks share."""

from tests.runs.webhooks.receiver import receiver

__all__ = ["receiver"]
