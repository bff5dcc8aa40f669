"""A browser on a live server, and an ear for everything that it complains about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler, StaticFilesHandlerMixin
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Response
from pytest_django.live_server_helper import LiveServer

from tests.browser.kept_context import KeptContext


@pytest.fixture(scope="session")
def base_url(live_server: LiveServer) -> Iterator[str]:
    """Where addresses of pages begin; it makes every browser test use the live server."""

    def serve(handler: StaticFilesHandler, request: HttpRequest) -> HttpResponseBase:
        answer = StaticFilesHandlerMixin.serve(handler, request)
        # As in production: what a page needs is asked for once.
        answer.headers["Cache-Control"] = "max-age=3600, immutable"
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StaticFilesHandler, "serve", serve)
        yield live_server.url


@pytest.fixture(scope="session")
def kept_context(browser: Browser) -> KeptContext:
    """The context of all tests that ask for none of their own."""
    return KeptContext(browser)


@pytest.fixture
def context(
    request: pytest.FixtureRequest, kept_context: KeptContext, browser_context_args: dict[str, Any]
) -> Iterator[BrowserContext]:
    """A context as good as new; one of its own where a test asks for that, or somebody for what happened in it."""
    recordings = (request.config.getoption(name) for name in ("--tracing", "--video", "--screenshot"))
    if request.node.get_closest_marker("browser_context_args") or set(recordings) != {"off"}:
        yield request.getfixturevalue("new_context")()
        return
    yield kept_context.take(browser_context_args)
    kept_context.put_back()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """The one window of the context."""
    return context.pages[0] if context.pages else context.new_page()


@pytest.fixture
def accepted_dialogs(context: BrowserContext) -> list[str]:
    """The kinds of the dialogs that were shown; a test that takes this may see some. All are answered with “leave”."""
    kinds: list[str] = []

    def accept(dialog: Dialog) -> None:
        kinds.append(dialog.type)
        dialog.accept()

    context.on("dialog", accept)
    return kinds


@pytest.fixture(autouse=True)
def _no_complaints(request: pytest.FixtureRequest, context: BrowserContext) -> Iterator[None]:
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
    if "accepted_dialogs" not in request.fixturenames:
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
