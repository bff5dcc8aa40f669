"""The main job as a newcomer does it, and “Your first flow” as it is written: a browser, a worker, a model over TCP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from flows.engine.prompt import CURRENT_STEP_HEADING
from flows.engine.simulated_model import SimulatedModel
from flows.examples import load_sample_input
from flows.examples.scripts import example_script
from tests.engine.model_server import ModelServer
from tests.journeys.first_flow import RUN_TIMEOUT, build_first_flow, improve_first_flow, run_first_flow
from tests.journeys.installation import Installation, sign_in


@pytest.fixture
def installation(folder: Path, model_server: ModelServer) -> Iterator[Installation]:
    """A fresh installation whose provider is the simulated model, scripted like the examples, over TCP."""
    model_server.app = SimulatedModel(script=example_script())
    with Installation(folder, OPENAI_BASE_URL=model_server.base_url, OPENAI_API_KEY="right-key") as started:
        yield started


def test_from_sign_in_to_a_step_that_failed_its_audit_was_told_so_and_passed(
    page: Page, installation: Installation, model_server: ModelServer
) -> None:
    sign_in(page, installation)
    page.get_by_role("link", name="Run a flow").first.click()
    page.get_by_role("link", name="Colour theme").first.click()
    page.get_by_text("Fill in an example").click()
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("heading", name="Colour theme #1")).to_be_visible()
    # The page follows the run by itself.
    expect(page.locator(".verdict", has_text="passed")).to_be_visible(timeout=RUN_TIMEOUT)

    first, second = page.locator("#s2a1"), page.locator("#s2a2")
    expect(first).to_contain_text("Failed")
    expect(second).to_contain_text("Passed")
    first.click()
    pane = page.locator("#pane")
    expect(pane).to_contain_text("“#C8763”, which is no colour")
    expect(pane.locator(".text-line", has_text="accent")).to_contain_text("#C8763")

    document = json.loads(page.request.get(f"{installation.address}/runs/1.json").text())
    attempts = document["steps"][2]["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["failed", "passed"]
    assert all(attempt["usage"]["total"] > 0 for attempt in attempts)
    assert attempts[0]["issues"] and not attempts[1]["issues"]

    second.click()
    expect(pane).to_have_attribute("data-entry", "s2a2")
    pane.get_by_text("What the model saw").click()
    expect(pane).to_contain_text("Current step attempts")
    message = [call.body["messages"][0]["content"] for call in model_server.app.calls][2]
    section = message.split(CURRENT_STEP_HEADING)[1]
    assert "### Attempt 1" in section
    assert '"accent":"#C8763"' in section
    assert "which is no colour" in section


def test_a_newcomer_builds_a_flow_whose_attempt_fails_its_audit_and_passes_then(page: Page, tmp_path: Path) -> None:
    with Installation(tmp_path) as installation:
        sign_in(page, installation)
        build_first_flow(page)
        run_first_flow(page)
        expect(page.locator("#s1a2")).to_contain_text("Passed")
        improve_first_flow(page)


@pytest.mark.nightly
def test_a_run_is_started_and_followed_on_the_terminal_and_the_next_start_finds_what_was_there(
    installation: Installation, folder: Path
) -> None:
    sample = json.dumps(load_sample_input("colour-theme"))
    done = installation.manage("run_flow", "colour-theme", "--input", "-", "--follow", input=sample)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Step 2 “Design-system colours”, attempt 1: failed" in done.stdout
    assert "Succeeded: All steps passed." in done.stdout
    done = installation.manage("run_flow", "colour-theme", "--input", "-", input='{"brand": 5}')
    assert done.returncode == 3
    assert "/brand" in done.stderr and "Traceback" not in done.stderr
    # Ctrl-C stops everything, and a second start finds what was there.
    assert installation.password and installation.stop() == 0
    assert "Nothing is lost" in installation.output
    with Installation(folder, OPENAI_API_KEY="right-key") as second:
        assert not second.password


@pytest.mark.nightly
def test_without_the_plug_ins_of_the_examples_it_starts_and_says_what_is_missing(folder: Path) -> None:
    with Installation(folder):
        pass
    with Installation(folder, TOOLFLOW_PLUGINS="json") as installation:
        assert "flows.W001" in installation.output
        assert "The example flows were not added. " in installation.output
        assert "Traceback" not in installation.output
