"""Opening pages as a user, and reading them as one."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.models import Run
from tests.site.test_content_security import InlineFinder

HTMX = {"HX-Request": "true"}


def sign_in(client: Client, *permissions: str) -> Client:
    """Sign in as a user who has just these permissions."""
    user = User.objects.create_user("ada", password="secret")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="runs", codename__in=permissions))
    client.force_login(user)
    return client


def get_page(client: Client, address: str, **headers: Any) -> str:
    """The page as text. It must be found, and hold nothing that the content security policy forbids."""
    answer = client.get(address, headers=headers.get("headers"))
    assert answer.status_code == 200
    page = answer.content.decode()
    assert InlineFinder(page).found == []
    return page


def read_words(page: str) -> str:
    """What a reader sees: the page without tags, white space folded."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def read_table(page: str, caption: str) -> list[list[str]]:
    """The cells of the table with that caption, row by row; its head is the first."""
    table = page.partition(f"{caption}</caption>")[2].partition("</table>")[0]
    return [
        [read_words(cell) for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row)] for row in table.split("</tr>")[:-1]
    ]


def run_address(run: Run) -> str:
    return f"/runs/{run.pk}/"


def count_queries(client: Client, address: str) -> int:
    client.get(address)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert client.get(address).status_code == 200
    return len(queries)
