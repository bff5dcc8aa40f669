"""The reference page: Swagger UI, served by the installation alone."""

from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from tests.api.asking import make_user
from tests.site.test_content_security import POLICY

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/docs"


@pytest.fixture
def reader(groups: None) -> Client:
    """Somebody who is signed in and may do nothing else."""
    client = Client()
    client.force_login(make_user("nobody"))
    return client


def test_its_policy_allows_styles_in_line_and_nothing_else_more(reader: Client) -> None:
    policy = set(reader.get(ADDRESS)["Content-Security-Policy"].split("; "))
    assert policy ^ POLICY == {"style-src 'self'", "style-src 'self' 'unsafe-inline'"}
    assert set(reader.get("/api/v1/schema")["Content-Security-Policy"].split("; ")) == POLICY


def test_all_that_it_needs_comes_from_this_installation(reader: Client) -> None:
    page = reader.get(ADDRESS).content.decode()
    assert re.findall(r"<script>|<script [^>]*>", page) == re.findall(r'<script src="/[^"/][^"]*">', page)
    *static, script = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert (len(static), script) == (4, f"{ADDRESS}?script=")
    for address in static:
        assert finders.find(address.removeprefix("/static/")), address
    assert 'url: "/api/v1/schema"' in reader.get(script).content.decode()
