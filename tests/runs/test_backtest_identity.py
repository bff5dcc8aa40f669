"""Runs of a real worker come out of a backtest under their own definition as they are stored: no difference at all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from flows.engine.backtest import backtest_run
from flows.engine.backtest_result import BacktestKind, RunBacktest
from flows.engine.history import Severity
from flows.engine.model_calls import resolve_spec
from flows.engine.plugins import PythonFunction, registry
from flows.engine.simulated_model import Fault, FaultKind, Faults, Reply, Script, SimulatedModel
from flows.engine.simulated_model.script import draw_fraction
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings
from runs.models import Attempt, Run
from runs.queue import draining, force_quit
from runs.stored_history import load_history
from tests.conftest import IS_LONG
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]

RUNS = 500 if IS_LONG else 20
"""Of each of the two flows."""

FAULTS = Faults({"rate_limited": 0.02, "server_error": 0.02}, retry_after=0.05)
REPLIES: tuple[tuple[float, Reply], ...] = (
    (0.40, {"text": "Tea is a warm drink that Nora Holm likes."}),
    (0.15, {"text": "  Tea is warm,\u0000 and so is coffee, with milk.  "}),
    (0.15, {"text": "Tea."}),
    (0.10, {"text": "Tea is TERRIBLE!! says Anna."}),
    # What is redacted here is what an audit finds.
    (0.001, {"text": "Tea is warm, write to anna@example.com."}),
    (0.06, {"text": 5}),
    (0.04, {"words": "Tea is a warm drink."}),
    *((0.02, Fault(kind)) for kind in (FaultKind.MALFORMED, FaultKind.TRUNCATED, FaultKind.REFUSAL)),
)
LONG_ENOUGH = AuditSpec(
    name="Long enough",
    rule="size(output.text) >= 10",
    message="'The text has only ' + string(size(output.text)) + ' characters.'",
    path="'/text'",
)
QUIET = AuditSpec(
    name="Quiet",
    rule="!item.matches('^[A-Z]{2,}[!.,]*$')",
    for_each="output.text.split(' ')",
    severity=Severity.MEDIUM,
    message_template="“{item}” is loud.",
)
PYTHON = AuditSpec(name="No names", rule="python:no_names", severity=Severity.HIGH, message="item.description")
IN_TIME = AuditSpec(name="In time", rule="python:in_time", severity=Severity.LOW)

PLAIN = make_flow(
    make_step(
        1,
        output_sanitizer="{'text': value.text.trim()}",
        audits=[LONG_ENOUGH, QUIET],
        pass_expression="issues.map(issue, weight(issue.severity)).sum() < 5",
        failure_reason_expression="'it has ' + string(size(issues)) + ' issues.'",
    ),
    make_step(2, compute="{'text': previous.text.lowerAscii(), 'size': size(previous.text)}", audits=[LONG_ENOUGH]),
    make_step(
        3,
        input_expression="{'topic': input.topic, 'said': steps[2].output.text, '_own': steps[1].issues.size()}",
        input_sanitizer="{'topic': value.topic, 'said': value.said.trim(), '_own': 1}",
        audits=[LONG_ENOUGH, QUIET],
        stop_on_failure=False,
        max_retries=1,
    ),
    make_step(4, input_expression="input", include_results=[1, 3], issue_severity_filter="low", audits=[LONG_ENOUGH]),
)
WITH_MORE = make_flow(
    make_step(1, audits=[LONG_ENOUGH, PYTHON, IN_TIME], output_sanitizer="python:tidy"),
    make_step(2, compute="python:count_words"),
    make_step(3, input_expression="{'count': previous.count}", audits=[LONG_ENOUGH, QUIET, PYTHON]),
    redact=["/customer", "email"],
).model_copy(update={"name": "with-more"})


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any) -> Iterator[None]:
    def no_names(output: dict[str, Any], input: dict[str, Any]) -> list[dict[str, Any]]:
        words = output["text"].split()
        return [{"description": f"“{word}” is a name.", "path": "/text"} for word in words if "anna" in word.lower()]

    def in_time() -> bool:
        return datetime.now(UTC).year > 2000

    audits = {"no_names": no_names, "in_time": in_time}
    functions = {
        "tidy": lambda value: {"text": " ".join(str(value["text"]).split())},
        "count_words": lambda previous: {"count": len(previous["text"].split())},
    }
    for kind, made in ((registry.audits, audits), (registry.functions, functions)):
        for name, function in made.items():
            monkeypatch.setitem(kind, name, PythonFunction(name, function))
    settings.TOOLFLOW_DATA_DIR = tmp_path
    yield
    draining.clear()
    force_quit.clear()


def reply(body: dict[str, Any], _input: Any) -> Any:
    """A reply that depends on the request alone."""
    left = draw_fraction("identity", json.dumps(body))
    for share, found in REPLIES:
        left -= share
        if left < 0:
            return found
    return REPLIES[0][1]


def run_all(provider: ModelServer, spec: FlowSpec) -> list[RunBacktest]:
    """Let a worker make runs of a flow, and backtest each under its own definition."""
    script = Script({step.tool_name: [reply] for step in spec.steps if step.tool_name})
    provider.app = SimulatedModel(script=script, faults=FAULTS)
    version = make_version(spec)
    for number in range(RUNS):
        make_run(version, input={"topic": f"tea {number}", "customer": "Nora Holm"})
    while Run.objects.filter(ended_at=None).exists():
        drain()
    own = resolve_spec(version.flow_spec, ModelSettings(model="gpt-5-mini"))
    histories = [load_history(run) for run in Run.objects.order_by("pk")]

    async def judge() -> list[RunBacktest]:
        return [await backtest_run(own, own, history) for history in histories]

    return asyncio.run(judge())


def list_left_out(found: list[RunBacktest]) -> Counter[str]:
    """The runs of which nothing can be said, by reason; all others are the same to the last issue."""
    same = [one for one in found if one.kind is BacktestKind.SAME]
    assert all(one.ended == one.ends and not (one.gone or one.new or one.attempts_saved) for one in same)
    return Counter(str(one.reason) for one in found if one.kind is not BacktestKind.SAME)


def assert_varied() -> None:
    """Assert that the runs hold what is asked for."""
    outcomes = Counter(Attempt.objects.values_list("outcome", flat=True))
    assert outcomes["passed"] and outcomes["failed"] and outcomes["invalid"]
    assert Run.objects.filter(retry_count__gt=0).exists()
    assert Attempt.objects.exclude(raw_output=None).exists()
    if IS_LONG:
        assert {*Run.objects.values_list("status", flat=True)} == {"succeeded", "failed"} and outcomes["errored"]


def test_without_plug_ins_and_redaction_no_run_is_left_out(provider: ModelServer) -> None:
    found = run_all(provider, PLAIN)
    assert_varied()
    assert len(found) == RUNS and not list_left_out(found)


def test_with_them_at_most_one_in_a_hundred_is_left_out_with_its_reason(provider: ModelServer) -> None:
    found = run_all(provider, WITH_MORE)
    assert_varied()
    left_out = list_left_out(found)
    assert sum(left_out.values()) <= RUNS / 100, left_out
    assert left_out.keys() <= {"redacted", "plugin_changed", "differs"}
