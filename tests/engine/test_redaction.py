"""Redaction: what a flow says must not be kept is in no attempt, whatever else repeats it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import MARK, Attempt, History, Outcome
from flows.engine.openai_client import simulated_client
from flows.engine.plugins import Registry
from flows.engine.providers import Api
from flows.engine.redaction import PATTERNS, Redactor, redact_input
from flows.engine.settling import find_stall
from flows.engine.spec import AuditSpec
from tests.engine.builders import MemoryRecorder, make_attempt, make_flow, make_history, make_issue, make_step
from tests.engine.executions import execute, make_execution, outcomes, simulate

SECRET = "Anna “Ännchen” Bach"
INPUT = {"customer": {"name": SECRET, "age": 42, "iban": None}, "order": 7, "topic": f"A card for {SECRET}"}
ECHO = AuditSpec(name="No names", rule="!output.text.contains('Anna')", message="'It says ' + output.text")
CARD, OTHER_CARD, IBAN = "4111 1111 1111 1111", "4242 4242 4242 4242", "DE89 3704 0044 0532 0130 00"


def redact(secret: Any, output: Any) -> Any:
    """An output of a run whose input has this secret at a pointer."""
    return Redactor.of(["/secret"], {"secret": secret}).redact_value(output)


def redact_all(value: Any) -> Any:
    """A value after all patterns."""
    return Redactor.of(list(PATTERNS), {}).redact_value(value)


class TestPointers:
    @pytest.mark.parametrize(
        ("rule", "value", "redacted"),
        [
            ("/people", {"people": [{"n": "Anna", "t": ["a", ""]}, {"n": None, "t": []}]},
             {"people": [{"n": MARK, "t": [MARK, ""]}, {"n": None, "t": []}]}),
            ("/people/*/n", {"people": [{"n": "Anna", "c": "Ulm"}, {"n": "Bert", "c": "Ulm"}]},
             {"people": [{"n": MARK, "c": "Ulm"}, {"n": MARK, "c": "Ulm"}]}),
            ("/people/1/n", {"people": [{"n": "Anna"}, {"n": "Bert"}]}, {"people": [{"n": "Anna"}, {"n": MARK}]}),
            ("/size", {"size": "XL", "text": "XLarge", "no": None}, {"size": MARK, "text": "XLarge", "no": None}),
        ],
        ids=["all below", "any position", "one position", "short"],
    )  # fmt: skip
    def test_what_stands_at_a_pointer_is_taken_out(self, rule: str, value: Any, redacted: Any) -> None:
        assert redact_input([rule], value) == redacted

    @pytest.mark.parametrize(
        ("secret", "text", "kept"),
        [
            ("Ada Lovelace", "Dear ADA LOVELACE, ada  lovelace,", f"Dear {MARK}, {MARK},"),
            ("Ada Lovelace", "Ada\nLovelace, Ada\u00a0Lovelace;", f"{MARK}, {MARK};"),
            ("Ada Lovelace", '{"a": "ada\\nlovelace"}', f'{{"a": "{MARK}"}}'),
            ("Chlo\u00eb", "chloe\u0308 and CHLO\u00cb", f"{MARK} and {MARK}"),
            ("Mark", "A benchmark of markets, mark my words", f"A benchmark of markets, {MARK} my words"),
            ("Straße 12", "STRASSE 12, Strasse 12", f"{MARK}, {MARK}"),
            ("İstanbul", "to İSTANBUL", f"to {MARK}"),
            (5551234, "n_5551234, n5551234x, +5551234€, 55512345", f"n_{MARK}, n{MARK}x, +{MARK}€, 55512345"),
            (48250.5, "48250.50 EUR, 48250.51, 48250.501, 148250.5", f"{MARK} EUR, 48250.51, 48250.501, 148250.5"),
            (7, "7 or 42 or 12.0", "7 or 42 or 12.0"),
        ],
    )
    def test_it_is_looked_for_in_other_texts_however_it_is_written_there(
        self, secret: Any, text: str, kept: str
    ) -> None:
        assert redact(secret, {"said": [text]}) == {"said": [kept]}

    @pytest.mark.parametrize(
        ("secret", "repeated"),
        [
            ("123456789", [123456789, 123456789.0, -123456789, "123456789"]),
            (123456789.0, [123456789, 123456789.0, "123456789"]),
            (" 0123456789 ", [123456789, "123456789"]),
            ("1234.50", [1234.5]),
            (1e22, ["1e+22", 10**22]),
        ],
    )
    def test_so_it_is_as_a_number_and_as_a_key(self, secret: Any, repeated: list[Any]) -> None:
        assert redact(secret, {"n": repeated, str(repeated[0]): 1}) == {"n": [MARK] * len(repeated), MARK: 1}

    @pytest.mark.parametrize("secret", [7, 42, "042", 0, 12.0, -123, True, ""])
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


class TestPatterns:
    @pytest.mark.parametrize(
        ("name", "text", "kept"),
        [
            ("email", "_alice@example.com_, **alice@example.com**, alice@example.com-2", "#_, **#**, #-2"),
            ("email", "anna.bach+x@mail.example.co.uk, jürgen@müller.de, anna@home", "#, #, anna@home"),
            ("ip_address", "ip:10.0.0.1, 10.0.0.1:8080, 10.0.0.0/8, 999.168.1.17", "ip:#, #:8080, #/8, 999.168.1.17"),
            ("ip_address", "::ffff:10.1.2.3, [64:ff9b::10.1.2.3]:80, 12:30:45:10.1.2.3", "#, [#]:80, 12:30:45:#"),
            ("ip_address", "2001:db8::1: no route from fe80::1%eth0 to 2001:db8::.", "#: no route from #%eth0 to #."),
            ("credit_card", f"{CARD} 2026; {CARD} 12 27 123; 1 {CARD}", "# 2026; # 12 27 123; 1 #"),
            ("credit_card", f"{CARD.replace(' ', '')} {OTHER_CARD.replace(' ', '-')} {CARD}", "# # #"),
            # Also where the digits of two pass for a third.
            ("credit_card", f"5555-5555-5555-4444 {CARD}; 41 11 11 11 11 11 11 11", "# #; #"),
            ("credit_card", "41111111111111111111111", "41111111111111111111111"),
            ("iban", "de89370400440532013000; Gb82 west 1234 5698 7654 32 it is", "#; # it is"),
            ("iban", f"AB12 {IBAN} 12 MORE; {IBAN} GB82 WEST 1234 5698 7654 32", "AB12 # 12 MORE; # #"),
            *(("iban", one, one) for one in ("DE89 3704 0044 0532 0130 01", "ZZ73123456789012345678")),
            ("phone", "+49 (0)30 123456-7 or 0049 30 1234567, not 30 1234567", "# or #, not 30 1234567"),
            ("api_key", "sk-abcdefghijklmnop1234 Bearer abc.def-ghijkl== sk-abc Bearer of", "# # sk-abc Bearer of"),
        ],
    )  # fmt: skip
    def test_everyday_spellings_are_found(self, name: str, text: str, kept: str) -> None:
        redacted: str = Redactor.of([name], {}).redact_value(text)
        assert redacted.replace(f"[redacted: {name}]", "#") == kept

    def test_an_account_is_one_also_where_part_of_it_passes_for_a_card(self) -> None:
        assert redact_all("DE08 3704 0044 0004 0130 00") == "[redacted: iban]"

    def test_a_card_that_is_a_number_is_one_and_the_digits_of_a_fraction_are_none(self) -> None:
        value = [4111111111111111, 4111111111111111.0, 4111111111111112, 0.4111111111111111, True, None]
        assert redact_all(value) == ["[redacted: credit_card]"] * 2 + value[2:]

    @pytest.mark.parametrize(("name", "text"), [("credit_card", CARD), ("iban", IBAN), ("phone", "+1 555 123 4567")])
    def test_digits_are_found_with_any_space_or_hyphen_between_them(self, name: str, text: str) -> None:
        for gap in "\u00a0\u2007\u2009\u202f\u2010\u2011\u2012\u2013\u2014\u2015\u2212-":
            found = Redactor.of([name], {}).redact_value(f"It is {text.replace(' ', gap)}.")
            assert found == f"It is [redacted: {name}].", repr(gap)

    @pytest.mark.parametrize(
        "text",
        [
            "At 10:30, 10:30:15 or 10:30–11:00, std::vector and a :: b",
            "Version 1.2.3, v1.2.3.4, 1.2.3.4.5 and 10.0.19045.3570.1",
            "Orders 4111-1111-1111-1112 2026 and 20261121-000417, 1\u202f234\u202f567 and 12\u00a0345\u00a0678.90",
            "2026-11-21 2026-11-22 2026-11-23, 21-11-2026 22-11-2026, 2026-11-21T10:30:15.123456+01:00",
            "2015 2016 2017 2018 2019 2020 2021 2022 2023 2024 2025 2026 2027 2028",
            "py29 is the new version, see de36 for details of this, no45 items are left",
            "ab12cd34-ab12-4d34-ab12-ab12cd34ef56 be12ad34-ee20-4122-ba20-de89ad34ef56",
            "me@home, @example.com, a@b, 1 + 555 123 4567, 2 +3",
        ],
    )
    def test_ordinary_texts_stay_as_they_are(self, text: str) -> None:
        assert redact_all(text) == text

    @pytest.mark.parametrize(
        "part", ["4111 1111 1111 1112 ", "4 ", "42", "be12 ", "a@", f"a@{'b' * 63}.", ":", "1.1.1.1.", "+1 .1 .1"]
    )
    def test_much_of_anything_is_looked_through(self, part: str) -> None:
        """With a pattern that goes back over what it has read, this takes hours."""
        text = part * (50_000 // len(part)) + "; bob@example.com"
        assert redact_all(text).endswith("; [redacted: email]")

    @given(st.text(max_size=300))
    def test_a_second_look_finds_nothing(self, text: str) -> None:
        once = redact_input(list(PATTERNS), {"text": text})
        assert redact_input(list(PATTERNS), once) == once

    def test_names_of_fields_that_become_the_same_stay_apart(self) -> None:
        value = {"a@example.com": 1, "b@example.com": 2}
        assert redact_input(["email"], value) == {"[redacted: email]": 1, "[redacted: email] 2": 2}


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
        ended = [progress.ended.model_dump(mode="json") for progress in recorder.records if progress.ended is not None]
        begun = [[one.begun.input, one.begun.request] for one in recorder.records if one.begun is not None]
        finishes = [str(progress.finish) for progress in recorder.records]
        kept = json.dumps([ended, begun, finishes], ensure_ascii=False, default=str)
        assert kept.count(MARK) >= 6
        for secret in ("Ännchen", json.dumps(SECRET)[1:-1], "anna@example.com", '\\"age\\":42'):
            assert secret not in kept

    async def test_the_model_is_sent_the_input_as_it_is_and_its_outputs_as_they_are_kept(self) -> None:
        app = simulate(**self.REPLIES)
        end = await execute(self.FLOW, app, make_history(input=INPUT))
        first, second, third = [[message["content"] for message in call.body["messages"]] for call in app.calls]
        assert json.loads(first[1]) == json.loads(second[1]) == INPUT
        assert f"Dear {MARK}, write to [redacted: email]." in second[0] and SECRET not in second[0]
        assert json.loads(third[-1])["name"] == SECRET
        failed, passed = end.history.attempts(1)
        assert [failed.outcome, passed.outcome] == ["failed", "passed"], "audits judge the output as it came"
        assert failed.issues[0].description == f"It says Dear {MARK}, write to [redacted: email]."
        assert failed.failure_reason is None or "Anna" not in failed.failure_reason

    async def test_a_run_goes_on_after_a_crash_from_what_was_recorded_with_its_input(self) -> None:
        recorder = MemoryRecorder()
        end = await execute(self.FLOW, simulate(**self.REPLIES), make_history(input=INPUT), recorder=recorder)
        assert make_history(*recorder.attempts, input=INPUT).steps == end.history.steps
        attempts = recorder.attempts[:2]
        for broken in (None, "errored", "interrupted", "failed"):
            before = [make_attempt(2, 1, broken, input={"name": MARK, "card": "s1a1"})] if broken else []
            again = simulate(tool_2=[{"text": "fine"}])
            await execute(self.FLOW, again, make_history(*attempts, *before, input=INPUT))
            assert json.loads(again.calls[0].body["messages"][-1]["content"])["name"] == SECRET

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

    async def test_the_name_of_an_audit_stays_so_that_the_retry_has_its_issues(self) -> None:
        audit = AuditSpec(name="Team size", rule="output.text != 'x'", severity="medium", message="'Not x.'")
        flow = make_flow(make_step(audits=(audit,), max_retries=1), redact=("/plan",))
        history = History.begin({"plan": "team"}, run_id="1")
        end = await execute(flow, simulate(tool_1=[{"text": "x"}, {"text": "y"}]), history)
        first, second = end.history.attempts(1)
        assert first.issues[0].audit == "Team size" and "Not x." in str(second.request)

    async def test_a_value_of_an_output_is_taken_out_of_its_issues_and_raw_text(self) -> None:
        rule = (
            "[{'code': 'unknown:' + output.text, 'audit': 'Of ' + output.text, 'description': 'Bad: ' + output.text}]"
        )
        audits = (AuditSpec(name="A", severity="low", rule=rule),)
        flow = make_flow(make_step(audits=audits, output_sanitizer="{'text': value.text + '!'}"), redact=("/text",))
        end = await execute(flow, simulate(tool_1=[{"text": "geheim"}]), make_history())
        assert "geheim" not in end.history.attempts(1)[0].model_copy(update={"request": None}).model_dump_json()
        (issue,) = end.history.attempts(1)[0].issues
        assert (issue.code, issue.audit, issue.description) == (f"unknown:{MARK}", "A", f"Bad: {MARK}")

    def test_outputs_of_which_something_was_taken_out_may_have_differed(self) -> None:
        step = make_step(stall_after=2, max_retries=5)

        def find(output: Any) -> int | None:
            return find_stall(
                step, [make_attempt(1, n, "failed", output=output, issues=[make_issue(code=f"c{n}")]) for n in (1, 2)]
            )

        assert (find({"name": "Anna"}), find({"name": MARK})) == (2, None)

    async def test_the_sentence_of_an_end_is_redacted(self) -> None:
        flow = make_flow(make_step(input_expression="{'x': int(input.name)}"), redact=("/name",))
        recorder = MemoryRecorder()
        end = await execute(flow, None, make_history(input={"name": "Rumpelstilz"}), recorder=recorder)
        assert end.finish is not None and "Rumpelstilz" not in end.finish.sentence
        assert recorder.records[-1].finish == end.finish
