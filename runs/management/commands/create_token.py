"""``manage.py create_token``: a token for a script, from the terminal."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from runs.models import TokenScope
from runs.tokens import TokenRefusedError, create_token, find_default_lifetime, list_lifetimes, parse_lifetime


class Command(BaseCommand):
    help = (
        "Create an API token for a user and write only the token to stdout: it is not shown again. It can do what its "
        "scope says and never more than its user. Exit status: 0 created, 1 refused, 2 wrong use."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", metavar="USER", help="user name of its owner")
        parser.add_argument("--name", required=True, help="what will use it")
        scopes = ", ".join(TokenScope.values)
        parser.add_argument("--scope", required=True, metavar="SCOPE", help=f"{scopes}; each includes those before it")
        parser.add_argument(
            "--expires",
            default=find_default_lifetime(),
            metavar="DAYS",
            help=f"after how many days, such as {', '.join(list_lifetimes())} (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"No user is called “{options['user']}”.")
        if not user.is_active:
            raise CommandError(f"The account “{user}” is closed: its tokens are not accepted.")
        try:
            lifetime = parse_lifetime(options["expires"])
            row, token = create_token(user=user, name=options["name"], scope=options["scope"], lifetime=lifetime)
        except TokenRefusedError as refusal:
            raise CommandError(str(refusal)) from refusal
        end = "never expires" if row.expiry is None else f"expires on {row.expiry:%Y-%m-%d}"
        self.stderr.write(
            f"The token “{row.name}” of {user} ({row.scope}) {end}. Store it now: it can't be shown again."
        )
        self.stdout.write(token)
