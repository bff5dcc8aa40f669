"""``manage.py webhook_secret``: by what receivers of webhooks check that a message is ours."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from runs.webhooks.signing import list_secrets, write_secret

KEY_LENGTH = 32
"""Bytes of a new secret."""


class Command(BaseCommand):
    help = (
        "Print the secret by which receivers check the signature of webhooks; where several are set, each in a line. "
        "With --new, print a new one for TOOLFLOW_WEBHOOK_SECRET, and change nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--new", action="store_true", help="print a new, random secret instead")

    def handle(self, *args: Any, **options: Any) -> None:
        found = [write_secret(secrets.token_bytes(KEY_LENGTH))] if options["new"] else list_secrets()
        self.stdout.write("\n".join(found))
