"""``manage.py create_token``, and tokens that are created at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from runs.models import ApiToken
from runs.tokens import TokenRefusedError, make_token
from tests.api.asking import Script, read_problem

AT_ONCE = 4


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


def create_token(user: str = "ada", **options: str) -> tuple[str, str]:
    """What the command writes to stdout and to stderr."""
    out, err = StringIO(), StringIO()
    given = {"name": "CI", "scope": "read", **options}
    call_command("create_token", user, *(f"--{name}={text}" for name, text in given.items()), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_only_the_token_is_on_stdout_and_it_is_accepted(ada: User) -> None:
    out, err = create_token(scope="run")
    token = out.removesuffix("\n")
    assert token.split() == [token]
    assert read_problem(Script(token).get("nowhere"))["status"] == 404
    assert "“CI” of ada (run) expires on " in err and token not in err


@pytest.mark.parametrize(
    ("options", "most", "days"),
    [({}, None, 90), ({"expires": "7d"}, None, 7), ({"expires": "never"}, None, None), ({}, 45, 45)],
)
def test_it_lasts_for_the_given_days_or_the_longest_time_allowed(
    ada: User, settings: Any, options: dict[str, str], most: int | None, days: int | None
) -> None:
    settings.TOOLFLOW_TOKEN_MAX_DAYS = most
    create_token(**options)
    expiry = ApiToken.objects.get().expiry
    if days is None:
        assert expiry is None
    else:
        assert expiry is not None
        assert abs(expiry - timezone.now() - timedelta(days=days)) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("user", "options", "most"),
    [
        ("adda", {}, None),
        ("gone", {}, None),
        ("ada", {"scope": "all"}, None),
        *(("ada", {"expires": text}, None) for text in ("tomorrow", "3651d", "-1d", "²d")),
        *(("ada", {"expires": text}, 45) for text in ("never", "46d")),
        *(("ada", {"name": name}, None) for name in ("", "a\udcffb", "taken")),
    ],
)
def test_what_is_refused_creates_no_token(
    ada: User, settings: Any, user: str, options: dict[str, str], most: int | None
) -> None:
    settings.TOOLFLOW_TOKEN_MAX_DAYS = most
    User.objects.create_user("gone", is_active=False)
    make_token(user=ada, name="taken", scope="read", lifetime=timedelta(days=1))
    with pytest.raises(CommandError) as refusal:
        create_token(user, **options)
    assert refusal.value.returncode == 1
    assert ApiToken.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_form_that_is_sent_several_times_at_once_creates_one_token() -> None:
    """The user would have seen only one of them."""
    ada = User.objects.create_user("ada")

    def create(_: int) -> str:
        try:
            return make_token(user=ada, name="CI", scope="read", lifetime=None)[1]
        except TokenRefusedError as refusal:
            return refusal.field
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = sorted(pool.map(create, range(AT_ONCE)))
    assert found[:-1] == ["name"] * (AT_ONCE - 1) and found[-1].startswith("tf_")
    assert ApiToken.objects.count() == 1
