"""What the content security policy forbids is in no page; browsers say so of each page in tests/browser."""

from __future__ import annotations

from contextlib import closing
from html.parser import HTMLParser

from django.conf import settings
from django.test import Client


class InlineFinder(HTMLParser):
    """Collects what the policy forbids: scripts and styles in the page itself, and handlers in attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        is_data = (values.get("type") or "").endswith("json")
        if tag == "style" or (tag == "script" and "src" not in values and not is_data):
            self.found.append(self.get_starttag_text() or tag)
        self.found += [f"{tag} {name}" for name in values if name == "style" or name.startswith("on")]


def test_static_files_are_served_without_collecting_them_first(db: None, client: Client) -> None:
    assert settings.DEBUG is False
    for address in ("admin/js/theme.js", "django_htmx/htmx-2.min.js"):
        with closing(client.get(f"/static/{address}")) as answer:
            assert (answer.status_code, len(b"".join(answer)) > 500) == (200, True), address
