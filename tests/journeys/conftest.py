"""What all journeys share: a browser that has nothing to complain about, and tables that are there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Page

from tests.databases import share_sqlite_template


@pytest.fixture
def page(page: Page) -> Iterator[Page]:
    """A window; at the end nothing may be on its console, violations of the content security policy among it."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert complaints == []


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an installation keeps its data: empty tables are there already, which the first start would make."""
    shutil.copy(share_sqlite_template(tmp_path_factory), tmp_path / "toolflow.sqlite3")
    return tmp_path
