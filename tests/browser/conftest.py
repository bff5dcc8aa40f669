"""A browser on a live server, and an ear for everything that it complains about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler, StaticFilesHandlerMixin
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client
from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, Response
from pytest_django.live_server_helper import LiveServer


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


@pytest.fixture
def accepted_dialogs(context: BrowserContext) -> list[str]:
    """The kinds of the dialogs that were shown; a test that takes this may see some. All are answered with “leave”."""
    kinds: list[str] = []

    def accept(dialog: Dialog) -> None:
        kinds.append(dialog.type)
        dialog.accept()

    context.on("dialog", accept)
    return kinds


class Complaints:
    """What the browser complains about.

    Those are errors and warnings on its console, violations of the content security policy among them, scripts that
    fail, and dialogs, which nothing of ours opens. That a page itself was answered with a 4xx is no complaint, nor that
    the editor was told that a flow can't be saved (409 and 422).
    """

    def __init__(self, context: BrowserContext, *, are_dialogs_fine: bool) -> None:
        self._found: list[tuple[str, str]] = []
        self._refused: set[str] = set()
        context.on("console", self._note_message)
        context.on("weberror", lambda error: self._found.append((str(error.error), "")))
        if not are_dialogs_fine:
            context.on("dialog", self._note_dialog)
        context.on("response", self._note_answer)

    def take(self) -> list[tuple[str, str]]:
        """What was found since this was asked before."""
        found, self._found = self._found, []
        return [(text, url) for text, url in found if not (text.startswith("Failed to load") and url in self._refused)]

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self._found.append((message.text, message.location["url"]))

    def _note_dialog(self, dialog: Dialog) -> None:
        self._found.append((f"Dialog: {dialog.message}", dialog.page.url if dialog.page else ""))
        dialog.dismiss()

    def _note_answer(self, response: Response) -> None:
        is_page = response.request.is_navigation_request()
        if response.status in {409, 422} or (is_page and 400 <= response.status < 500):
            self._refused.add(response.url)


@pytest.fixture(autouse=True)
def complaints(request: pytest.FixtureRequest, context: BrowserContext) -> Iterator[Complaints]:
    """Every test ends without a complaint of the browser."""
    complaints = Complaints(context, are_dialogs_fine="accepted_dialogs" in request.fixturenames)
    yield complaints
    assert complaints.take() == []


def sign_in_context(context: BrowserContext, url: str, user: User | None = None) -> None:
    """Sign in as a user, without asking for a password: by default “ada”, who may do everything."""
    client = Client()
    client.force_login(user or User.objects.create_superuser("ada", password="secret"))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": url}])


@pytest.fixture
def admin_page(page: Page, context: BrowserContext, base_url: str) -> Page:
    """A window in which a user is signed in who may do everything."""
    sign_in_context(context, base_url)
    return page
