"""The guides inside the pages: every one is rendered, and its links and pictures lead somewhere."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest
from django.conf import settings
from django.test import Client

from tests.runs.pages.reading import get_page

pytestmark = pytest.mark.django_db

NAMES = sorted(path.stem for path in settings.GUIDES_DIR.glob("*.md"))


def test_links_between_guides_and_pictures_hold_and_each_guide_lists_all(viewer: Client) -> None:
    addresses = ["/guides/" if name == "index" else f"/guides/{name}/" for name in NAMES]
    pages = {address: get_page(viewer, address) for address in addresses}
    broken = []
    for address, page in pages.items():
        text = page.partition('<article class="guide card">')[2].partition("</article>")[0]
        assert "<h1" in text and "<script" not in text
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, _, anchor = urljoin(address, unescape(link)).partition("#")
            if "://" in target:
                continue
            if target.startswith("/guides/images/"):
                is_there = (settings.GUIDES_DIR / "images" / Path(target).name).is_file()
            else:
                is_there = target in pages and (not anchor or f'id="{anchor}"' in pages[target])
            if not is_there:
                broken.append(f"{address}: {link}")
        listed = re.findall(r'href="(/guides/[^"]*)"( aria-current="page")?>', page.partition("<article")[0])
        assert {url for url, _ in listed} == set(pages) and (address, ' aria-current="page"') in listed
    assert not broken


def test_pictures_are_sent_with_their_type_and_nothing_else_is(viewer: Client) -> None:
    assert viewer.get("/guides/images/runs.png")["Content-Type"] == "image/png"
    for address in ("nowhere/", "images/nothing.png", "images/..%2frunning.md", "images/%2e%2e%5cx.png"):
        assert viewer.get(f"/guides/{address}").status_code == 404


def test_raw_html_of_a_guide_is_text(viewer: Client, tmp_path: Path, settings: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.md").write_text("# Odd\n\n<script>alert(1)</script> [x](javascript:alert(1)) [y](../README.md)\n")
    settings.GUIDES_DIR = tmp_path  # type: ignore[attr-defined]  # pytest-django's fixture
    text = get_page(viewer, "/guides/odd/").partition("<article")[2]
    assert "&lt;script&gt;" in text and 'href="javascript' not in text and "README" not in text
