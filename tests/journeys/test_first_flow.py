"""“Your first flow” of the documentation works as it is written, in a fresh installation and a browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.journeys.first_flow import build_first_flow, improve_first_flow, run_first_flow
from tests.journeys.installation import Installation, sign_in


def test_a_newcomer_builds_a_flow_of_two_steps_and_sees_an_attempt_fail_its_audit_and_the_next_one_pass(
    page: Page, tmp_path: Path
) -> None:
    with Installation(tmp_path) as installation:
        sign_in(page, installation)
        build_first_flow(page)
        run_first_flow(page)
        expect(page.locator("#s1a2")).to_contain_text("Passed")
        improve_first_flow(page)
