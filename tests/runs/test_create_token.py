"""``manage.py create_token``: a token for a script that nobody has to open a browser for."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from runs.models import ApiToken
from tests.api.asking import Script, make_token, read_problem
from tests.databases import name_test_database
from tests.site.test_settings import start_command


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


def create_token(*arguments: str) -> tuple[str, str]:
    """What the command writes to stdout and to stderr."""
    out, err = StringIO(), StringIO()
    call_command("create_token", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


class TestMaking:
    def test_the_token_alone_is_on_stdout_and_lets_its_user_in(self, ada: User) -> None:
        out, err = create_token("ada", "--name", "CI", "--scope", "run")
        token = out.removesuffix("\n")
        assert token.split() == [token]
        assert read_problem(Script(token).get("nowhere"))["status"] == 404
        assert err.startswith("The token “CI” of ada (run) expires on ")
        assert token not in err

    @pytest.mark.parametrize(("expires", "days"), [(None, 90), ("7d", 7), ("3650d", 3650)])
    def test_it_lasts_as_many_days_as_are_given(self, ada: User, expires: str | None, days: int) -> None:
        create_token("ada", "--name", "CI", "--scope", "read", *(["--expires", expires] if expires else []))
        row = ApiToken.objects.get()
        assert row.expiry is not None
        assert abs(row.expiry - timezone.now() - timedelta(days=days)) < timedelta(minutes=5)

    def test_it_may_last_for_ever(self, ada: User) -> None:
        _, err = create_token("ada", "--name", "CI", "--scope", "edit", "--expires", "never")
        assert ApiToken.objects.get().expiry is None
        assert "(edit) never expires" in err

    def test_an_installation_may_bound_how_long_it_lasts(self, ada: User, settings: Any) -> None:
        settings.TOOLFLOW_TOKEN_MAX_DAYS = 45
        create_token("ada", "--name", "CI", "--scope", "read")
        row = ApiToken.objects.get()
        assert row.expiry is not None and round((row.expiry - row.created) / timedelta(days=1), 2) == 45
        for expires, sentence in (
            ("never", "A token lasts 45 days at most in this installation; choose an earlier end."),
            ("46d", "A token lasts 45 days at most in this installation; choose an earlier end."),
            ("soon", "“soon” is no expiry: write “45d” for 45 days, the longest that is allowed here."),
        ):
            with pytest.raises(CommandError, match=re.escape(sentence)):
                create_token("ada", "--name", "CI 2", "--scope", "read", f"--expires={expires}")

    @pytest.mark.parametrize(
        ("user", "options", "sentence"),
        [
            ("adda", {}, "There is no user “adda”."),
            ("gone", {}, "The account “gone” is closed: a token of it would let nobody in."),
            ("ada", {"--scope": "all"}, "“all” is no scope; known are “read”, “run”, “edit”."),
            ("ada", {"--expires": "tomorrow"}, "“tomorrow” is no expiry: write “90d” for 90 days"),
            ("ada", {"--expires": "3651d"}, "“3651d” is no expiry"),
            ("ada", {"--expires": "-1d"}, "“-1d” is no expiry"),
            ("ada", {"--expires": "²d"}, "“²d” is no expiry"),
            ("ada", {"--name": ""}, "A token needs a name"),
            ("ada", {"--name": "a\udcffb"}, "The name of a token can’t have characters that nobody sees."),
            ("ada", {"--name": "taken"}, "There is an active token “taken” already"),
        ],
    )
    def test_what_makes_no_token_is_one_sentence(
        self, ada: User, user: str, options: dict[str, str], sentence: str
    ) -> None:
        User.objects.create_user("gone", is_active=False)
        make_token(ada, name="taken")
        given = {"--name": "CI", "--scope": "read", **options}
        with pytest.raises(CommandError) as refusal:
            create_token(user, *(f"{option}={value}" for option, value in given.items()))
        assert str(refusal.value).startswith(sentence)
        assert "\n" not in str(refusal.value)
        assert ApiToken.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_unknown_user_ends_it_with_exit_status_1_and_nothing_on_stdout(tmp_path: Path) -> None:
    arguments = ("create_token", "ada", "--name=CI", "--scope=read")
    done = start_command(*arguments, data_dir=tmp_path, DATABASE_URL=name_test_database())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("There is no user “ada”.\n")
    assert "Traceback" not in done.stderr
