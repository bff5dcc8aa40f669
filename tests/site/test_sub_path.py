"""ToolFlow below a path of its host: no page, static file or answer leads out of it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_script_prefix, resolve, reverse, set_script_prefix

from flows.examples import load_examples
from tests.runs.pages.history_builders import make_retried_run
from tests.site.test_settings import read_settings

pytestmark = pytest.mark.django_db

PREFIX = "/toolflow"
ADDRESSES = {"href", "src", "action", "formaction", "hx-get", "hx-post", "hx-delete", "data-address", "data-script"}


@pytest.fixture(autouse=True)
def _below_a_path(settings: Any, tmp_path: Path) -> Iterator[None]:
    found = read_settings(tmp_path, TOOLFLOW_URL_PREFIX=PREFIX)
    for name in ("FORCE_SCRIPT_NAME", "STATIC_URL", "LOGIN_REDIRECT_URL", "SESSION_COOKIE_PATH", "CSRF_COOKIE_PATH"):
        setattr(settings, name, found[name])
    before = get_script_prefix()
    # As the ASGI application does for each request.
    set_script_prefix(f"{PREFIX}/")
    yield
    set_script_prefix(before)


@pytest.fixture
def ada(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


def find_links(page: str) -> Iterator[tuple[str, str]]:
    """What a page leads to or loads, by attribute."""
    for name, text in re.findall(r'\s([\w-]+)="([^"]+)"', page):
        value = html.unescape(text)
        is_address = name in ADDRESSES or (name.startswith("data-") and value.startswith("/"))
        if is_address and not value.startswith(("#", "data:")):
            yield name, value


def ask(client: Client, path: str) -> Any:
    """The answer to the address that a browser would ask for."""
    return client.get(path.removeprefix(PREFIX), headers={"accept": "text/html"})


def test_no_page_leads_out_of_the_path(ada: Client) -> None:
    load_examples()
    run = make_retried_run()
    wanted = [f"{PREFIX}/", reverse("runs:page", args=[run.pk]), reverse("api:list_runs"), reverse("admin:index")]
    seen: set[str] = set()
    strays: set[tuple[str, str, str]] = set()
    while wanted:
        page = wanted.pop()
        path = urlsplit(page).path
        view = resolve(path.removeprefix(PREFIX)).view_name
        if view in seen or "logout" in view or path.endswith(".schema.json"):
            continue
        seen.add(view)
        answer = ask(ada, page)
        if answer.status_code == 302:
            wanted.append(urljoin(page, answer["Location"]))
            continue
        if "html" not in answer.get("Content-Type", "") or answer.streaming:
            continue
        for where, value in find_links(answer.content.decode()):
            address = urlsplit(urljoin(f"http://testserver{page}", value))
            if address.netloc != "testserver":
                continue
            if not address.path.startswith(f"{PREFIX}/"):
                strays.add((page, where, value))
            elif where == "href" and not address.path.startswith(f"{PREFIX}/static/"):
                wanted.append(address.path + (f"?{address.query}" if address.query else ""))
    assert strays == set()
    assert len(seen) > 40


def test_signing_in_leads_back_to_the_page_and_its_cookie_stays_in_the_path(client: Client) -> None:
    User.objects.create_superuser("ada", password="secret")
    answer = client.get("/runs/")
    assert answer["Location"] == f"{PREFIX}/accounts/login/?next={PREFIX}/runs/"
    answer = client.post("/accounts/login/", {"username": "ada", "password": "secret"})
    assert answer["Location"] == f"{PREFIX}/"
    assert answer.cookies["sessionid"]["path"] == f"{PREFIX}/"


def test_answers_of_the_api_name_addresses_within_the_path(ada: Client) -> None:
    run = make_retried_run()
    document = ada.get(f"/api/v1/runs/{run.pk}").json()
    assert f"http://testserver{PREFIX}/api/v1/runs/{run.pk}" in str(document)
    assert "testserver/api" not in str(document) and "testserver/runs" not in str(document)
    assert ada.get("/api/v1/schema", headers={"accept": "application/json"}).json()["servers"] == [
        {"url": f"{PREFIX}/api/v1"}
    ]


def test_commands_to_copy_hold_the_path(ada: Client) -> None:
    run = make_retried_run()
    assert f"http://testserver{PREFIX}/api/v1/runs" in ask(ada, f"{PREFIX}/runs/{run.pk}/").content.decode()
