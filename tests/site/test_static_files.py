"""Static files as browsers ask for them: whole, in parts, or only if they have changed."""

from __future__ import annotations

from pathlib import Path

import httpx2
from django.conf import settings
from django.test import Client

from tests.serving import handling_requests

ADDRESS = "/static/toolflow/js/times.js"
CONTENT = (Path(settings.BASE_DIR) / "static/toolflow/js/times.js").read_bytes()


def test_a_file_comes_whole_or_in_parts_or_not_again(client: Client) -> None:
    whole = client.get(ADDRESS)
    assert (whole.status_code, whole.content, whole["Content-Length"]) == (200, CONTENT, str(len(CONTENT)))
    assert whole["Content-Type"].startswith("text/javascript")
    head = client.head(ADDRESS)
    assert (head.status_code, head.content, head["Content-Length"]) == (200, b"", str(len(CONTENT)))
    part = client.get(ADDRESS, headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content, part["Content-Length"]) == (206, CONTENT[10:20], "10")
    known = client.get(ADDRESS, headers={"if-none-match": whole["ETag"]})
    assert (known.status_code, known.content, "Content-Type" in known) == (304, b"", False)
    sent = client.post(ADDRESS)
    assert (sent.status_code, sent["Allow"]) == (405, "GET, HEAD")


async def test_an_asynchronous_server_is_not_warned_of_them() -> None:
    """Warnings are errors here: Django’s own says of a file that it is read as a whole, however large it is."""
    with handling_requests() as application:
        transport = httpx2.ASGITransport(application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as browser:
            answer = await browser.get(ADDRESS)
    assert (answer.status_code, answer.content) == (200, CONTENT)
