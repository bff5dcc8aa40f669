"""``manage.py webhook_secret``: by what receivers of webhooks check that a message is ours."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from flows.models import Flow
from runs.management.reading import find_flow
from runs.webhooks.secrets import change_secret, find_signer


class Command(BaseCommand):
    help = (
        "Print the secret by which receivers check the signature of webhooks: that of a flow for the address of the "
        "flow, that of a user for the addresses of runs that this user started."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--change", action="store_true", help="take another one first; the one of before counts for seven days more"
        )
        parser.add_argument(
            "--again",
            action="store_true",
            help="with --change: also where the secret from before the last change still counts, which ends at once",
        )
        whose = parser.add_mutually_exclusive_group(required=True)
        whose.add_argument("--flow", metavar="NAME", help="a flow")
        whose.add_argument("--user", metavar="NAME", help="a user")
        whose.add_argument(
            "--nobody", action="store_true", help="for runs that no user started, or one who has no account any more"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        owner = _find_owner(options["flow"], options["user"])
        if options["change"]:
            _change(owner, is_meant=options["again"])
        elif options["again"]:
            raise CommandError("“--again” goes with “--change” only.")
        secrets = find_signer(owner).read_secrets()
        self.stdout.write(secrets.current)
        if until := secrets.changes_until:
            self.stderr.write(f"Messages are signed with the one of before, too, until {until:%Y-%m-%d %H:%M} UTC.")


def _change(owner: Flow | User | None, *, is_meant: bool) -> None:
    """Take another secret; ``is_meant`` if the one from before the last change may end at once."""
    secrets = find_signer(owner).read_secrets()
    if not is_meant and (until := secrets.changes_until):
        raise CommandError(
            f"It was changed lately already: the secret of before counts until {until:%Y-%m-%d %H:%M} UTC, and another "
            "change ends it at once. Add --again if that is meant."
        )
    if not change_secret(owner, number=secrets.number):
        raise CommandError("Somebody else changed it in this moment; it was not changed once more.")


def _find_owner(flow_name: str | None, user_name: str | None) -> Flow | User | None:
    """Whose secret is asked for; None for that of nobody."""
    if flow := find_flow(flow_name):
        return flow
    if user_name is None:
        return None
    user = User.objects.filter(username=user_name).first()
    if user is None:
        raise CommandError(f"There is no user “{user_name}”.")
    return user
