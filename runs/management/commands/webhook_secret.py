"""``manage.py webhook_secret``: by what receivers of webhooks check that a message is ours."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from flows.webhook_secret import WebhookSigner
from runs.management.reading import find_flow


class Command(BaseCommand):
    help = (
        "Print the secret by which receivers check the signature of webhooks: that of a flow for the address of the "
        "flow, that of a user for the addresses of runs that this user started."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        whose = parser.add_mutually_exclusive_group(required=True)
        whose.add_argument("--flow", metavar="NAME", help="a flow")
        whose.add_argument("--user", metavar="NAME", help="a user")
        whose.add_argument(
            "--nobody", action="store_true", help="for runs that no user started, or one who has no account any more"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(_find_signer(options["flow"], options["user"]).secret)


def _find_signer(flow_name: str | None, user_name: str | None) -> WebhookSigner:
    if flow := find_flow(flow_name):
        return WebhookSigner.of_flow(flow.pk)
    if user_name is None:
        return WebhookSigner.of_user(None)
    user = User.objects.filter(username=user_name).first()
    if user is None:
        raise CommandError(f"There is no user “{user_name}”.")
    return WebhookSigner.of_user(user.pk)
