"""One context of the browser for test after test, instead of a new one for each."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, BrowserContext


class KeptContext:
    """A context that is emptied after each test and used by the next.

    A new one fetches every style and script anew, which is more work than most tests are. Playwright’s runner for
    JavaScript keeps its context too, by these calls, which its Python has no public names for: cookies, storage, clock,
    routes, scripts, sizes and media are gone afterwards. What is cached stays.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._options: dict[str, Any] | None = None
        self._context: BrowserContext | None = None

    def take(self, options: dict[str, Any]) -> BrowserContext:
        """The context, as if it had been opened with ``options``."""
        if self._context is None or self._options != options:
            self._open(options)
        assert self._context is not None
        return self._context

    def put_back(self) -> None:
        """Empty the context: nothing that its pages still do reaches the next test."""
        assert self._context is not None and self._options is not None
        context, self._context = self._context, None
        context.clear_permissions()
        # Playwright empties the cache too, by the windows that are open then.
        for page in context.pages:
            page.close()
        self._browser._sync(self._browser._impl_obj._disconnect_from_reused_context("The test is over."))
        self._open(self._options)

    def _open(self, options: dict[str, Any]) -> None:
        known = set(self._browser.contexts)
        # The size of windows is what every other context has by default; one that was emptied has none.
        sized = {"viewport": {"width": 1280, "height": 720}, **options}
        self._browser._sync(self._browser._impl_obj._new_context_for_reuse(sized))
        (self._context,) = set(self._browser.contexts) - known
        self._options = options
