"""The reference page: everything that the OpenAPI document says, for people."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils.html import escape

from runs.api.documentation import build_schema
from runs.api.reference import NULL
from tests.api.asking import make_user

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


@pytest.fixture
def page(groups: None) -> str:
    client = Client()
    client.force_login(make_user("nobody"))
    answer = client.get("/api/v1/docs")
    assert answer.status_code == 200
    return answer.content.decode()


def test_every_operation_with_its_parameters_is_on_it(page: str) -> None:
    for path, methods in build_schema()["paths"].items():
        for method, operation in methods.items():
            name = operation["operationId"]
            start = page.index(f'id="{name}"')
            entry = page[start : page.find('<details class="api-entry">', start)]
            assert f'">{method.upper()}</span><code class="path">{escape(path)}</code>' in page
            for parameter in operation.get("parameters", ()):
                assert f"<code>{parameter['name']}</code>" in entry, (name, parameter["name"])


def test_every_object_with_its_fields_is_on_it(page: str) -> None:
    for name, shape in build_schema()["components"]["schemas"].items():
        if name == NULL:
            continue
        start = page.index(f'id="object-{name}"')
        entry = page[start : page.find('<details class="api-entry">', start)]
        assert all(f"<code>{field}</code>" in entry for field in shape.get("properties", {})), name


def test_links_on_it_lead_somewhere(page: str) -> None:
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets - set(re.findall(r'id="([^"]+)"', page)) == set()


def test_commands_name_this_site_and_hold_bodies_that_shells_understand(page: str) -> None:
    assert "http://testserver/api/v1/" in page
    assert "-d &#x27;{" in page


def test_nothing_on_it_comes_from_elsewhere_or_stands_in_line(page: str) -> None:
    assert "<style" not in page and " style=" not in page
    assert all('src="/static/' in script for script in re.findall(r"<script[^>]*>", page))
