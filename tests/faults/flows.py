"""Flows for runs that die: short, and the same for all tests."""

from __future__ import annotations

from flows.engine.simulated_model import Script
from flows.engine.spec import AuditSpec, FlowSpec
from tests.engine.builders import make_flow, make_step

CALLS = 4
"""Calls of one undisturbed run of ``THREE_STEPS``."""

LONG_ENOUGH = AuditSpec(name="Long enough", rule="size(output.text) >= 10", message="'The text is too short.'")

THREE_STEPS: FlowSpec = make_flow(make_step(1), make_step(2, audits=[LONG_ENOUGH]), make_step(3))
"""Three steps, four calls: the first output of the second step fails its audit."""

POISON: FlowSpec = make_flow(
    make_step(1), make_step(2, audits=[AuditSpec(name="Poison", rule="python:poison")])
).model_copy(update={"name": "poison"})
"""Two steps, two calls; the audit of the second kills its worker if the input says ``{"is_poison": true}``."""

HANG: FlowSpec = make_flow(make_step(1), make_step(2, audits=[AuditSpec(name="Hang", rule="python:hang")])).model_copy(
    update={"name": "hang"}
)
"""Two steps, two calls; the audit of the second hangs its worker the first time."""

STALLS = ("output_sanitizer", "audit", "input_expression", "input_sanitizer")
"""The plug-ins of ``SLOW_PLUGINS``, in the order in which a run calls them."""

SLOW_PLUGINS: FlowSpec = make_flow(
    make_step(
        1,
        output_sanitizer="python:stall_output_sanitizer",
        audits=[AuditSpec(name="Stall", rule="python:stall_audit")],
    ),
    make_step(2, input_expression="python:stall_input_expression", input_sanitizer="python:stall_input_sanitizer"),
).model_copy(update={"name": "slow-plugins"})
"""Two steps, two calls; each plug-in returns only the second time it is called."""

SCRIPT = Script(
    {
        "tool_1": [{"text": "Leaves, water, time."}],
        "tool_2": [{"text": "Tea."}, {"text": "Tea is a warm drink."}],
        "tool_3": [{"text": "Tea is a warm drink that takes its time."}],
    }
)
