"""A browser on a live server, and an ear for everything that it complains about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, Response
from pytest_django.live_server_helper import LiveServer


@pytest.fixture(scope="session")
def base_url(live_server: LiveServer) -> str:
    """Where addresses of pages begin; it makes every browser test use the live server."""
    return live_server.url


@pytest.fixture(autouse=True)
def _no_complaints(context: BrowserContext) -> Iterator[None]:
    """Every test ends without a complaint of the browser.

    Those are errors and warnings on its console, violations of the content security policy among them, scripts that
    fail, and dialogs, which nothing of ours opens. That a page itself was answered with a 4xx is no complaint.
    """
    complaints: list[tuple[str, str]] = []
    refused: set[str] = set()

    def note_message(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append((message.text, message.location["url"]))

    def note_dialog(dialog: Dialog) -> None:
        complaints.append((f"Dialog: {dialog.message}", dialog.page.url if dialog.page else ""))
        dialog.dismiss()

    def note_answer(response: Response) -> None:
        if 400 <= response.status < 500 and response.request.is_navigation_request():
            refused.add(response.url)

    context.on("console", note_message)
    context.on("weberror", lambda error: complaints.append((str(error.error), "")))
    context.on("dialog", note_dialog)
    context.on("response", note_answer)
    yield
    left = [(text, url) for text, url in complaints if not (text.startswith("Failed to load") and url in refused)]
    assert left == []


@pytest.fixture
def admin_page(page: Page, context: BrowserContext, base_url: str) -> Page:
    """A window in which somebody is signed in who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": base_url}])
    return page
