"""Trying a step that is being edited: what it is tried on, its request, the verdict of its audits, and one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from flows.engine.history import AttemptError, History, Outcome
from flows.engine.plugins import Registry
from flows.engine.prompt import CURRENT_STEP_HEADING, PREVIOUS_STEPS_HEADING
from flows.engine.reply import ToolReply
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from runs.models import FlowSpending, RateLimit
from runs.stored_history import load_history
from runs.try_out import trial as trials
from runs.try_out.model_call import NotSentError, call_model
from runs.try_out.trial import Trial, TrialError, find_audited_output, try_on_run, try_on_values
from tests.engine.builders import closed, make_attempt, make_flow, make_issue, make_step
from tests.engine.model_server import ModelServer
from tests.runs.executing import script
from tests.runs.pages.history_builders import make_stored_run


def audit(rule: str, name: str = "Check", **fields: Any) -> AuditSpec:
    return AuditSpec(name=name, rule=rule, **fields)


def try_typed(spec: FlowSpec, index: int = 1, input: Any = None, **outputs: Any) -> Trial:
    """A trial on typed values, about tea if there is no input; outputs by name: ``step_1``."""
    values = {int(name.removeprefix("step_")): output for name, output in outputs.items()}
    return try_on_values(spec, index, input or {"topic": "tea"}, values)


@pytest.mark.django_db
def test_a_run_of_another_version_is_used_with_notes() -> None:
    run = make_stored_run(make_attempt(1), make_attempt(2), spec=make_flow(make_step(1), make_step(2)))
    steps = (make_step(1, name="Outline"), make_step(2), make_step(3))
    spec = make_flow(*steps, input_schema=closed(subject={"type": "string"}))
    trial = try_on_run(spec, 3, run, load_history(run))
    assert trial.before.initial_input == {"topic": "tea"}
    renamed, missing, misfit = trial.notes
    assert "step 1 was “Step 1”; here it is “Outline”" in renamed
    assert "there was no step 3" in missing
    assert "/topic" in misfit


class TestTypedValues:
    def test_are_the_input_and_the_outputs_of_earlier_steps_with_the_numbers_of_their_schemas(self) -> None:
        step = make_step(1, output_schema=closed(total={"type": "number"}))
        spec = make_flow(step, make_step(2), make_step(3), input_schema=closed(limit={"type": "number"}))
        trial = try_typed(spec, 3, {"limit": 3}, step_1={"total": 4}, step_2=None)
        values = [attempt.usable_output for attempt in trial.before]
        assert repr(values) == "[{'limit': 3.0}, {'total': 4.0}, None]"
        (note,) = try_typed(spec, 2, {"limit": 3}, step_1={"total": "4"}).notes
        assert note.startswith("The output of step 1 doesn't fit its schema")

    def test_need_an_input_that_fits_its_schema(self) -> None:
        with pytest.raises(TrialError, match="/topic") as refusal:
            try_typed(make_flow(make_step(1), input_schema=closed(topic={"type": "string"})), 1, {"topic": 1})
        assert refusal.value.field == "input"


class TestRequest:
    def test_of_a_retry_has_feedback_and_the_input_as_it_is_built_now(self) -> None:
        spec = make_flow(make_step(1), make_step(2, include_results=(1,), input_expression="{'new': input.topic}"))
        first = make_attempt(1, 1, issues=(make_issue("high", "Too plain."),))
        before = try_typed(spec, 2, step_1={"text": "x"}).before
        before = History(before.run_id, (before.steps[0], (first,)))
        failed = make_attempt(2, 1, "failed", input={"old": 1})
        request = Trial(spec, 2, before, (failed,), feedback_count=1).preview(Registry()).request
        assert request is not None
        system, user = (message["content"] for message in request["messages"])
        assert all(
            part in system for part in (PREVIOUS_STEPS_HEADING, CURRENT_STEP_HEADING, "Too plain.", "Too short.")
        )
        assert user == '{"new":"tea"}'

    @pytest.mark.parametrize(
        ("fields", "index"),
        [({"input_expression": "{'x': input.no}"}, 2), ({}, 2), ({"output_schema": None}, 1), ({"compute": "[1]"}, 1)],
    )
    def test_that_cant_be_built_has_a_problem(self, fields: dict[str, Any], index: int) -> None:
        steps = [make_step(number) for number in range(1, index)]
        preview = try_typed(make_flow(*steps, make_step(index, **fields)), index).preview(Registry())
        assert (preview.request, preview.output, bool(preview.problem)) == (None, None, True)


class TestVerdict:
    def judge(self, output: Any, *audits: AuditSpec, registry: Registry | None = None, **fields: Any) -> Any:
        spec = make_flow(make_step(1, audits=audits, **fields))
        return try_typed(spec).judge(output, registry or Registry())

    def test_is_decided_by_the_pass_rule(self) -> None:
        attempt, audits = self.judge({"text": "tea"}, audit("false"), pass_expression="issues.size() < 2")
        assert (audits[0]["passed"], attempt.outcome) == (False, Outcome.PASSED)

    def test_gives_up_a_plugin_that_does_not_return(
        self, monkeypatch: pytest.MonkeyPatch, stuck: threading.Event
    ) -> None:
        monkeypatch.setattr(trials, "MAX_TRY_SECONDS", 0.05)
        registry = Registry()
        registry.audit("slow")(lambda output: stuck.wait())
        attempt, audits = self.judge({"text": "tea"}, audit("python:slow"), registry=registry)
        assert ([issue.code for issue in attempt.issues], audits[0]["passed"]) == (["audit_error"], False)

    def test_of_a_stored_output_is_about_what_came_back(self) -> None:
        assert find_audited_output(make_attempt(output={"a": 1}, raw_output={"a": 0})) == {"a": 0}
        assert find_audited_output(make_attempt(output={"a": 1})) == {"a": 1}
        assert find_audited_output(make_attempt(outcome="invalid", raw_output="Sorry, no.")) is None
        assert find_audited_output(make_attempt(outcome="errored")) is None


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """An event that plug-ins wait for until the test has ended."""
    end = threading.Event()
    yield end
    end.set()


@pytest.mark.django_db
class TestModelCall:
    def send(self, flow: Flow | None = None, *, retry_window: int | None = 0) -> ToolReply | AttemptError:
        trial = try_typed(make_flow(make_step(1, model="gpt-4.1", retry_window=retry_window)))
        request = trial.preview(Registry()).request
        assert request is not None
        return call_model(trial, request, flow_id=flow.pk if flow else None)[0]

    @pytest.mark.parametrize(("window", "calls"), [(None, 2), (0, 1)])
    def test_without_an_answer_is_repeated_within_the_retry_window(
        self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, window: int | None, calls: int
    ) -> None:
        monkeypatch.setattr("flows.engine.planner.FIRST_BACKOFF", 0.001)
        script(provider, tool_1=[Fault(FaultKind.SERVER_ERROR), {"text": "tea"}])
        answer = self.send(retry_window=window)
        assert len(provider.app.calls) == calls
        if isinstance(answer, AttemptError):
            assert (answer.code, calls) == ("server_error", 1)
        else:
            assert (answer.arguments, calls) == ({"text": "tea"}, 2)

    def test_that_fails_has_an_error(self, provider: ModelServer, settings: Any) -> None:
        settings.TOOLFLOW_OPENAI_API_KEY = "\N{SNOWMAN}"
        answer = self.send()
        assert isinstance(answer, AttemptError) and answer.code == "not_configured"

    def test_is_charged_to_the_budget_of_its_flow_until_that_is_used_up(self, provider: ModelServer) -> None:
        flow = Flow.objects.create(name="example", title="Example", total_token_budget=1)
        answer = self.send(flow)
        spending = FlowSpending.objects.get(flow=flow)
        assert isinstance(answer, ToolReply)
        assert (spending.tokens, spending.cost, spending.tokens > 0) == (answer.usage.total, Decimal(0), True)
        with pytest.raises(NotSentError, match="share a budget"):
            self.send(flow)
        assert len(provider.app.calls) == 1

    def test_goes_through_the_rate_limits_and_releases_its_permit(self, provider: ModelServer) -> None:
        RateLimit.objects.create(model="", calls_in_flight=1)
        self.send()
        RateLimit.objects.create(model="gpt-4*", requests_per_minute=1)
        self.send()
        with pytest.raises(NotSentError, match=r"Try again in \d+ [sm]"):
            self.send()
        keys = {call.idempotency_key for call in provider.app.calls}
        assert len(keys) == 2 and all(key is not None and key.startswith("try-") for key in keys)
