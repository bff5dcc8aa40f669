"""Trying a step that is being edited: what it is tried on, its request, the verdict of its audits, and one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from flows.engine.history import History, Outcome
from flows.engine.plugins import Registry
from flows.engine.prompt import CURRENT_STEP_HEADING, PREVIOUS_STEPS_HEADING
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from runs.models import FlowSpending, RateLimit
from runs.stored_history import load_history
from runs.try_out import trial as trials
from runs.try_out.model_call import NotSentError, call_model
from runs.try_out.trial import Trial, TrialError, fetch_run, find_audited_output, try_on_run, try_on_texts
from tests.engine.builders import TEXT_SCHEMA, closed, make_attempt, make_flow, make_issue, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run
from tests.runs.executing import script
from tests.runs.pages.history_builders import make_stored_run


def audit(rule: str, name: str = "Check", **fields: Any) -> AuditSpec:
    return AuditSpec(name=name, rule=rule, **fields)


def try_typed(spec: FlowSpec, index: int = 1, input: str = '{"topic": "tea"}', **outputs: str) -> Trial:
    """A trial on typed values; outputs by name: ``step_1``."""
    texts = {int(name.removeprefix("step_")): text for name, text in outputs.items()}
    return try_on_texts(spec, index, input=input, outputs=texts)


@pytest.mark.django_db
class TestEarlierRun:
    def test_gives_the_attempts_before_the_step_and_those_of_the_step(self) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3))
        attempts = (make_attempt(1), make_attempt(2, 1, "failed"), make_attempt(2, 2), make_attempt(3))
        run = make_stored_run(*attempts, spec=spec)
        trial = try_on_run(spec, 2, run, load_history(run))
        assert [(attempt.step, attempt.number) for attempt in trial.before] == [(0, 1), (1, 1)]
        assert [attempt.outcome for attempt in trial.attempts] == [Outcome.FAILED, Outcome.PASSED]
        assert trial.notes == ()

    def test_that_is_too_short_is_refused(self) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3))
        run = make_stored_run(make_attempt(1), spec=spec, status="failed")
        for index, feedback_count, field in ((3, 0, "run"), (1, 2, "after_attempt")):
            with pytest.raises(TrialError) as refusal:
                try_on_run(spec, index, run, load_history(run), feedback_count=feedback_count)
            assert list(refusal.value.problems) == [field]

    def test_of_another_version_is_used_with_notes(self) -> None:
        run = make_stored_run(make_attempt(1), make_attempt(2), spec=make_flow(make_step(1), make_step(2)))
        steps = (make_step(1, name="Outline"), make_step(2), make_step(3))
        spec = make_flow(*steps, input_schema=closed(subject={"type": "string"}))
        trial = try_on_run(spec, 3, run, load_history(run))
        assert trial.before.initial_input == {"topic": "tea"}
        renamed, missing, misfit = trial.notes
        assert "step 1 was “Step 1”; here it is “Outline”" in renamed
        assert "there was no step 3" in missing
        assert "/topic" in misfit

    def test_is_found_by_its_number_among_those_of_the_flow(self) -> None:
        run = make_run()
        own = run.flow_id
        assert fetch_run(own, f" #{run.pk} ") == run
        numbers = ("twelve", "9" * 30, "", "99999")
        for flow, number in ((own + 1, run.pk), (None, run.pk), *((own, number) for number in numbers)):
            with pytest.raises(TrialError) as refusal:
                fetch_run(flow, str(number))
            assert list(refusal.value.problems) == ["run"]


class TestTypedValues:
    def test_are_the_input_and_the_outputs_of_earlier_steps_with_the_numbers_of_their_schemas(self) -> None:
        step = make_step(1, output_schema=closed(total={"type": "number"}))
        spec = make_flow(step, make_step(2), make_step(3), input_schema=closed(limit={"type": "number"}))
        trial = try_typed(spec, 3, input='{"limit": 3}', step_1='{"total": 4}', step_2="")
        values = [attempt.usable_output for attempt in trial.before]
        assert repr(values) == "[{'limit': 3.0}, {'total': 4.0}, None]"
        (note,) = try_typed(spec, 2, input='{"limit": 3}', step_1='{"total": "4"}').notes
        assert note.startswith("The output of step 1 doesn't fit its schema")

    def test_that_cant_be_used_are_all_named(self) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3), input_schema=closed(topic={"type": "string"}))
        with pytest.raises(TrialError) as refusal:
            try_typed(spec, 3, input='{"topic": 1}', step_1='{"text":\n  oops}', step_2="[]")
        problems = refusal.value.problems
        assert list(problems) == ["input", "output-1", "output-2"]
        assert "/topic" in problems["input"] and "Line 2, column 3" in problems["output-1"]


class TestRequest:
    def test_of_a_first_attempt_is_that_of_the_edited_step(self) -> None:
        step = make_step(1, system_message="Write.", input_expression="{'about': input.topic, '_id': 1}")
        request = try_typed(make_flow(step)).preview(Registry()).request
        assert request is not None
        assert [message["content"] for message in request["messages"]] == ["Write.", '{"about":"tea"}']
        assert request["tools"][0]["function"]["parameters"] == TEXT_SCHEMA

    def test_of_a_retry_has_feedback_and_the_input_as_it_is_built_now(self) -> None:
        spec = make_flow(make_step(1), make_step(2, include_results=(1,), input_expression="{'new': input.topic}"))
        first = make_attempt(1, 1, issues=(make_issue("high", "Too plain."),))
        before = try_typed(spec, 2, step_1='{"text": "x"}').before
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

    def test_of_a_local_step_is_its_output(self) -> None:
        spec = make_flow(make_step(1, compute="{'size': previous.about.size()}", input_expression="{'about': 'tea'}"))
        assert try_typed(spec).preview(Registry()).output == {"size": 3}


class TestVerdict:
    def judge(self, output: Any, *audits: AuditSpec, registry: Registry | None = None, **fields: Any) -> Any:
        spec = make_flow(make_step(1, audits=audits, **fields))
        return try_typed(spec).judge(output, registry or Registry())

    def test_lists_each_audit(self) -> None:
        verdict = self.judge(
            {"text": "tea"},
            audit("output.text == input.topic", "On topic"),
            audit("output.text.size() > 5", "Long", severity="medium", fail_at="never"),
            audit("output.text.size() > 9", "Very long", severity="high"),
        )
        assert [(one.audit.name, one.outcome.value, len(one.issues)) for one in verdict.audits] == [
            ("On topic", "passed", 0),
            ("Long", "passed", 1),
            ("Very long", "failed", 1),
        ]
        assert verdict.attempt.outcome is Outcome.FAILED

    def test_is_decided_by_the_pass_rule(self) -> None:
        verdict = self.judge({"text": "tea"}, audit("false"), pass_expression="issues.size() < 2")
        assert (verdict.audits[0].outcome, verdict.attempt.outcome) == (Outcome.FAILED, Outcome.PASSED)

    def test_has_no_audits_for_an_output_that_breaks_its_schema(self) -> None:
        verdict = self.judge({"text": 7}, audit("true"))
        assert (verdict.audits, verdict.was_audited) == ((), False)
        assert [issue.path for issue in verdict.attempt.issues] == ["/text"]

    @pytest.mark.parametrize("limit", ["MAX_PLUGIN_SECONDS", "MAX_TRY_SECONDS"])
    def test_gives_up_a_plugin_that_does_not_return(
        self, monkeypatch: pytest.MonkeyPatch, stuck: threading.Event, limit: str
    ) -> None:
        monkeypatch.setattr(trials, limit, 0.05)
        registry = Registry()
        registry.audit("slow")(lambda output: stuck.wait())
        verdict = self.judge({"text": "tea"}, audit("python:slow"), registry=registry)
        assert [issue.code for issue in verdict.attempt.issues] == ["audit_error"]
        assert verdict.audits[0].outcome is Outcome.FAILED

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
    def send(self, flow: Flow | None = None, *, retry_window: int | None = 0) -> Any:
        step = make_step(1, model="gpt-4.1", retry_window=retry_window)
        request = try_typed(make_flow(step)).preview(Registry()).request
        assert request is not None
        return call_model(request=request, step=step, flow_id=flow.pk if flow else None)

    @pytest.mark.parametrize(("window", "calls"), [(None, 2), (0, 1)])
    def test_without_an_answer_is_repeated_within_the_retry_window(
        self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, window: int | None, calls: int
    ) -> None:
        monkeypatch.setattr("flows.engine.planner.FIRST_BACKOFF", 0.001)
        script(provider, tool_1=[Fault(FaultKind.SERVER_ERROR), {"text": "tea"}])
        result = self.send(retry_window=window)
        assert len(provider.app.calls) == calls
        assert (result.reply.arguments if result.reply else result.error.code) == ({"text": "tea"}, "server_error")[
            calls == 1
        ]

    def test_that_fails_has_an_error(self, provider: ModelServer, settings: Any) -> None:
        settings.TOOLFLOW_OPENAI_API_KEY = "\N{SNOWMAN}"
        result = self.send()
        assert (result.reply, result.error.code, result.usage.reported) == (None, "not_configured", False)

    def test_is_charged_to_the_budget_of_its_flow_until_that_is_used_up(self, provider: ModelServer) -> None:
        flow = Flow.objects.create(name="example", title="Example", total_token_budget=1)
        result = self.send(flow)
        spending = FlowSpending.objects.get(flow=flow)
        assert (spending.tokens, spending.cost) == (result.usage.total, Decimal(0))
        assert result.usage.reported and result.usage.total > 0
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
