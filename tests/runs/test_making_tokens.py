"""Tokens that are made at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.db import connection

from runs.models import ApiToken
from runs.tokens import TokenRefusedError, make_token

SENT = 4


@pytest.mark.django_db(transaction=True)
def test_a_form_that_is_sent_several_times_at_once_makes_one_token() -> None:
    """The others would let somebody in, and nobody would have seen them."""
    ada = User.objects.create_user("ada")

    def make(_: int) -> str:
        try:
            return make_token(user=ada, name="CI", scope="read", lifetime=None)[1]
        except TokenRefusedError as refusal:
            return str(refusal)
        finally:
            connection.close()

    with ThreadPoolExecutor(SENT) as pool:
        found = list(pool.map(make, range(SENT)))
    assert sum(one.startswith("tf_") for one in found) == 1, found
    assert sum("There is an active token “CI” already" in one for one in found) == SENT - 1
    assert ApiToken.objects.count() == 1
