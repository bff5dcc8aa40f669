"""``manage.py create_token``: a token for a script, from the terminal."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from runs.models import TokenScope
from runs.tokens import TokenRefusedError, find_default_lifetime, make_token, read_lifetime, say_days


class Command(BaseCommand):
    help = (
        "Make an API token for a user and write it, and nothing else, to stdout: it is not shown again. It can do what "
        "its scope says and never more than its user. Exit status: 0 made, 1 refused, 2 wrong use."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", metavar="USER", help="whose token it is, by user name")
        parser.add_argument("--name", required=True, help="what will use it")
        scopes = ", ".join(TokenScope.values)
        parser.add_argument("--scope", required=True, metavar="SCOPE", help=f"{scopes}; each holds those before it")
        most = settings.TOOLFLOW_TOKEN_MAX_DAYS
        limit = "or never" if most is None else f"{say_days(most)} at most"
        usual = find_default_lifetime()
        parser.add_argument(
            "--expires",
            default=usual,
            metavar="DAYS",
            help=f"after how many days, such as 30d, {limit} (default: {usual})",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user “{options['user']}”.")
        if not user.is_active:
            raise CommandError(f"The account “{user}” is closed: a token of it would let nobody in.")
        try:
            row, token = make_token(
                user=user, name=options["name"], scope=options["scope"], lifetime=read_lifetime(options["expires"])
            )
        except TokenRefusedError as refusal:
            raise CommandError(str(refusal)) from refusal
        ends = "never expires" if row.expiry is None else f"expires on {row.expiry:%Y-%m-%d}"
        self.stderr.write(f"The token “{row.name}” of {user} ({row.scope}) {ends}. Keep it: it is not shown again.")
        self.stdout.write(token)
