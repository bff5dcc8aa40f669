"""What a candidate would have decided over stored runs: one planted case for each kind and each setting."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from flows.engine import (
    AuditSpec,
    BacktestKind,
    BacktestReason,
    EndStatus,
    FlowSpec,
    History,
    RunBacktest,
    Severity,
    TokenUsage,
    backtest_run,
    backtest_runs_sync,
    find_untestable,
)
from flows.engine.plugins import Registry
from flows.engine.redaction import Redactor
from flows.engine.spec import FailAt, StepSpec
from tests.engine.builders import make_flow, make_history, make_step
from tests.engine.executions import LENGTH, LONG, SHORT, execute, simulate

TEA = AuditSpec(name="Tea", rule="output.text.contains('Tea')", severity=Severity.HIGH)
"""Passes on both; ``NO_TEA`` and ``COFFEE`` on neither, the second of them only warning."""
COFFEE = AuditSpec(name="Coffee", rule="output.text.contains('Coffee')", severity=Severity.LOW, fail_at=FailAt.NEVER)
NO_TEA = AuditSpec(name="No tea", rule="!output.text.contains('Tea')")


def change(flow: FlowSpec, index: int = 1, **fields: Any) -> FlowSpec:
    """The flow with other fields in one step."""
    steps = list(flow.steps)
    steps[index - 1] = steps[index - 1].model_copy(update=fields)
    return flow.model_copy(update={"steps": tuple(steps)})


def run(flow: FlowSpec, registry: Registry | None = None, **replies: list[Any]) -> History:
    """The history of a run on the simulated model, each model attempt of which used 10 tokens for a cent."""
    app = simulate(**replies)
    end = asyncio.run(execute(flow, app, registry=registry or Registry()))
    usage = TokenUsage(prompt=6, completion=4, total=10, cost=Decimal("0.01"))
    priced = [one if one.model is None else one.model_copy(update={"usage": usage}) for one in end.history]
    return History.from_attempts(priced, run_id=end.history.run_id)


def ask(flow: FlowSpec, candidate: FlowSpec, history: History, **options: Any) -> RunBacktest:
    options.setdefault("registry", Registry())
    return asyncio.run(backtest_run(flow, candidate, history, **options))


def make_audited(*audits: AuditSpec, number: int = 1, **fields: Any) -> StepSpec:
    return make_step(number, audits=audits, **fields)


ONE = make_flow(make_audited(LENGTH, COFFEE))
"""One step that passes on ``LONG``, always with a low issue."""


class TestKinds:
    def test_a_run_that_errored_for_want_of_an_input_may_go_on(self) -> None:
        # What step 1 brought breaks its schema.
        flow = make_flow(make_step(1, stop_on_failure=False, max_retries=0), make_step(2))
        history = run(flow, tool_1=[{"text": 5}])
        same = ask(flow, flow, history)
        assert (same.kind, same.ended, same.ends) == (BacktestKind.SAME, EndStatus.ERRORED, EndStatus.ERRORED)
        fixed = ask(flow, change(flow, output_sanitizer="{'text': string(value.text)}"), history)
        assert (fixed.kind, fixed.reason) == (BacktestKind.BEYOND, BacktestReason.NOT_REACHED)
        failed = ask(flow, change(flow, stop_on_failure=True), history)
        assert (failed.kind, failed.ends) == (BacktestKind.SOONER, EndStatus.FAILED)

    def test_a_new_audit_refuses_and_the_next_call_is_a_lower_bound(self) -> None:
        history = run(ONE, tool_1=[SHORT, LONG])
        found = ask(ONE, change(ONE, audits=(*ONE.steps[0].audits, NO_TEA)), history)
        assert (found.kind, found.blocking, found.ends) == (BacktestKind.REFUSED, (1, 2), None)
        assert (found.further_calls, found.further.cost) == (1, Decimal("0.01"))
        assert [(one.attempt, one.issue.audit) for one in found.new] == [(1, "No tea"), (2, "No tea")]
        assert found.is_hypothetical  # attempt 2 was not told of the new issue

    @pytest.mark.parametrize("dropped", [0, 1])
    def test_a_step_that_is_dropped_saves_its_attempts_wherever_it_stands(self, dropped: int) -> None:
        flow = make_flow(make_audited(LENGTH), make_audited(TEA, number=2, input_expression="{'topic': input.topic}"))
        history = run(flow, tool_1=[SHORT, LONG], tool_2=[SHORT, LONG])
        rest = flow.model_copy(update={"steps": tuple(one for one in flow.steps if one is not flow.steps[dropped])})
        found = ask(flow, rest, history)
        attempts = len(history.attempts(dropped + 1))
        assert (found.kind, found.ends) == (BacktestKind.SOONER, EndStatus.SUCCEEDED)
        assert (found.attempts_saved, found.retries_saved) == (attempts, attempts - 1)

    def test_outputs_that_were_removed(self) -> None:
        history = run(ONE, tool_1=[LONG])
        emptied = History.from_attempts(
            [one.model_copy(update={"output": None} if one.step else {}) for one in history], run_id="run-1"
        )
        for found in (ask(ONE, ONE, emptied), ask(ONE, ONE, history, is_removed=True)):
            assert (found.kind, found.reason) == (BacktestKind.REMOVED, BacktestReason.OUTPUTS_REMOVED)


class TestWhatFollows:
    FLOW = make_flow(make_audited(LENGTH), make_audited(TEA, number=2))

    @pytest.mark.parametrize(
        "fields",
        [
            {"system_message": "Not like {steps[1].output.text}", "input_expression": "{'topic': 1}"},
            {"include_results": (1,), "issue_severity_filter": "low", "input_expression": "{'topic': 1}"},
        ],
    )
    def test_what_a_prompt_shows_of_an_earlier_step_is_input_too(self, fields: dict[str, Any]) -> None:
        flow = change(self.FLOW, 2, **fields)
        found = ask(flow, change(flow, audits=()), run(flow, tool_1=[SHORT, LONG], tool_2=[LONG]))
        assert found.reason is BacktestReason.INPUT_DIFFERS

    def test_a_renamed_step_is_found_and_a_new_one_was_never_asked(self) -> None:
        history = run(self.FLOW, tool_1=[SHORT, LONG], tool_2=[LONG])
        assert ask(self.FLOW, change(self.FLOW, 2, name="Other"), history).kind is BacktestKind.SAME
        first, second = self.FLOW.steps
        longer = self.FLOW.model_copy(update={"steps": (first, make_step(3), second)})
        found = ask(self.FLOW, longer, history)
        assert (found.kind, found.reason) == (BacktestKind.BEYOND, BacktestReason.NEW_STEP)
        removed = ask(self.FLOW, self.FLOW.model_copy(update={"steps": (second,)}), history)
        assert removed.reason is BacktestReason.INPUT_DIFFERS


class TestSettings:
    @pytest.mark.parametrize("budget", [{"token_budget": 10}, {"cost_budget": Decimal("0.01")}])
    def test_a_budget_that_is_used_up(self, budget: dict[str, Any]) -> None:
        history = run(ONE, tool_1=[SHORT, LONG])
        found = ask(ONE, ONE.model_copy(update=budget), history)
        assert (found.kind, found.ends, found.blocking) == (BacktestKind.REFUSED, EndStatus.ERRORED, (1, 1))

    def test_another_message_makes_later_attempts_hypothetical(self) -> None:
        other = LENGTH.model_copy(update={"message": "'More, please.'"})
        for replies, expected in ([SHORT, LONG], True), ([LONG], False):
            found = ask(ONE, change(ONE, audits=(other, COFFEE)), run(ONE, tool_1=replies))
            assert (found.kind, found.is_hypothetical) == (BacktestKind.SAME, expected)


class TestIdentity:
    def test_what_does_not_come_out_as_stored_is_left_out(self) -> None:
        other = change(ONE, audits=(NO_TEA,))
        found = ask(other, ONE, run(ONE, tool_1=[SHORT, LONG]))
        assert (found.kind, found.reason) == (BacktestKind.NOT_REPRODUCIBLE, BacktestReason.DIFFERS)
        assert (found.step, found.attempt) == (1, 1)

    def test_plug_ins(self) -> None:
        then, now, impure = Registry(), Registry(), Registry()
        then.audit("check")(lambda output: len(output["text"]) > 5)
        now.audit("check")(lambda output: output["text"] == "")
        impure.audit("check", pure=False)(then.audits["check"].function)
        flow = make_flow(make_audited(AuditSpec(name="Check", rule="python:check")))
        history = run(flow, then, tool_1=[SHORT, LONG])
        assert ask(flow, flow, history, registry=then).kind is BacktestKind.SAME
        for registry, reason in (
            (now, BacktestReason.PLUGIN_CHANGED),
            (Registry(), BacktestReason.MISSING_PLUGIN),
            (impure, BacktestReason.IMPURE_PLUGIN),
        ):
            assert ask(flow, flow, history, registry=registry).reason is reason
        found = ask(ONE, flow, run(ONE, tool_1=[LONG]), registry=impure)
        assert (found.kind, found.reason) == (BacktestKind.NOT_REPRODUCIBLE, BacktestReason.IMPURE_PLUGIN)

    @pytest.mark.parametrize(
        "fields",
        [
            {"audits": (AuditSpec(name="Impure", rule="python:impure"),)},
            {"audits": (AuditSpec(name="Impure", rule="false", message="python:impure"),)},
            *(
                {field: "python:impure"}
                for field in ("compute", "input_expression", "input_sanitizer", "output_sanitizer")
            ),
            *({field: "python:impure"} for field in ("pass_expression", "failure_reason_expression")),
        ],
    )
    def test_impure_plug_ins_of_a_new_local_step_are_not_called(self, fields: dict[str, Any]) -> None:
        registry, calls = Registry(), []
        for register in (registry.audit, registry.function):
            register("impure", pure=False)(lambda: calls.append(1))
        step = make_step(2, **{"compute": "{'text': 'Tea'}", **fields})
        found = ask(
            ONE, ONE.model_copy(update={"steps": (*ONE.steps, step)}), run(ONE, tool_1=[LONG]), registry=registry
        )
        assert (found.kind, found.reason, calls) == (
            BacktestKind.NOT_REPRODUCIBLE,
            BacktestReason.IMPURE_PLUGIN,
            [],
        )

    def test_impure_output_types_are_not_asked(self) -> None:
        registry, calls = Registry(), []

        class Answer(BaseModel):
            text: str

            def audit(self) -> None:
                calls.append(1)

        registry.output_type("Answer", pure=False)(Answer)
        flow = make_flow(make_step(1, output_type="Answer"))
        history = run(flow, registry, tool_1=[SHORT])
        calls.clear()
        assert ask(flow, flow, history, registry=registry).reason is BacktestReason.IMPURE_PLUGIN
        assert not calls

    def test_a_rule_that_reads_what_was_redacted(self) -> None:
        for rule, reason in (("input.topic == 'secret'", BacktestReason.REDACTED), ("output.text != 'x'", None)):
            flow = make_flow(make_audited(AuditSpec(name="Rule", rule=rule)), redact=("/topic",))
            end = asyncio.run(execute(flow, simulate(tool_1=[LONG]), make_history(input={"topic": "secret"})))
            stored = Redactor.of(flow.redact, {"topic": "secret"}).redact_history(end.history)
            assert ask(flow, flow, stored).reason is reason

    def test_notes_of_what_was_replaced_in_a_reply_stay(self) -> None:
        history = run(ONE, tool_1=[{"text": "Tea is \0 a drink."}])
        assert history.attempts(1)[0].issues[0].code == "cleaned_output"
        assert ask(ONE, ONE, history).kind is BacktestKind.SAME


class TestTotals:
    HISTORIES = (
        [run(ONE, tool_1=[SHORT, LONG])] * 3 + [run(ONE, tool_1=[LONG])] * 4 + [run(ONE, tool_1=[SHORT, SHORT, LONG])]
    )

    def test_batches_add_up_to_the_whole(self) -> None:
        candidate = change(ONE, audits=(COFFEE,))
        runs = [(ONE, history) for history in self.HISTORIES]
        whole = backtest_runs_sync(candidate, runs, registry=Registry())
        parts = [backtest_runs_sync(candidate, part, registry=Registry()) for part in (runs[:3], runs[3:])]
        assert parts[0] + parts[1] == whole
        sooner = whole.find(BacktestKind.SOONER)
        assert (whole.runs, sooner.runs, sooner.attempts_saved, sooner.saved.cost) == (8, 4, 5, Decimal("0.05"))
        assert [(one.audit, one.fired_before, one.fired_after, one.gone) for one in whole.audits] == [
            ("Coffee", 8, 8, 0),
            ("Length", 4, 0, 4),
        ]

    def test_what_only_a_trial_can_tell(self) -> None:
        flow = make_flow(make_step(1), make_step(2, model=None), make_step(3, compute="{'text': ''}"))
        candidate = change(change(flow, 1, system_message="Other.", max_retries=1), 3, input_expression="{'a': 1}")
        candidate = candidate.model_copy(update={"model": "gpt-4o", "steps": (*candidate.steps, make_step(4))})
        pointers = [problem.path for problem in find_untestable(flow, candidate)]
        assert pointers == ["/steps/0/system_message", "/model", "/steps/3"]
        assert find_untestable(flow, flow) == []
