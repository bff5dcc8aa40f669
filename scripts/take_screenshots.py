#!/usr/bin/env python3
"""Takes the pictures in docs/images from installations in temporary folders.

In one the example flows are run for real, with outputs of the simulated model; the other has weeks of invented history.
Start it as ``.venv/bin/python scripts/take_screenshots.py``. It needs Chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.journeys.first_flow import build_first_flow, run_first_flow  # noqa: E402  # the path had to be set first

IMAGES = ROOT / "docs" / "images"
WIDTH = 1360
MARGIN = 14
"""Below what a picture ends with: less than to what follows on the page."""
BAR = 130
"""Room for the bar with buttons that sticks to the end of the window."""
RUN_TIMEOUT = 60_000
"""Milliseconds that a run may take."""

PROVIDER = {"TOOLFLOW_PROVIDER": "openai", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
"""Of an installation that starts no runs: a provider that is not called, so that no page says “simulated”."""
SEEDED = ("--runs", "3600", "--days", "90")
SEEDED_FLOW = "seeded-colour-theme"


def build_environment(folder: str, **settings: str) -> dict[str, str]:
    """The environment of an installation with all its data in ``folder``, and no setting of the caller's."""
    ours = ("TOOLFLOW_", "OPENAI_", "DATABASE_URL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    own = {"TOOLFLOW_DATA_DIR": folder, "TOOLFLOW_ENV_FILE": os.devnull, "PYTHONUNBUFFERED": "1"}
    return environment | own | settings


@contextmanager
def start_installation(environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run ``manage.py up`` in an environment; gives its address and the password of “admin”."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up", "--port", str(port)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        password = ""
        for line in process.stdout or ():
            if found := re.search("with the password (\\S+)", line):
                password = found[1]
            if "Stop with Ctrl-C" in line:
                break
        if not password:
            raise SystemExit("The installation did not start; its last lines above say why.")
        yield f"http://127.0.0.1:{port}", password
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def open_page(browser: Browser, address: str, password: str, scheme: str = "light") -> Page:
    """A window in which the admin is signed in. Animations stand still, so that pictures don't depend on the moment."""
    page = browser.new_context(
        base_url=address,
        viewport={"width": WIDTH, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    ).new_page()
    page.goto("/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile(r":\d+/$"))
    return page


def start_run(page: Page, flow: str) -> str:
    """Start a flow with its example; gives the address of the run's page."""
    page.goto(f"/runs/new/{flow}/?example=1")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    return page.url


def follow_run(page: Page, address: str) -> None:
    """Watch a run until all its steps have passed."""
    page.goto(address)
    expect(page.locator(".verdict", has_text="passed")).to_be_visible(timeout=RUN_TIMEOUT)


def show_run(page: Page, address: str) -> None:
    """Open a run that has ended, with step 2's first attempt selected."""
    page.goto(f"{address}steps/2/attempts/1/")
    expect(page.locator("#pane .issue").first).to_be_visible()


def fail_without_retries(page: Page) -> str:
    """Run a version of the colour theme in which step 2 has one try; gives the address of the run, which failed."""
    open_editor(page, "Colour theme")
    page.get_by_label("Try up to").fill("0")
    page.get_by_role("button", name="Save and make live").click()
    expect(page.locator(".messages")).to_contain_text("which is live")
    address = start_run(page, "colour-theme")
    expect(page.locator("#run-head").get_by_text("Failed", exact=True)).to_be_visible(timeout=RUN_TIMEOUT)
    return address


def read_number(address: str) -> str:
    """The number of the run whose page has this address."""
    return address.strip("/").rpartition("/")[2]


def open_editor(page: Page, title: str) -> None:
    """Open a flow's editor at its second step."""
    page.goto("/admin/flows/flow/")
    page.get_by_role("link", name=title).click()
    expect(page.locator(".part-number")).to_have_text("1")
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator(".part-number")).to_have_text("2")


def show_flow(page: Page, title: str) -> None:
    """Open a flow's editor at its second audit, with the outputs of its step judged again."""
    page.set_viewport_size({"width": WIDTH, "height": 1100})
    open_editor(page, title)
    page.locator("#editor-outline .level-3").nth(1).click()
    expect(page.locator(".live-square").first).to_be_visible()


def save_picture(page: Page, name: str, *, through: str = "") -> None:
    """Save the page from its top through the element ``through``; without one, the window as it is."""
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    path = IMAGES / f"{name}.png"
    if through:
        page.evaluate("scrollTo(0, 0)")
        box = page.locator(through).bounding_box()
        assert box is not None, f"There is no {through} on the page."
        clip = {"x": 0.0, "y": 0.0, "width": float(WIDTH), "height": box["y"] + box["height"] + MARGIN}
        page.screenshot(path=path, clip=clip, full_page=True)  # type: ignore[arg-type]  # a mapping with all four sides
    else:
        page.screenshot(path=path)
    sys.stdout.write(f"docs/images/{name}.png: {path.stat().st_size / 1000:.0f} kB\n")


def save_part(page: Page, name: str, part: Locator | None) -> None:
    """Save what a picture of “Your first flow” is about, or the window as it is."""
    page.mouse.move(0, 0)
    path = IMAGES / f"{name}.png"
    usual = page.viewport_size
    box = part.bounding_box() if part else None
    if part and box and usual:
        # In a window that is too low for it, the bar would be in the middle of the picture.
        page.set_viewport_size({"width": usual["width"], "height": max(usual["height"], round(box["height"]) + BAR)})
        part.evaluate("(part) => part.scrollIntoView({ block: 'start' })")
    (part or page).screenshot(path=path)
    if usual:
        page.set_viewport_size(usual)
    sys.stdout.write(f"docs/images/{name}.png: {path.stat().st_size / 1000:.0f} kB\n")


def take_screenshots(browser: Browser, address: str, password: str) -> None:
    """Run the examples and take all pictures."""
    page = open_page(browser, address, password)
    for flow in ("invoice-extraction", "support-ticket-triage"):
        follow_run(page, start_run(page, flow))
    run = start_run(page, "colour-theme")
    follow_run(page, run)
    show_run(page, run)
    save_picture(page, "run-page", through="#pane")
    page.goto("/runs/new/colour-theme/?example=1")
    save_picture(page, "start-run", through="form.start")
    page.goto(start_run(page, "support-ticket-triage") + "cancel/")
    page.get_by_role("button", name="Cancel run").click()
    start_run(page, "colour-theme")
    expect(page.locator("#s2a1")).to_be_visible(timeout=RUN_TIMEOUT)
    page.goto("/runs/")
    save_picture(page, "runs", through=".table-box")
    show_flow(page, "Support ticket triage")
    save_picture(page, "flow-editor")

    page.set_viewport_size({"width": WIDTH, "height": 900})
    page.goto("/")
    build_first_flow(page, partial(save_part, page))
    run_first_flow(page, partial(save_part, page))

    dark = open_page(browser, address, password, scheme="dark")
    show_run(dark, run)
    save_picture(dark, "run-page-dark", through="#pane")
    failed = fail_without_retries(page)
    for window, name in ((page, "compare"), (dark, "compare-dark")):
        window.goto(f"/runs/compare/?a={read_number(failed)}&b={read_number(run)}")
        save_picture(window, name, through="#b2")


def take_statistics(browser: Browser, address: str, password: str) -> None:
    """Take the pictures that need history, in both themes."""
    for scheme in ("light", "dark"):
        page = open_page(browser, address, password, scheme)
        ending = "-dark" if scheme == "dark" else ""
        page.goto("/")
        save_picture(page, f"overview{ending}", through="main")
        page.goto(f"/flows/{SEEDED_FLOW}/?period=90d")
        save_picture(page, f"flow-page{ending}", through="#audits")


def main() -> None:
    """Take the pictures; stops with a sentence if there is no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Chromium is not installed; “make services” sees to that.")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, chromium_sandbox=False)
        with (
            tempfile.TemporaryDirectory(prefix="toolflow-pictures-") as folder,
            start_installation(build_environment(folder)) as (address, password),
        ):
            take_screenshots(browser, address, password)
        with tempfile.TemporaryDirectory(prefix="toolflow-pictures-") as folder:
            environment = build_environment(folder, **PROVIDER)
            with start_installation(environment) as (address, password):
                seed = [sys.executable, "manage.py", "seed_history", *SEEDED]
                subprocess.run(seed, cwd=ROOT, env=environment, check=True)
                take_statistics(browser, address, password)


if __name__ == "__main__":
    main()
