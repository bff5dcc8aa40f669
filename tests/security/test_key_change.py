"""Another secret key: what of before still counts, and what doesn't depend on it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.tokens import make_token
from runs.webhooks.secrets import derive_secret, fetch_installation_secret, list_secrets

pytestmark = pytest.mark.django_db

OLD, NEW = "an-old-key-0123456789-abcdefghijklmnopqrstuvwxyz", "a-new-key-zyxwvutsrqponmlkjihgfedcba-9876543210"


@pytest.fixture
def ada(settings: Any) -> User:
    settings.SECRET_KEY = OLD
    return User.objects.create_user("ada", password="correct horse")


@pytest.fixture
def signed_in(ada: User) -> Client:
    client = Client()
    client.post("/accounts/login/", {"username": "ada", "password": "correct horse"})
    assert client.get("/account/").status_code == 200
    return client


def test_nobody_is_signed_out_while_the_old_key_still_counts(signed_in: Client, settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    assert signed_in.get("/account/").status_code == 200
    # Whoever came by meanwhile stays when it is taken out.
    settings.SECRET_KEY_FALLBACKS = []
    assert signed_in.get("/account/").status_code == 200


def test_everybody_signs_in_anew_where_it_doesnt(signed_in: Client, settings: Any) -> None:
    settings.SECRET_KEY = NEW
    assert signed_in.get("/account/").status_code == 302


def test_api_tokens_dont_depend_on_the_key(ada: User, settings: Any) -> None:
    _, token = make_token(user=ada, name="nightly", scope="read", lifetime=None)
    settings.SECRET_KEY = NEW
    client = Client(headers={"Authorization": f"Bearer {token}"})
    # Known, and let see what this account may: nothing.
    assert client.get("/api/v1/runs").status_code == 403


def test_webhooks_are_signed_with_both_while_the_old_key_still_counts(settings: Any) -> None:
    settings.SECRET_KEY, signer = OLD, fetch_installation_secret()
    before = derive_secret(signer)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    assert list_secrets(signer) == [derive_secret(signer), before]
    settings.SECRET_KEY_FALLBACKS = []
    assert len(list_secrets(signer)) == 1
