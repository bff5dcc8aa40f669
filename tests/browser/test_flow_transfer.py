"""A flow leaves as a file and comes back changed, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from flows.examples import load_examples
from flows.models import Flow
from tests.browser.widths import assert_fits

UPLOAD = "/admin/flows/flow/upload/"


@pytest.fixture
def colour_file(admin_page: Page, tmp_path: Path) -> Path:
    """The file of the colour-theme flow, as somebody downloaded it."""
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    admin_page.goto(f"/admin/flows/flow/{flow.pk}/change/")
    with admin_page.expect_download() as download:
        admin_page.evaluate("id => { location.href = `/admin/flows/flow/${id}/download/` }", flow.pk)
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path


def change_file(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_downloaded_flow_is_changed_uploaded_and_made_live(admin_page: Page, colour_file: Path) -> None:
    assert colour_file.name == "colour-theme.yaml"
    change_file(colour_file, "issue_severity_filter: low", "issue_severity_filter: high")
    admin_page.goto("/admin/flows/flow/")
    admin_page.get_by_role("link", name="Upload a flow file").click()
    admin_page.get_by_label("Choose a file").set_input_files(colour_file)
    admin_page.get_by_role("button", name="Check the file").click()
    expect(admin_page.get_by_role("heading", level=1)).to_have_text("Import version 2 of “Colour theme”?")
    expect(admin_page.locator(".change")).to_contain_text("Seed colours")
    expect(admin_page.locator(".change .value-new")).to_have_text("high")
    admin_page.get_by_label("Note").fill("Told of grave issues only")
    admin_page.get_by_role("button", name="Import and make live").click()
    expect(admin_page.get_by_text("Imported version 2 from “colour-theme.yaml”. It is live")).to_be_visible()
    flow = Flow.objects.get(name="colour-theme")
    assert flow.live_version is not None
    assert (flow.live_version.number, flow.live_version.note) == (2, "Told of grave issues only")


def test_mistakes_in_a_file_are_mended_on_the_page(admin_page: Page, colour_file: Path) -> None:
    change_file(colour_file, "severity: high", "severity: hihg")
    change_file(colour_file, "tool_name: pick_seed_colours", "toolname: pick_seed_colours")
    admin_page.goto(UPLOAD)
    admin_page.get_by_label("Choose a file").set_input_files(colour_file)
    admin_page.get_by_role("button", name="Check the file").click()
    problems = admin_page.locator(".file-problems li")
    expect(problems).to_have_count(5)
    expect(problems.filter(has_text="Unknown field “toolname”")).to_contain_text("toolname: pick_seed_colours")
    text = admin_page.get_by_label("Or mend the text here")
    mended = text.input_value().replace("hihg", "high").replace("toolname:", "tool_name:")
    text.fill(mended)
    admin_page.get_by_role("button", name="Check the file").click()
    expect(admin_page.get_by_role("heading", level=1)).to_have_text("Nothing to import")
    admin_page.get_by_role("button", name="Back to the text").click()
    assert admin_page.get_by_label("Or mend the text here").input_value() == mended


def test_the_pages_fit_a_phone_in_the_dark(admin_page: Page, colour_file: Path) -> None:
    admin_page.set_viewport_size({"width": 390, "height": 800})
    admin_page.emulate_media(color_scheme="dark")
    admin_page.goto("/admin/flows/flow/")
    assert_fits(admin_page)
    admin_page.goto(UPLOAD)
    assert_fits(admin_page)
    change_file(colour_file, "issue_severity_filter: low", "issue_severity_filter: high")
    for old, new in (("name: colour-theme", "name: other-theme"), ("name: other-theme", "name: No_Theme")):
        text = colour_file.read_text(encoding="utf-8")
        for content in (text, text.replace(old, new)):
            admin_page.goto(UPLOAD)
            admin_page.get_by_label("Or paste its text").fill(content)
            admin_page.get_by_role("button", name="Check the file").click()
            expect(admin_page.locator("form.upload-form")).to_be_visible()
            assert_fits(admin_page)
        change_file(colour_file, old, new)
