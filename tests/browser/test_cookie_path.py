"""Where the browser sends the reader's time zone to: to ToolFlow, and to nobody else on its host."""

from __future__ import annotations

import pytest
from django.conf import settings
from playwright.sync_api import Page, Route

SCRIPT = settings.BASE_DIR / "static/toolflow/js/times.js"
HOST = "http://flows.example.test"


@pytest.mark.parametrize(
    ("prefix", "file", "path"),
    [
        ("", "times.js", "/"),
        ("/toolflow", "times.js", "/toolflow/"),
        # As it is called in production, and where the path holds the same words.
        ("/a/static", "times.0123456789ab.js", "/a/static/"),
    ],
)
def test_it_is_for_the_path_that_toolflow_lies_below(page: Page, prefix: str, file: str, path: str) -> None:
    address = f"{prefix}/static/toolflow/js/{file}"

    def answer(route: Route) -> None:
        if route.request.url == HOST + address:
            route.fulfill(path=SCRIPT, content_type="text/javascript")
        else:
            route.fulfill(body=f'<!doctype html><script src="{address}" defer></script>', content_type="text/html")

    page.route(f"{HOST}/**", answer)
    page.goto(f"{HOST}{prefix}/runs/")
    (cookie,) = [cookie for cookie in page.context.cookies() if cookie["name"] == "toolflow_time_zone"]
    assert cookie["path"] == path
