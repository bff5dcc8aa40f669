"""(g) The editor of a flow of 20 steps with 10 audits: how soon it opens and saves, on the server and in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from statistics import median
from typing import Any
from urllib.parse import urlencode

from benchmarks.contender import ROOT, ContenderError
from benchmarks.figures import Figure, print_table, say
from benchmarks.setting import Setting
from benchmarks.web_server import make_environment, serving_pages

STEPS, AUDITS = 20, 10
ROUNDS = 5
OPENS_WITHIN, SAVES_WITHIN = 1.0, 2.0


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figures that have targets."""
    data = setting.folder / "editor"
    data.mkdir()
    environment = make_environment(data)
    command = [sys.executable, "-m", "benchmarks.editor"]
    made = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    flow = json.loads(made.stdout)
    with serving_pages(environment, data / "log.txt") as port:
        editor = _Editor(port, flow["session"], flow["address"])
        editor.open()
        gets = [_time(editor.open) for _ in range(ROUNDS)]
        posts = []
        for _ in range(ROUNDS):
            posts.append(_time(editor.save))
            editor.open()
        times = {"server makes the page": gets, "server takes the saved page": posts}
        figures = []
        if browser := _measure_in_browser(port, flow):
            times |= browser
            figures = [
                Figure("The editor opens in Chromium", median(browser["Chromium loads it"]), "s", at_most=OPENS_WITHIN),
                Figure("The editor saves in Chromium", median(browser["Chromium saves it"]), "s", at_most=SAVES_WITHIN),
            ]
        rows = [
            (name, f"{median(found) * 1000:.0f} ms", f"{min(found) * 1000:.0f}–{max(found) * 1000:.0f} ms")
            for name, found in times.items()
        ]
        rows.append(("size of the page", f"{editor.size / 1000:.0f} kB", ""))
    print_table(f"The editor of a flow with {STEPS} steps of {AUDITS} audits", ("", "median", "range"), rows)
    return figures


class _Editor:
    """The page as a browser without a screen sees it."""

    def __init__(self, port: int, session: str, address: str) -> None:
        self._port, self._address = port, address
        self._cookies = SimpleCookie({"sessionid": session})
        self._page = ""
        self._saved = 0

    @property
    def size(self) -> int:
        """Bytes of the page."""
        return len(self._page.encode())

    def open(self) -> None:
        """Have the server make the page."""
        self._page = self._ask("GET", "", 200)

    def save(self) -> None:
        """Change the last audit, and save."""
        reader = _FieldReader(self._page)
        self._saved += 1
        reader.fields[f"steps-{STEPS - 1}-audits-{AUDITS - 1}-rule"] = f"output.text != '{self._saved}'"
        self._ask("POST", urlencode({**reader.fields, "_save": ""}), 302)

    def _ask(self, method: str, body: str, expected: int) -> str:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {
            "Cookie": "; ".join(f"{name}={cookie.value}" for name, cookie in self._cookies.items()),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        connection.request(method, self._address, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != expected:
            raise ContenderError(f"The editor answered {answer.status} to a {method}.")
        for cookie in answer.headers.get_all("Set-Cookie", []):
            self._cookies.load(cookie)
        connection.close()
        return text


class _FieldReader(HTMLParser):
    """The fields of a page with their values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._open = ""
        self.feed(page)
        self.fields = {
            name: value.removeprefix("\n")
            for name, value in self.fields.items()
            if name and "__prefix__" not in name and "-empty-" not in name
        }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "input" and (values.get("type") != "checkbox" or "checked" in values):
            self.fields[values.get("name", "")] = values.get("value", "on" if "checked" in values else "")
        elif tag in {"textarea", "select"}:
            self._open = values["name"]
            self.fields[self._open] = ""
        elif tag == "option" and "selected" in values:
            self.fields[self._open] = values["value"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open and self.get_starttag_text() and self.get_starttag_text().startswith("<textarea"):  # type: ignore[union-attr]  # asked just before
            self.fields[self._open] += data


def _measure_in_browser(port: int, flow: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds until the page is open and its scripts have run, and from a click on Save to the next page.

    Nothing without Chromium.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        say("Left out: there is no Chromium.")
        return {}
    from playwright.sync_api import Page, sync_playwright

    base = f"http://127.0.0.1:{port}"
    loaded, opened, saved = [], [], []

    def wait_until_ready(page: Page) -> float:
        """Milliseconds since the navigation began when nothing is left to do."""
        since: float = page.evaluate("new Promise((done) => requestIdleCallback(() => done(performance.now())))")
        return since

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        context = browser.new_context(base_url=base)
        context.add_cookies([{"name": "sessionid", "value": flow["session"], "url": base}])
        page = context.new_page()
        page.goto(flow["address"])
        for number in range(ROUNDS):
            page.goto(flow["address"])
            opened.append(wait_until_ready(page) / 1000)
            loaded.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
            card = page.locator(f"#steps-{STEPS - 1}")
            card.locator("summary").first.click()
            card.locator(f"[name=steps-{STEPS - 1}-audits-{AUDITS - 1}-rule]").fill(f"output.text != 'b{number}'")
            began = time.perf_counter()
            with page.expect_navigation():
                page.get_by_role("button", name="Save", exact=True).click()
            saved.append(time.perf_counter() - began)
        browser.close()
    return {"Chromium loads it": loaded, "Chromium has nothing left to do": opened, "Chromium saves it": saved}


def _time(action: Any) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> None:
    """Set up an installation with the flow, as the environment says; prints how to open its editor."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.urls import reverse

    from flows.portability import load_flow

    call_command("migrate", verbosity=0, interactive=False)
    flow = load_flow(document=make_document()).flow
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    address = reverse("admin:flows_flow_change", args=[flow.pk])
    sys.stdout.write(json.dumps({"session": client.cookies["sessionid"].value, "address": address}))


def make_document() -> dict[str, Any]:
    """A flow of that size, with something in most fields."""
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "total": {"type": "number"}},
        "required": ["text", "total"],
        "additionalProperties": False,
    }
    steps = [
        {
            "name": f"Step number {number}",
            "tool_name": f"tool_{number}",
            "description": f"Says what comes of part {number}.",
            "system_message": "Read what you are given.\n\nThen write what it says, in two sentences.",
            "output_schema": schema,
            "include_results": [number - 1] if number > 1 else [],
            "audits": [
                {
                    "name": f"Audit number {audit}",
                    "rule": f"output.text != '{audit}'",
                    "message": f"'The text must not be {audit}.'",
                    "path": "'/text'",
                }
                for audit in range(1, AUDITS + 1)
            ],
        }
        for number in range(1, STEPS + 1)
    ]
    return {"name": "large", "title": "Large", "steps": steps}


if __name__ == "__main__":
    main()
