"""Trying a step that is being edited: what it works on, what it would send, what its audits say, and one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from flows.engine.history import Outcome
from flows.engine.plugins import Registry
from flows.engine.prompt import CURRENT_STEP_HEADING, PREVIOUS_STEPS_HEADING
from flows.engine.simulated_model import Fault, FaultKind
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from runs.models import FlowSpending, RateLimit
from runs.stored_history import load_history
from runs.try_out import patience
from runs.try_out.basis import Basis, BasisError, base_on_run, base_on_texts, find_run
from runs.try_out.model_call import NotSentError, call_model
from runs.try_out.preview import preview_attempt
from runs.try_out.verdict import find_output, judge
from tests.engine.builders import TEXT_SCHEMA, closed, make_attempt, make_flow, make_issue, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run
from tests.runs.executing import script
from tests.runs.pages.history_builders import make_stored_run

NUMBERS = closed(numbers={"type": "array", "items": {"type": "integer"}})
LOOPS = "output.numbers.all(a, output.numbers.all(b, output.numbers.all(c, a + b + c >= 0)))"


def audit(rule: str, name: str = "Check", **fields: Any) -> AuditSpec:
    return AuditSpec(name=name, rule=rule, **fields)


def type_values(spec: FlowSpec, index: int = 1, input: str = '{"topic": "tea"}', **outputs: str) -> Basis:
    """A basis of typed values; outputs by name: ``step_1``."""
    texts = {int(name.removeprefix("step_")): text for name, text in outputs.items()}
    return base_on_texts(spec, index, input=input, outputs=texts)


class TestAnEarlierRun:
    pytestmark = pytest.mark.django_db

    def test_gives_what_happened_before_the_step_and_shows_what_became_of_it(self) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3))
        run = make_stored_run(
            make_attempt(1), make_attempt(2, 1, "failed"), make_attempt(2, 2), make_attempt(3), spec=spec
        )
        basis = base_on_run(run, load_history(run), spec, 2)
        assert [(attempt.step, attempt.number) for attempt in basis.history] == [(0, 1), (1, 1)]
        assert [attempt.outcome for attempt in basis.attempts] == [Outcome.FAILED, Outcome.PASSED]
        assert basis.notes == ()

    def test_can_be_followed_as_a_retry_would(self) -> None:
        spec = make_flow(make_step(1), make_step(2))
        run = make_stored_run(make_attempt(1), make_attempt(2, 1, "failed"), make_attempt(2, 2), spec=spec)
        basis = base_on_run(run, load_history(run), spec, 2, told_of=1)
        assert [(attempt.step, attempt.number) for attempt in basis.history] == [(0, 1), (1, 1), (2, 1)]
        with pytest.raises(BasisError, match=f"Run {run.pk} has no attempt 3 of step 2") as refusal:
            base_on_run(run, load_history(run), spec, 2, told_of=3)
        assert list(refusal.value.problems) == ["after_attempt"]

    def test_that_did_not_get_so_far_is_refused_with_the_step_that_is_missing(self) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3))
        run = make_stored_run(make_attempt(1), spec=spec, status="failed")
        with pytest.raises(BasisError, match=r"can't be used for step 3: no attempt of step 2 has ended in it"):
            base_on_run(run, load_history(run), spec, 3)

    def test_of_a_version_with_other_steps_says_which(self) -> None:
        run = make_stored_run(make_attempt(1), make_attempt(2), spec=make_flow(make_step(1), make_step(2)))
        spec = make_flow(make_step(1, name="Outline"), make_step(2), make_step(3))
        basis = base_on_run(run, load_history(run), spec, 3)
        where = f"In run {run.pk} (version 1)"
        assert basis.notes == (
            f"{where} step 1 was “Step 1”; here it is “Outline”.",
            f"{where} there was no step 3.",
        )

    def test_whose_input_no_longer_fits_is_used_and_says_so(self) -> None:
        run = make_stored_run(make_attempt(1), spec=make_flow())
        spec = make_flow(input_schema=closed(subject={"type": "string"}))
        basis = base_on_run(run, load_history(run), spec, 1)
        assert basis.before.initial_input == {"topic": "tea"}
        assert "doesn't fit the input schema as it is now." in basis.notes[0]
        assert "/topic: `topic` is not expected" in basis.notes[0]

    def test_is_found_by_its_number_and_only_among_those_of_the_flow(self) -> None:
        run = make_run()
        assert find_run(run.flow_id, f" #{run.pk} ") == run
        for flow, number, sentence in (
            (run.flow_id, "twelve", "“twelve” is no number of a run"),
            (run.flow_id, "9" * 30, "is no number of a run"),
            (run.flow_id, "", "is no number of a run"),
            (run.flow_id, "99999", "There is no run 99999."),
            (run.flow_id + 1, str(run.pk), "is a run of another flow"),
            (None, str(run.pk), "is a run of another flow"),
        ):
            with pytest.raises(BasisError, match=sentence):
                find_run(flow, number)


class TestTypedValues:
    def test_stand_for_the_input_and_for_the_outputs_of_earlier_steps(self) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3))
        basis = type_values(spec, 3, step_1='{"text": "one"}', step_2="")
        assert [attempt.usable_output for attempt in basis.before] == [{"topic": "tea"}, {"text": "one"}, None]

    def test_get_the_numbers_that_their_schemas_name(self) -> None:
        step = make_step(1, output_schema=closed(total={"type": "number"}))
        spec = make_flow(step, make_step(2), input_schema=closed(limit={"type": "number"}))
        basis = type_values(spec, 2, input='{"limit": 3}', step_1='{"total": 4}')
        values = [attempt.output for attempt in basis.before]
        assert [type(value) for value in (values[0]["limit"], values[1]["total"])] == [float, float]

    def test_that_cant_be_read_are_all_named_with_line_and_column(self) -> None:
        spec = make_flow(make_step(1), make_step(2), make_step(3), input_schema=closed(topic={"type": "string"}))
        with pytest.raises(BasisError) as caught:
            type_values(spec, 3, input='{"topic": 1}', step_1='{"text":\n  oops}', step_2="[]")
        problems = caught.value.problems
        assert list(problems) == ["input", "output-1", "output-2"]
        assert problems["input"].startswith("The input doesn't fit the input schema. /topic:")
        assert problems["output-1"].startswith("Line 2, column 3:")
        assert problems["output-2"] == "A JSON object is expected, got a list."

    def test_that_break_the_schema_of_their_step_are_used_and_say_so(self) -> None:
        spec = make_flow(make_step(1), make_step(2))
        basis = type_values(spec, 2, step_1='{"text": 7}')
        assert basis.notes == ("The output of step 1 doesn't fit its schema: a run would not hand it on.",)


class TestTheRequest:
    async def test_is_the_one_of_a_first_attempt(self) -> None:
        spec = make_flow(make_step(1, system_message="Write.", input_expression="{'about': input.topic, '_id': 1}"))
        preview = await preview_attempt(spec, type_values(spec), 1, Registry())
        assert preview.request is not None
        assert preview.request["messages"] == [
            {"role": "system", "content": "Write."},
            {"role": "user", "content": '{"about":"tea"}'},
        ]
        assert preview.request["tools"][0]["function"]["parameters"] == TEXT_SCHEMA

    async def test_of_a_retry_tells_of_earlier_attempts_and_works_on_the_input_as_it_is_made_now(self) -> None:
        spec = make_flow(make_step(1), make_step(2, include_results=(1,), input_expression="{'new': input.topic}"))
        before = type_values(spec, 2, step_1='{"text": "x"}').before
        issue = make_issue("high", "Too plain.")
        first = make_attempt(1, 1, issues=(issue,))
        before = before.model_copy(update={"steps": (before.steps[0], (first,))})
        failed = make_attempt(2, 1, "failed", input={"old": 1})
        basis = Basis(before, (failed,), told_of=1)
        preview = await preview_attempt(spec, basis, 2, Registry())
        assert preview.request is not None
        system, user = (message["content"] for message in preview.request["messages"])
        assert PREVIOUS_STEPS_HEADING in system and "Too plain." in system
        assert CURRENT_STEP_HEADING in system and "Too short." in system
        assert user == '{"new":"tea"}'

    async def test_says_what_the_engine_would_say_where_there_is_none(self) -> None:
        spec = make_flow(make_step(1), make_step(2, input_expression="{'x': input.missing}"), make_step(3))
        preview = await preview_attempt(spec, type_values(spec, 2), 2, Registry())
        assert preview.request is None
        assert preview.problem.startswith("Step 2 “Step 2”, input_expression:")
        preview = await preview_attempt(spec, type_values(spec, 3), 3, Registry())
        assert "has no input: the step before it left no usable output" in preview.problem
        spec = make_flow(make_step(1, output_schema=None))
        preview = await preview_attempt(spec, type_values(spec), 1, Registry())
        assert preview.problem == "The request can't be built yet: it needs a tool name and an output schema."

    async def test_of_a_local_step_is_what_it_computes(self) -> None:
        spec = make_flow(make_step(1, compute="{'size': input.topic.size()}"), make_step(2, compute="[1]"))
        preview = await preview_attempt(spec, type_values(spec), 1, Registry())
        assert (preview.output, preview.problem) == ({"size": 3}, "")
        preview = await preview_attempt(spec, type_values(spec, 2, step_1="{}"), 2, Registry())
        assert preview.problem == "The step could not be computed: it gave a list; a map is needed."
        prepared = make_flow(make_step(1, compute="previous", input_expression="{'about': input.topic}"))
        assert (await preview_attempt(prepared, type_values(prepared), 1, Registry())).output == {"about": "tea"}


class TestTheVerdict:
    async def judge(self, output: Any, *audits: AuditSpec, registry: Registry | None = None, **fields: Any) -> Any:
        spec = make_flow(make_step(1, audits=audits, **fields))
        return await judge(spec, type_values(spec), 1, output, registry or Registry())

    async def test_tells_audit_by_audit(self) -> None:
        verdict = await self.judge(
            {"text": "tea"},
            audit("output.text == input.topic", "On topic"),
            audit("output.text.size() > 5", "Long", severity="medium", fail_at="never"),
            audit("output.text.size() > 9", "Very long", severity="high"),
        )
        assert [(one.name, one.fail_at, one.passed, len(one.issues)) for one in verdict.audits] == [
            ("On topic", "critical", True, 0),
            ("Long", "never", True, 1),
            ("Very long", "high", False, 1),
        ]
        assert verdict.judgement.outcome is Outcome.FAILED

    async def test_leaves_the_decision_to_the_pass_rule(self) -> None:
        strict = audit("false", "Strict")
        verdict = await self.judge({"text": "tea"}, strict, pass_expression="issues.size() < 2")
        assert [one.passed for one in verdict.audits] == [False]
        assert verdict.judgement.outcome is Outcome.PASSED

    async def test_asks_no_audit_about_an_output_that_breaks_its_schema(self) -> None:
        verdict = await self.judge({"text": 7}, audit("true"))
        assert (verdict.audits, verdict.was_audited) == ((), False)
        assert [issue.path for issue in verdict.judgement.issues] == ["/text"]

    async def test_an_explosive_rule_is_stopped_and_is_a_critical_issue(self) -> None:
        verdict = await self.judge({"numbers": list(range(2_000))}, audit(LOOPS, "Sums"), output_schema=NUMBERS)
        (issue,) = verdict.judgement.issues
        assert (issue.code, issue.severity) == ("audit_error", "critical")
        assert "The expression was stopped: it took longer than 2 s." in issue.description
        assert not verdict.audits[0].passed

    async def test_a_plug_in_that_does_not_return_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch, stuck: threading.Event
    ) -> None:
        monkeypatch.setattr(patience, "LONGEST_PLUGIN", 0.05)
        registry = Registry()
        registry.audit("slow")(lambda output: stuck.wait())
        verdict = await self.judge({"text": "tea"}, audit("python:slow", "Slow"), registry=registry)
        assert "did not return within 0.05 seconds" in verdict.judgement.issues[0].description

    async def test_all_audits_together_have_an_end(
        self, monkeypatch: pytest.MonkeyPatch, stuck: threading.Event
    ) -> None:
        monkeypatch.setattr(patience, "LONGEST_TRY", 0)
        registry = Registry()
        registry.audit("slow")(lambda output: stuck.wait())
        verdict = await self.judge({"text": "tea"}, audit("python:slow", "Slow"), registry=registry)
        assert "Trying the step took longer than 0 seconds." in verdict.judgement.issues[0].description

    def test_a_stored_output_is_judged_as_it_came(self) -> None:
        assert find_output(make_attempt(output={"a": 1}, raw_output={"a": 0})) == {"a": 0}
        assert find_output(make_attempt(output={"a": 1})) == {"a": 1}
        assert find_output(make_attempt(outcome="invalid", raw_output="Sorry, no.")) is None
        assert find_output(make_attempt(outcome="errored")) is None


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """What plug-ins wait for that do not return before the test has ended."""
    end = threading.Event()
    yield end
    end.set()


@pytest.mark.django_db
class TestOneCall:
    def send(self, flow: Flow | None = None, *, retry_window: int | None = 0) -> Any:
        request = {
            "model": "gpt-4.1",
            "messages": [{"role": "user", "content": "{}"}],
            "tools": [{"type": "function", "function": {"name": "tool_1", "strict": True, "parameters": TEXT_SCHEMA}}],
            "tool_choice": {"type": "function", "function": {"name": "tool_1"}},
        }
        flow_id = flow.pk if flow else None
        step = make_step(1, model="gpt-4.1", retry_window=retry_window)
        return call_model(request=request, step=step, flow_id=flow_id, timeout=30)

    def test_brings_an_answer_and_says_what_it_used(self, provider: ModelServer) -> None:
        script(provider, tool_1=[{"text": "tea"}])
        result = self.send()
        assert result.reply.arguments == {"text": "tea"}
        assert result.usage.reported and result.usage.total > 0
        assert [call.body["model"] for call in provider.app.calls] == ["gpt-4.1"]

    @pytest.mark.parametrize(("window", "calls"), [(None, 2), (0, 1)])
    def test_a_call_without_an_answer_is_repeated_within_the_retry_window(
        self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, window: int | None, calls: int
    ) -> None:
        monkeypatch.setattr("flows.engine.planner.FIRST_BACKOFF", 0.001)
        script(provider, tool_1=[Fault(FaultKind.SERVER_ERROR), {"text": "tea"}])
        result = self.send(retry_window=window)
        assert (len(provider.app.calls), result.reply is not None) == (calls, calls == 2)

    def test_is_made_once_with_a_key_of_its_own(self, provider: ModelServer) -> None:
        self.send()
        self.send()
        keys = [call.idempotency_key for call in provider.app.calls]
        assert len(set(keys)) == 2
        assert all(key.startswith("try-") for key in keys)

    def test_that_fails_says_why_and_is_not_tried_again(self, provider: ModelServer, settings: Any) -> None:
        settings.TOOLFLOW_OPENAI_API_KEY = "\N{SNOWMAN}"
        result = self.send()
        assert result.reply is None
        assert result.error.code == "not_configured"
        assert not result.usage.reported

    def test_is_charged_to_the_total_budget_of_its_flow(self, provider: ModelServer) -> None:
        flow = Flow.objects.create(name="example", title="Example", total_token_budget=1_000_000)
        result = self.send(flow)
        spending = FlowSpending.objects.get(flow=flow)
        assert (spending.tokens, spending.cost) == (result.usage.total, Decimal(0))

    def test_is_not_made_once_that_budget_is_used_up(self, provider: ModelServer) -> None:
        flow = Flow.objects.create(name="example", title="Example", total_token_budget=1)
        self.send(flow)
        with pytest.raises(NotSentError, match=r"Nothing was sent\. All runs of the flow “Example” share a budget"):
            self.send(flow)
        assert len(provider.app.calls) == 1

    def test_goes_through_the_limits_of_the_provider(self, provider: ModelServer) -> None:
        RateLimit.objects.create(model="gpt-4*", requests_per_minute=1)
        self.send()
        with pytest.raises(
            NotSentError,
            match=r"a call now waits for the rate limit of gpt-4\*: 1 request a minute\. Try again in \d+ [sm]",
        ):
            self.send()
        assert len(provider.app.calls) == 1

    def test_gives_its_place_back(self, provider: ModelServer) -> None:
        RateLimit.objects.create(model="", calls_in_flight=1)
        self.send()
        self.send()
        assert len(provider.app.calls) == 2
