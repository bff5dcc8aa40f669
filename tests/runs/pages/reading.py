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
THIN = "\N{NARROW NO-BREAK SPACE}"


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


def read_plain(client: Client, address: str) -> str:
    """The words of the page at an address, with plain spaces in numbers."""
    return read_words(get_page(client, address)).replace(THIN, " ")


def read_poller(page: str) -> str:
    """Where an open page asks for what is new."""
    found = re.search(r'hx-get="([^"]+/live[^"]*)"', page)
    assert found is not None
    return unescape(found[1])


def find_selected(page: str) -> str:
    """The entry of the outline that is selected, by its id."""
    (found,) = re.findall(r'<a class="entry"[^>]*? id="(\w+)"[^>]* aria-current="true"', page)
    return str(found)


def read_outline(page: str) -> list[tuple[str, str]]:
    """The entries of the outline that can be selected: where they lead, and their words."""
    outline = page.partition('id="outline-list"')[2].partition("</nav>")[0]
    found = re.findall(r'<a class="entry"[^>]* data-entry href="([^"]+)"[^>]*>(.*?)</a>', outline, re.DOTALL)
    return [(unescape(href), read_words(words)) for href, words in found]


def read_table(page: str, caption: str) -> list[list[str]]:
    """The cells of the table with that caption, row by row; its head is the first."""
    table = page.partition(f"{caption}</caption>")[2].partition("</table>")[0]
    return [
        [read_words(cell) for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row)] for row in table.split("</tr>")[:-1]
    ]


def run_address(run: Run) -> str:
    return f"/runs/{run.pk}/"


def attempt_address(run: Run, step: int, number: int) -> str:
    return f"{run_address(run)}steps/{step}/attempts/{number}/"


def count_queries(client: Client, address: str) -> int:
    client.get(address)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200
    return len(queries)
