"""``manage.py webhook_secret``: by what receivers of webhooks check that a message is ours."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from flows.models import Flow
from runs.management.arguments import fetch_flow
from runs.webhooks.secrets import change_secret, find_signer


class Command(BaseCommand):
    help = (
        "Print the secret by which receivers check the signature of webhooks: that of the installation, for addresses "
        "given with runs, or that of a flow, for the flow's own address."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flow", metavar="NAME", help="the secret of this flow")
        parser.add_argument(
            "--change", action="store_true", help="take another one first; the previous one counts for seven days more"
        )
        parser.add_argument(
            "--again",
            action="store_true",
            help="with --change: also where the secret from before the last change still counts, which ends at once",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        flow = fetch_flow(options["flow"])
        if options["change"]:
            _change(flow, is_meant=options["again"])
        elif options["again"]:
            raise CommandError("“--again” goes with “--change” only.")
        secrets = find_signer(flow).read_secrets()
        self.stdout.write(secrets.current)
        if until := secrets.changes_until:
            self.stderr.write(f"Messages are signed with the previous one, too, until {until:%Y-%m-%d %H:%M} UTC.")


def _change(flow: Flow | None, *, is_meant: bool) -> None:
    """Take another secret; ``is_meant`` if the one from before the last change may end at once."""
    secrets = find_signer(flow).read_secrets()
    if not is_meant and (until := secrets.changes_until):
        raise CommandError(
            f"It was changed recently: the previous secret counts until {until:%Y-%m-%d %H:%M} UTC, and another "
            "change ends it at once. Add --again if that is meant."
        )
    if not change_secret(flow, number=secrets.number):
        raise CommandError("Another process changed it in this moment; it was not changed again.")
