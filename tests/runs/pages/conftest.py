"""Who opens the pages."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.runs.pages.reading import sign_in


@pytest.fixture
def viewer(client: Client, db: None) -> Client:
    """A browser in which a user is signed in who may see runs and nothing else."""
    return sign_in(client, "view_run")


@pytest.fixture
def operator(client: Client, db: None) -> Client:
    """A browser in which a user is signed in who may see, start and cancel runs."""
    return sign_in(client, "view_run", "add_run", "change_run")
