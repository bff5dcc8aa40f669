"""Static files as browsers ask for them: whole, in parts, or only if they have changed."""

from __future__ import annotations

from pathlib import Path

import httpx2
from django.conf import settings
from django.test import Client

from tests.serving import handling_requests

ADDRESS = "/static/toolflow/js/times.js"
CONTENT = (Path(settings.BASE_DIR) / "static/toolflow/js/times.js").read_bytes()


def test_a_file_comes_whole_and_with_its_length(client: Client) -> None:
    answer = client.get(ADDRESS)
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer["Content-Type"].startswith("text/javascript")
    assert answer["Content-Length"] == str(len(CONTENT))


def test_its_headers_alone_tell_the_length(client: Client) -> None:
    answer = client.head(ADDRESS)
    assert (answer.status_code, answer.content, answer["Content-Length"]) == (200, b"", str(len(CONTENT)))


def test_a_part_is_that_part(client: Client) -> None:
    answer = client.get(ADDRESS, headers={"range": "bytes=10-19"})
    assert (answer.status_code, answer.content) == (206, CONTENT[10:20])
    assert (answer["Content-Range"], answer["Content-Length"]) == (f"bytes 10-19/{len(CONTENT)}", "10")


def test_who_has_it_gets_nothing_but_that(client: Client) -> None:
    known = client.get(ADDRESS)["ETag"]
    answer = client.get(ADDRESS, headers={"if-none-match": known})
    assert (answer.status_code, answer.content) == (304, b"")
    assert "Content-Type" not in answer


def test_nothing_can_be_sent_there(client: Client) -> None:
    answer = client.post(ADDRESS)
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")


async def test_an_asynchronous_server_is_not_warned_of_them() -> None:
    """Warnings are errors here: Django’s own says of a file that it is read as a whole, however large it is."""
    with handling_requests() as application:
        transport = httpx2.ASGITransport(application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as browser:
            answer = await browser.get(ADDRESS)
    assert (answer.status_code, answer.content) == (200, CONTENT)
