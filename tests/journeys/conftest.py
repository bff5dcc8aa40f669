"""What all journeys share: a browser that has nothing to complain about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import ConsoleMessage, Page


@pytest.fixture
def page(page: Page) -> Iterator[Page]:
    """A window; at the end nothing may stand on its console, violations of the content security policy among it."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert complaints == []
