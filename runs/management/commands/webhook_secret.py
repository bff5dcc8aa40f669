"""``manage.py webhook_secret``: what receivers verify messages to addresses given with runs by."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from runs.webhooks.messages import (
    RotatedRecentlyError,
    derive_secret,
    fetch_installation_secret,
    find_overlap_end,
    rotate_secret,
)


class Command(BaseCommand):
    help = (
        "Print the secret of the installation, by which receivers check the signature of webhooks to addresses given "
        "with runs. Endpoints have secrets of their own, which the admin and the API show when they are created."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--change", action="store_true", help="rotate it first; the previous one stays valid for 7 days"
        )
        parser.add_argument(
            "--again",
            action="store_true",
            help="with --change: also while the secret from before the last change counts, which ends at once",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        signer = fetch_installation_secret()
        if options["again"] and not options["change"]:
            raise CommandError("“--again” goes with “--change” only.")
        if options["change"]:
            try:
                rotate_secret(signer, ends_previous=options["again"])
            except RotatedRecentlyError as error:
                raise CommandError(f"{error} Use --again to do so.") from error
        self.stdout.write(derive_secret(signer))
        if until := find_overlap_end(signer):
            self.stderr.write(f"Messages are signed with the previous one, too, until {until:%Y-%m-%d %H:%M} UTC.")
