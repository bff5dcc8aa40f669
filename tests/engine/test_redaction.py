"""Redaction: what a flow says must not be kept is in no attempt, whatever else repeats it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.execution import Progress
from flows.engine.history import Attempt, Outcome
from flows.engine.openai_client import simulated_client
from flows.engine.plugins import Registry
from flows.engine.providers import Api
from flows.engine.redaction import MARK, PATTERNS, Redactor, redact_input
from flows.engine.running import run_flow
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings
from flows.engine.spec_check import check_spec
from tests.engine.builders import MemoryRecorder, make_attempt, make_flow, make_history, make_step
from tests.engine.executions import execute, make_execution, outcomes, simulate

SECRET = "Anna “Ännchen” Bach"
INPUT = {"customer": {"name": SECRET, "age": 42, "iban": None}, "order": 7, "topic": f"A card for {SECRET}"}
ECHO = AuditSpec(name="No names", rule="!output.text.contains('Anna')", message="'It says ' + output.text")


def dump(value: Any) -> str:
    """All that is kept, as text in which nothing is escaped."""
    return json.dumps(value, ensure_ascii=False, default=str)


def dump_records(records: list[Progress]) -> str:
    ended = [progress.ended.model_dump(mode="json") for progress in records if progress.ended is not None]
    begun = [[progress.begun.input, progress.begun.request] for progress in records if progress.begun is not None]
    return dump([ended, begun, [str(progress.finish) for progress in records]])


def redact(secret: Any, output: Any) -> Any:
    """An output of a run whose input has this secret at a pointer."""
    return Redactor.of(["/secret"], {"secret": secret}).redact_value(output)


class TestPointers:
    @pytest.mark.parametrize(
        ("rule", "value", "redacted"),
        [
            ("/people", {"people": [{"n": "Anna", "t": ["a", ""]}, {"n": None, "t": []}]},
             {"people": [{"n": MARK, "t": [MARK, ""]}, {"n": None, "t": []}]}),
            ("/people/*/n", {"people": [{"n": "Anna", "c": "Ulm"}, {"n": "Bert", "c": "Ulm"}]},
             {"people": [{"n": MARK, "c": "Ulm"}, {"n": MARK, "c": "Ulm"}]}),
            ("/people/1/n", {"people": [{"n": "Anna"}, {"n": "Bert"}]}, {"people": [{"n": "Anna"}, {"n": MARK}]}),
            ("/size", {"size": "XL", "text": "XLarge"}, {"size": MARK, "text": "XLarge"}),
            ("/is", {"is": True, "no": None, "n": 7}, {"is": MARK, "no": None, "n": 7}),
        ],
        ids=["names and lengths stay", "any position", "one position", "short", "bool"],
    )  # fmt: skip
    def test_what_stands_at_a_pointer_is_taken_out(self, rule: str, value: Any, redacted: Any) -> None:
        assert redact_input([rule], value) == redacted

    def test_an_input_without_any_of_it_stays_the_same_object(self) -> None:
        value = {"topic": "tea"}
        assert redact_input(["/customer/name", "email"], value) is value
        assert redact_input([], value) is value


class TestRepetitions:
    """What stands at a pointer of the input is looked for in everything else, however it is written there."""

    @pytest.mark.parametrize(
        ("secret", "text", "kept"),
        [
            ("Ada Lovelace", "Dear ADA LOVELACE, ada  lovelace,", f"Dear {MARK}, {MARK},"),
            ("Ada Lovelace", "Ada\nLovelace, Ada\u00a0Lovelace;", f"{MARK}, {MARK};"),
            ("Ada Lovelace", '{"a": "ada\\nlovelace"}', f'{{"a": "{MARK}"}}'),
            ("Chlo\u00eb", "chloe\u0308 and CHLO\u00cb", f"{MARK} and {MARK}"),
            ("Mark", "A benchmark of markets, mark my words", f"A benchmark of markets, {MARK} my words"),
            (5551234, "n_5551234, n5551234x, (5551234) +5551234€", f"n_{MARK}, n{MARK}x, ({MARK}) +{MARK}€"),
            (5551234, "55512345 15551234 0.15551234", "55512345 15551234 0.15551234"),
            (12.75, "112.75, 12.755, x12.75", f"112.75, 12.755, x{MARK}"),
            (48250.5, "48250.50 EUR, 48250.51, 48250.501, 148250.5", f"{MARK} EUR, 48250.51, 48250.501, 148250.5"),
            (7, "7 or 42 or 12.0", "7 or 42 or 12.0"),
        ],
    )
    def test_in_a_text(self, secret: Any, text: str, kept: str) -> None:
        assert redact(secret, {"5551234": text} if secret == 5551234 else text) == (
            {MARK: kept} if secret == 5551234 else kept
        )

    @pytest.mark.parametrize("secret", ["123456789", " 123456789 ", "0123456789", 123456789, 123456789.0, -123456789])
    @pytest.mark.parametrize("repeated", [123456789, 123456789.0, -123456789, "123456789"])
    def test_a_number_as_a_number_and_as_a_text(self, secret: Any, repeated: Any) -> None:
        assert redact(secret, {"n": [repeated]}) == {"n": [MARK]}

    @pytest.mark.parametrize(
        ("secret", "repeated"), [("1234.50", 1234.5), (1234.5, "1234.5"), (1e22, "1e+22"), (1e22, 10**22)]
    )
    def test_a_fraction_and_a_large_number(self, secret: Any, repeated: Any) -> None:
        assert redact(secret, {"n": repeated}) == {"n": MARK}

    @pytest.mark.parametrize("secret", [7, 42, "042", "0007", 0, 12.0, -123, True, ""])
    def test_what_is_short_leaves_other_numbers_alone(self, secret: Any) -> None:
        output = {"n": [7, 42, 0, 12, 123, -123, 1, 1.0, True]}
        assert redact(secret, output) == output

    @pytest.mark.parametrize("escapes", [True, False])
    def test_a_text_in_json_that_lies_in_json(self, escapes: bool) -> None:
        secret = 'Miles "Ö" O\'Brien \\ Son'
        once = json.dumps({"who": secret}, ensure_ascii=escapes)
        twice = json.dumps({"said": once}, ensure_ascii=escapes)
        assert redact(secret, [once, twice]) == [f'{{"who": "{MARK}"}}', f'{{"said": "{{\\"who\\": \\"{MARK}\\"}}"}}']

    def test_what_an_output_has_at_the_pointer(self) -> None:
        output = {"ssn": "987654321", "n": 987654321}
        attempt = Attempt(step=1, number=1, outcome=Outcome.PASSED, input={}, output=output)
        assert Redactor.of(["/ssn"], {"ssn": None}).redact_attempt(attempt).output == {"ssn": MARK, "n": MARK}

    def test_names_of_fields_that_become_the_same_stay_apart(self) -> None:
        value = {"a@example.com": 1, "b@example.com": 2}
        assert redact_input(["email"], value) == {"[redacted: email]": 1, "[redacted: email] 2": 2}

    @given(st.text(max_size=300))
    def test_a_second_look_finds_nothing(self, text: str) -> None:
        once = redact_input(list(PATTERNS), {"text": text})
        assert redact_input(list(PATTERNS), once) == once


class TestAttempts:
    FLOW = make_flow(
        make_step(1, audits=(ECHO,), system_message="Write to the customer."),
        make_step(2, input_expression="{'name': input.customer.name, 'card': previous.text}"),
        redact=("/customer/name", "/customer/age", "email"),
    )
    REPLIES = {
        "tool_1": [{"text": f"Dear {SECRET}, write to anna@example.com."}, {"text": "Dear customer"}],
        "tool_2": [{"text": f"{SECRET} again"}],
    }

    @pytest.mark.parametrize("api", [Api.CHAT, Api.RESPONSES])
    async def test_nothing_that_is_recorded_holds_it(self, api: Api) -> None:
        recorder = MemoryRecorder()
        client = simulated_client(simulate(**self.REPLIES), api=api)
        await execute(self.FLOW, client=client, history=make_history(input=INPUT), recorder=recorder)
        kept = dump_records(recorder.records)
        assert "Ännchen" not in kept
        assert json.dumps(SECRET)[1:-1] not in kept
        assert "anna@example.com" not in kept
        assert '\\"age\\":42' not in kept
        assert kept.count(MARK) >= 6

    async def test_the_model_is_told_the_input_as_it_is_and_its_outputs_as_they_are_kept(self) -> None:
        app = simulate(**self.REPLIES)
        await execute(self.FLOW, app, make_history(input=INPUT))
        first, second, third = [[message["content"] for message in call.body["messages"]] for call in app.calls]
        assert json.loads(first[1]) == INPUT
        assert json.loads(second[1]) == INPUT, "a retry is asked the same"
        assert f"Dear {MARK}, write to [redacted: email]." in second[0]
        assert SECRET not in second[0]
        assert json.loads(third[-1])["name"] == SECRET

    async def test_audits_judge_the_output_as_it_came_and_their_issues_are_redacted(self) -> None:
        end = await execute(self.FLOW, simulate(**self.REPLIES), make_history(input=INPUT))
        failed, passed = end.history.attempts(1)
        assert [failed.outcome, passed.outcome] == ["failed", "passed"]
        assert failed.issues[0].description == f"It says Dear {MARK}, write to [redacted: email]."
        assert failed.failure_reason is None or "Anna" not in failed.failure_reason

    async def test_what_was_recorded_leads_on_as_what_is_in_memory_does(self) -> None:
        recorder, app = MemoryRecorder(), simulate(**self.REPLIES)
        end = await execute(self.FLOW, app, make_history(input=INPUT), recorder=recorder)
        stored = make_history(*recorder.attempts, input=INPUT)
        assert stored.steps == end.history.steps

    async def test_a_run_goes_on_after_a_crash_with_its_input(self) -> None:
        recorder, app = MemoryRecorder(), simulate(**self.REPLIES)
        await execute(self.FLOW, app, make_history(input=INPUT), recorder=recorder)
        again = simulate(tool_2=[{"text": "fine"}])
        await execute(self.FLOW, again, make_history(*recorder.attempts[:2], input=INPUT))
        assert json.loads(again.calls[0].body["messages"][-1]["content"])["name"] == SECRET

    @pytest.mark.parametrize("outcome", ["errored", "interrupted", "failed"])
    async def test_so_does_a_step_that_is_tried_again_after_one(self, outcome: str) -> None:
        before = [make_attempt(1), make_attempt(2, 1, outcome, input={"name": MARK, "card": "s1a1"})]
        app = simulate(tool_2=[{"text": "fine"}])
        await execute(self.FLOW, app, make_history(*before, input=INPUT))
        assert json.loads(app.calls[0].body["messages"][-1]["content"])["name"] == SECRET

    async def test_a_reply_that_was_received_before_a_crash_is_judged_as_it_came(self) -> None:
        registry = Registry()
        registry.audit("names")(lambda output: "Anna" not in output["text"])
        step = make_step(audits=(AuditSpec(name="No names", rule="python:names"),), max_retries=0)
        flow = make_flow(step, redact=("/customer/name",))
        recorder, app = MemoryRecorder(), simulate(tool_1=[{"text": f"Dear {SECRET}"}])
        whole = await execute(flow, app, make_history(input=INPUT), registry=registry, recorder=recorder)
        (received,) = [progress.received for progress in recorder.records if progress.received is not None]
        assert SECRET not in repr(received.start), "only the arguments are kept as they came"
        resumed = await make_execution(flow, app, registry=registry).execute(make_history(input=INPUT), received)
        assert resumed.history == whole.history
        assert (outcomes(whole.history), whole.history.attempts(1)[0].output) == (["failed"], {"text": f"Dear {MARK}"})
        assert app.call_count == 1

    async def test_what_a_rule_makes_of_a_finding_is_redacted_as_code_and_audit_too(self) -> None:
        rule = "[{'code': 'unknown:' + output.text, 'audit': 'Of ' + output.text, 'description': 'Unknown.'}]"
        flow = make_flow(make_step(audits=(AuditSpec(name="A", rule=rule, severity="low"),)), redact=("/text",))
        end = await execute(flow, simulate(tool_1=[{"text": "geheim"}]), make_history())
        (issue,) = end.history.attempts(1)[0].issues
        assert (issue.code, issue.audit) == (f"unknown:{MARK}", f"Of {MARK}")

    async def test_a_value_of_an_output_is_taken_out_of_its_issues_and_raw_text(self) -> None:
        audit = AuditSpec(name="A", rule="false", message="'Bad: ' + output.text", severity="low")
        flow = make_flow(make_step(audits=(audit,), output_sanitizer="{'text': value.text + '!'}"), redact=("/text",))
        end = await execute(flow, simulate(tool_1=[{"text": "geheim"}]), make_history())
        attempt = end.history.attempts(1)[0]
        assert (attempt.output, attempt.raw_output) == ({"text": MARK}, {"text": MARK})
        assert attempt.issues[0].description == f"Bad: {MARK}"

    async def test_the_sentence_of_an_end_is_redacted(self) -> None:
        flow = make_flow(make_step(input_expression="{'x': int(input.name)}"), redact=("/name",))
        recorder = MemoryRecorder()
        end = await execute(flow, None, make_history(input={"name": "Rumpelstilz"}), recorder=recorder)
        assert end.finish is not None and "Rumpelstilz" not in end.finish.sentence
        assert recorder.records[-1].finish == end.finish


async def test_a_script_gets_a_result_that_it_can_keep() -> None:
    result = await run_flow(
        make_flow(redact=("/customer",)),
        INPUT,
        client=simulated_client(simulate(tool_1=[{"text": SECRET}])),
        defaults=ModelSettings(model="gpt-4.1"),
        registry=Registry(),
    )
    assert SECRET not in dump(result.to_document())


class TestRules:
    def check(self, *rules: str) -> list[str]:
        return [problem.path for problem in check_spec(make_flow(redact=rules), Registry())]

    def test_pointers_and_the_names_of_patterns_are_rules_and_nothing_else(self) -> None:
        assert self.check("/a/b", "/", "/*", *PATTERNS) == []
        assert self.check("/a", "emial") == ["/redact/1"]

    def test_a_flow_without_rules_has_the_digest_that_it_had(self) -> None:
        assert "redact" not in make_flow().to_document()
        assert FlowSpec.from_document(make_flow(redact=("email",)).to_document()).redact == ("email",)
