"""What the tests of the flow editor share."""

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.fixture
def editor(client: Client, db: None) -> Client:
    """A browser in which a user is signed in who may do everything."""
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


@pytest.fixture
def colleague(db: None) -> Client:
    """The browser of another user who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("bob", password="secret"))
    return client
