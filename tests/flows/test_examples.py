"""The example flows against the simulated model: what a newcomer sees on the first run of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from flows.engine import FlowSpec, RunResult, SimulatedModel, find_warnings, run_flow, simulated_client
from flows.engine.plugins import load_plugins
from flows.examples import EXAMPLE_NOTE, load_documents, load_examples, load_sample_input
from flows.examples.scripts import example_script
from flows.models import Flow
from tests.flows.loading import load_flow

OUTCOMES = {
    "colour-theme": [["passed"], ["failed", "passed"], ["passed"]],
    "invoice-extraction": [["failed", "passed"], ["passed"]],
    "support-ticket-triage": [["passed"], ["passed"], ["failed", "passed"]],
}

load_plugins(["flows.examples.plugins"])


async def run_example(
    name: str,
    input: Mapping[str, Any] | None = None,
    *,
    script: Any = None,
    document: Mapping[str, Any] | None = None,
) -> RunResult:
    client = simulated_client(SimulatedModel(script=script or example_script()))
    try:
        flow = FlowSpec.from_document(dict(document or load_documents()[name]))
        return await run_flow(flow, dict(input or load_sample_input(name)), client=client)
    finally:
        await client.close()


@pytest.mark.parametrize("name", OUTCOMES)
async def test_an_example_needs_one_retry_and_has_no_warnings_and_a_form_that_explains_itself(name: str) -> None:
    result = await run_example(name)
    assert [[attempt.outcome for attempt in step.attempts] for step in result.steps[1:]] == OUTCOMES[name]
    document = load_documents()[name]
    assert find_warnings(FlowSpec.from_document(document)) == []
    assert all(part["title"] for part in document["input_schema"]["properties"].values())
    assert load_sample_input(name).keys() >= set(document["input_schema"]["required"])


class TestInvoice:
    @pytest.mark.parametrize(
        ("change", "code", "path"),
        [
            ({"vat": 340.19}, "vat", "/vat"),
            ({"gross": 1905.20}, "gross_amount", "/gross"),
            ({"due_date": "2026-10-02"}, "due_after_invoice_date", "/due_date"),
            ({"invoice_number": "2026-00471"}, "number_is_in_the_document", "/invoice_number"),
        ],
    )
    async def test_each_mistake_is_found_where_it_is(self, change: dict[str, Any], code: str, path: str) -> None:
        good = (await run_example("invoice-extraction")).step(1).output
        script = type(example_script())({"extract_invoice": [{**good, **change}] * 4})
        result = await run_example("invoice-extraction", script=script)
        assert (code, path) in {(issue.code, issue.path) for issue in result.step(1).attempts[0].issues}

    async def test_an_example_that_was_changed_gets_outputs_that_fit_the_change(self) -> None:
        document = load_documents()["invoice-extraction"]
        schema = document["steps"][0]["output_schema"]
        schema["properties"]["order_number"] = {"type": "string"}
        schema["required"].append("order_number")
        document["steps"] = [{**document["steps"][0], "audits": []}]
        result = await run_example("invoice-extraction", document=document)
        assert result.step(1).output["order_number"]


@pytest.mark.django_db
class TestDatabase:
    MIX = {"name": "colour-theme", "steps": [{"name": "Mix", "compute": "{'colour': 'grey'}"}]}

    def test_the_examples_are_stored_once_and_can_be_run(self) -> None:
        assert load_examples() == list(OUTCOMES)
        assert load_examples() == []
        assert sorted(Flow.objects.runnable().values_list("name", flat=True)) == list(OUTCOMES)

    def test_what_a_user_made_of_an_example_stays(self) -> None:
        load_flow(document=self.MIX)
        assert load_examples() == ["invoice-extraction", "support-ticket-triage"]
        load_flow(document={**load_documents()["invoice-extraction"], "title": "Ours"}, note="Our own title")
        Flow.objects.filter(name="support-ticket-triage").update(is_archived=True, title="Old")
        assert load_examples() == []
        titles = dict(Flow.objects.values_list("name", "title"))
        assert titles == {"colour-theme": "colour-theme", "invoice-extraction": "Ours", "support-ticket-triage": "Old"}

    @pytest.mark.parametrize("has_later", [False, True])
    def test_an_untouched_example_of_an_earlier_release_is_updated_and_a_chosen_version_stays_live(
        self, has_later: bool
    ) -> None:
        first = load_flow(document=self.MIX, note=EXAMPLE_NOTE)
        if has_later:
            load_flow(document={**self.MIX, "title": "Mixed"}, note=EXAMPLE_NOTE)
        assert "colour-theme" in load_examples()
        flow = Flow.objects.get(name="colour-theme")
        assert flow.live_version == (first if has_later else flow.versions.first())
