"""Light, dark, or as the system: one choice for our pages and the admin."""

from __future__ import annotations

from playwright.sync_api import Page, expect

LIGHT, DARK = "rgb(245, 246, 249)", "rgb(12, 15, 20)"


def expect_theme(page: Page, name: str, ground: str) -> None:
    expect(page.get_by_role("button", name=f"Change theme: now {name}")).to_be_visible()
    expect(page.locator("html")).to_have_css("background-color", ground)


def change_theme(page: Page) -> None:
    page.get_by_role("button", name="Change theme").click()


def test_the_choice_is_kept_and_shared_with_the_admin(admin_page: Page) -> None:
    admin_page.goto("/runs/")
    expect_theme(admin_page, "as your system", LIGHT)
    change_theme(admin_page)
    expect_theme(admin_page, "dark", DARK)
    admin_page.reload()
    expect_theme(admin_page, "dark", DARK)

    admin_page.goto("/admin/")
    expect_theme(admin_page, "dark", DARK)
    expect(admin_page.locator("body")).to_have_css("background-color", DARK)
    change_theme(admin_page)
    expect_theme(admin_page, "light", LIGHT)

    admin_page.goto("/runs/new/")
    expect_theme(admin_page, "light", LIGHT)
    change_theme(admin_page)
    expect_theme(admin_page, "as your system", LIGHT)


def test_without_a_choice_pages_are_as_the_system(page: Page) -> None:
    for address in ("/runs/", "/admin/", "/accounts/login/", "/nowhere/"):
        page.emulate_media(color_scheme="dark")
        page.goto(address)
        expect(page.locator("html")).to_have_css("background-color", DARK)
        page.emulate_media(color_scheme="light")
        expect(page.locator("html")).to_have_css("background-color", LIGHT)
