"""The example flows against the simulated model: what a newcomer sees on the first run of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from flows.engine import FlowSpec, RunResult, SimulatedModel, find_warnings, run_flow, simulated_client
from flows.engine.history import Attempt, Outcome
from flows.engine.plugins import load_plugins
from flows.engine.prompt import CURRENT_STEP_HEADING, PREVIOUS_STEPS_HEADING
from flows.engine.strict_schema import check_strict
from flows.examples import EXAMPLE_NOTE, load_documents, load_examples, load_sample_input
from flows.examples.plugins import (
    ColourSuite,
    audit_contrast,
    audit_design_system,
    audit_hue_diversity,
    audit_invoice_sums,
)
from flows.examples.scripts import example_script
from flows.models import Flow
from flows.portability import load_flow

NAMES = ["colour-theme", "invoice-extraction", "support-ticket-triage"]

load_plugins(["flows.examples.plugins"])


async def run_example(name: str, input: Mapping[str, Any] | None = None, *, api: str = "auto") -> RunResult:
    client = simulated_client(SimulatedModel(script=example_script()), api=api)
    try:
        return await run_flow(
            FlowSpec.from_document(load_documents()[name]), dict(input or load_sample_input(name)), client=client
        )
    finally:
        await client.close()


def outcomes(result: RunResult) -> list[list[Outcome]]:
    return [[attempt.outcome for attempt in step.attempts] for step in result.steps[1:]]


def findings(attempt: Attempt) -> list[tuple[str, str, str | None]]:
    return [(issue.severity.value, issue.code, issue.path) for issue in attempt.issues]


def system_message(attempt: Attempt) -> str:
    assert attempt.request is not None
    return str(attempt.request["messages"][0]["content"])


def current_attempts(attempt: Attempt) -> str:
    """What the system message says of the step's own earlier attempts."""
    return system_message(attempt).partition(f"\n{CURRENT_STEP_HEADING}\n")[2]


def test_the_examples_are_these_three() -> None:
    assert list(load_documents()) == NAMES


@pytest.mark.parametrize("api", ["auto", "responses"])
@pytest.mark.parametrize("name", NAMES)
async def test_an_example_succeeds_and_needs_one_retry_by_either_api(name: str, api: str) -> None:
    result = await run_example(name, api=api)
    assert result.sentence == "All steps passed."
    assert result.retries_used == 1
    requests = [attempt.request for step in result.results for attempt in step if attempt.request is not None]
    assert all(("input" in request) == (api == "responses") for request in requests)


@pytest.mark.parametrize("name", NAMES)
async def test_the_tokens_of_a_failed_attempt_are_counted_too(name: str) -> None:
    result = await run_example(name)
    calls = [attempt for step in result.results for attempt in step if attempt.request is not None]
    assert all(attempt.usage.total > 0 for attempt in calls)
    assert result.usage is not None
    assert result.usage.total == sum(attempt.usage.total for attempt in calls)


@pytest.mark.parametrize("name", NAMES)
def test_saving_an_example_would_warn_of_nothing(name: str) -> None:
    assert find_warnings(FlowSpec.from_document(load_documents()[name])) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_form_of_an_example_explains_itself(name: str) -> None:
    schema = load_documents()[name]["input_schema"]
    assert all(part["title"] for part in schema["properties"].values())
    assert load_sample_input(name).keys() >= set(schema["required"])


async def test_the_colour_theme_fails_at_a_bad_hex_and_a_pale_text_and_then_passes() -> None:
    result = await run_example("colour-theme")
    assert outcomes(result) == [[Outcome.PASSED], [Outcome.FAILED, Outcome.PASSED], [Outcome.PASSED]]
    first, second = result.step(2).attempts
    assert findings(first) == [("critical", "hex_format", "/accent"), ("high", "wcag_contrast", "/text")]
    assert first.output["accent"] == "#C8763"
    assert findings(second) == []


async def test_a_contrast_issue_says_how_bad_it_is_and_what_would_do() -> None:
    result = await run_example("colour-theme")
    issue = result.step(2).attempts[0].issues[1]
    assert issue.added_fields == {"ratio": 2.65}
    assert issue.context == {"colour": "#8C9AA3", "background": "#F7F5F0", "least": 4.5}
    assert issue.suggestions == ("Make text darker, for example #626C72.",)
    assert await audit_contrast({"text": "#626C72", "background": "#F7F5F0"}) == []


async def test_the_retry_of_the_colour_theme_is_shown_its_own_output_and_issues() -> None:
    result = await run_example("colour-theme")
    first, second = result.step(2).attempts
    assert CURRENT_STEP_HEADING not in system_message(first)
    section = current_attempts(second)
    assert "### Attempt 1" in section
    assert '"accent":"#C8763"' in section
    assert "critical (at /accent): accent is “#C8763”" in section
    assert "high (at /text): text #8C9AA3 on background #F7F5F0 has a contrast of 2.65:1" in section
    assert "Suggestions: Make text darker" in section


async def test_an_issue_that_seed_colours_passed_with_is_shown_to_the_next_step_and_not_as_its_own() -> None:
    result = await run_example("colour-theme")
    assert findings(result.step(1).attempts[0]) == [("medium", "hue_diversity", "/colours/1/hex")]
    for attempt in result.step(2).attempts:
        previous = system_message(attempt).partition(PREVIOUS_STEPS_HEADING)[2].partition(CURRENT_STEP_HEADING)[0]
        assert "Step 1 “Seed colours”, attempt 1" in previous
        assert "only 28° apart" in previous
        assert "28°" not in current_attempts(attempt)


async def test_seed_colours_that_are_all_alike_are_over_the_threshold() -> None:
    seeds = [{"name": name, "hex": hex, "reason": ""} for name, hex in (("A", "#1F4E5F"), ("B", "#2F6F62"))]
    close = await audit_hue_diversity({"colours": seeds})
    assert [finding["severity"] for finding in close] == ["medium"]
    same = await audit_hue_diversity({"colours": [*seeds, {"name": "C", "hex": "#1F4E60", "reason": ""}]})
    assert [finding["severity"] for finding in same] == ["medium", "high", "medium"]


async def test_the_full_suite_has_thirty_readable_colours_that_keep_the_design_system() -> None:
    result = await run_example("colour-theme")
    suite = result.step(3).output
    assert len(suite) == len(ColourSuite.model_fields) == 30
    assert {role: suite[role] for role in ("primary", "accent", "background")} == {
        role: result.step(2).output[role] for role in ("primary", "accent", "background")
    }
    assert await audit_contrast({**suite, "on_primary": suite["primary"]}) != []


async def test_a_suite_that_changes_what_the_design_system_decided_is_found_out() -> None:
    result = await run_example("colour-theme")
    changed = ColourSuite.model_validate({**result.step(3).output, "accent": "#112233"})
    steps = [{"output": step.output} for step in result.steps[:3]]
    (finding,) = await audit_design_system(changed, steps)
    assert finding["path"] == "/accent"
    assert finding["suggestions"] == ["Set accent to #C8763A."]


async def test_the_ticket_answer_promises_a_refund_at_first_and_then_addresses_the_customer() -> None:
    result = await run_example("support-ticket-triage")
    assert outcomes(result) == [[Outcome.PASSED], [Outcome.PASSED], [Outcome.FAILED, Outcome.PASSED]]
    first, second = result.step(3).attempts
    assert findings(first) == [("critical", "promises_no_refund", "/body"), ("high", "names_the_customer", "/body")]
    assert first.failure_reason is not None
    assert first.failure_reason.startswith("the answer can't be sent: “we will refund”")
    assert "Mara Lindqvist" in second.output["body"]
    section = current_attempts(second)
    assert "We will refund the amount" in section
    assert "“we will refund” promises a refund" in section


async def test_the_route_of_a_ticket_is_computed_without_a_call() -> None:
    result = await run_example("support-ticket-triage")
    (route,) = result.step(2).attempts
    assert route.request is None
    assert route.usage.total == 0
    assert route.output == {"queue": "finance", "priority": 1, "answer_within_hours": 4}


async def test_another_ticket_takes_another_way() -> None:
    ticket = {"customer": "Jo", "plan": "team", "subject": "Export", "message": "The export crashes with an error."}
    result = await run_example("support-ticket-triage", ticket)
    assert result.step(1).output["category"] == "bug"
    assert result.step(2).output == {"queue": "engineering", "priority": 2, "answer_within_hours": 8}
    assert "Dear Jo" in result.step(3).output["body"]


async def test_the_invoice_lacks_a_line_at_first_and_then_adds_up() -> None:
    result = await run_example("invoice-extraction")
    assert outcomes(result) == [[Outcome.FAILED, Outcome.PASSED], [Outcome.PASSED]]
    first, second = result.step(1).attempts
    assert findings(first) == [("critical", "lines_add_up", "/lines")]
    assert "36.00 are missing" in first.issues[0].description
    assert first.issues[0].added_fields == {"difference": 36.0}
    assert len(second.output["lines"]) == 3
    section = current_attempts(second)
    assert "The 2 lines add up to 1565.00, but the net amount is 1601.00" in section
    assert '"description":"Freight, Hamburg to Kassel"' in section
    assert result.step(2).output["payment_days"] == 30


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"vat": 340.19}, "vat", "/vat"),
        ({"gross": 1905.20}, "gross_amount", "/gross"),
        ({"due_date": "2 December 2026"}, "date_format", "/due_date"),
        ({"due_date": "2026-10-02"}, "due_after_invoice_date", "/due_date"),
        ({"currency": "Euro"}, "schema_mismatch", "/currency"),
        ({"invoice_number": "2026-00471"}, "number_is_in_the_document", "/invoice_number"),
    ],
)
async def test_each_mistake_in_an_invoice_is_found_where_it_is(change: dict[str, Any], code: str, path: str) -> None:
    good = (await run_example("invoice-extraction")).step(1).output
    flow = FlowSpec.from_document(load_documents()["invoice-extraction"])
    flow = flow.model_copy(update={"steps": (flow.steps[0].model_copy(update={"max_retries": 0}),)})
    script = type(example_script())({"extract_invoice": [{**good, **change}]})
    client = simulated_client(SimulatedModel(script=script))
    result = await run_flow(flow, load_sample_input("invoice-extraction"), client=client)
    await client.close()
    found = {(issue.code, issue.path) for issue in result.step(1).attempts[0].issues}
    assert (code, path) in found


def test_sums_of_an_invoice_are_exact_to_the_cent() -> None:
    lines = [{"quantity": 3, "unit_price": 0.1, "amount": 0.3}, {"quantity": 1, "unit_price": 1.005, "amount": 1.01}]
    assert audit_invoice_sums({"lines": lines, "net": 1.31}) == []
    (wrong,) = audit_invoice_sums({"lines": [{**lines[0], "amount": 0.31}], "net": 0.31})
    assert wrong["path"] == "/lines/0/amount"
    (twice,) = audit_invoice_sums({"lines": lines, "net": 1.01})
    assert "0.30 too much" in twice["description"]


async def test_an_editor_who_changes_an_example_gets_outputs_that_fit_the_change() -> None:
    document = load_documents()["invoice-extraction"]
    schema = document["steps"][0]["output_schema"]
    schema["properties"]["order_number"] = {"type": "string"}
    schema["required"].append("order_number")
    assert check_strict(schema) == []
    step = {**document["steps"][0], "max_retries": 0, "audits": []}
    client = simulated_client(SimulatedModel(script=example_script()))
    flow = FlowSpec.from_document({**document, "steps": [step]})
    result = await run_flow(flow, load_sample_input("invoice-extraction"), client=client)
    await client.close()
    assert result.passed
    assert result.step(1).output["order_number"]


# ---------------------------------------------------------------------------------------------------------------
# In the database


@pytest.mark.django_db
def test_the_examples_are_stored_once_and_can_be_run() -> None:
    assert load_examples() == NAMES
    assert load_examples() == []
    assert sorted(Flow.objects.runnable().values_list("name", flat=True)) == NAMES
    assert all(flow.versions.count() == 1 for flow in Flow.objects.all())


@pytest.mark.django_db
def test_an_example_that_an_editor_changed_stays_as_it_is() -> None:
    load_examples()
    load_flow(document={**load_documents()["colour-theme"], "title": "Our colours"}, note="Our own title")
    assert load_examples() == []
    assert Flow.objects.get(name="colour-theme").title == "Our colours"


@pytest.mark.django_db
def test_a_flow_of_the_same_name_that_is_no_example_stays_as_it_is() -> None:
    load_flow(document={"name": "colour-theme", "steps": [{"name": "Mix", "compute": "{'colour': 'grey'}"}]})
    assert load_examples() == ["invoice-extraction", "support-ticket-triage"]
    assert Flow.objects.get(name="colour-theme").steps.get().name == "Mix"


@pytest.mark.django_db
def test_an_archived_example_is_left_alone() -> None:
    load_examples()
    Flow.objects.filter(name="colour-theme").update(is_archived=True, title="Old")
    assert load_examples() == []
    assert Flow.objects.get(name="colour-theme").title == "Old"


@pytest.mark.django_db
def test_an_untouched_example_of_an_earlier_release_is_brought_up_to_date_and_made_live() -> None:
    earlier = load_flow(
        document={"name": "colour-theme", "steps": [{"name": "Mix", "compute": "{'colour': 'grey'}"}]},
        note=EXAMPLE_NOTE,
    )
    assert "colour-theme" in load_examples()
    flow = Flow.objects.get(name="colour-theme")
    assert flow.live_version is not None
    assert (earlier.number, flow.live_version.number) == (1, 2)
    assert flow.steps.count() == 3


@pytest.mark.django_db
def test_a_version_of_an_example_that_somebody_made_live_stays_live() -> None:
    mix = {"name": "colour-theme", "steps": [{"name": "Mix", "compute": "{'colour': 'grey'}"}]}
    chosen = load_flow(document=mix, note=EXAMPLE_NOTE)
    load_flow(document={**mix, "title": "Mixed"}, note=EXAMPLE_NOTE)
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    assert flow.live_version == chosen
    assert flow.versions.count() == 3
