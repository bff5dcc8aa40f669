"""Placeholders in system messages: what is put in, what stays as it is, what can never work, and what is kept of it."""

from __future__ import annotations

import json

import pytest

from flows.engine.errors import ExpressionError
from flows.engine.history import History
from flows.engine.openai_client import simulated_client
from flows.engine.prompt import build_own_message, build_request
from flows.engine.providers import Api
from flows.engine.redaction import MARK
from tests.engine.builders import MemoryRecorder, make_attempt, make_flow, make_history, make_issue, make_step
from tests.engine.executions import LONG, SHORT, audited, execute, simulate

INPUT = {"party": "Müller & Söhne", "lines": [{"n": 1, "_id": 7}], "note": None, "größe": 1.5, "ok": True}
FIRST = make_attempt(1, output={"text": "One {input.party}", "count": 3, "_secret": "s"}, issues=(make_issue("low"),))


def fill(message: str, *, history: History | None = None, step: int = 2) -> str:
    flow = make_flow(make_step(1, name="First"), make_step(2, system_message=message), make_step(3))
    return build_own_message(flow, history or make_history(FIRST, input=INPUT), step)


class TestFilling:
    @pytest.mark.parametrize(
        ("message", "filled"),
        [
            ("For {input.party}.", "For Müller & Söhne."),
            ("{ input.lines[0].n }{steps[1].output.count}", "13"),
            ("{input.lines} {input.ok} {input.note} {input.größe}", '[{"n":1}] true null 1.5'),
            ("{steps[0].output.party} {steps[1].name} {steps[1].passed}", "Müller & Söhne First true"),
            ("{steps[1].issues[0].severity}", "low"),
            ("{steps[1].output}", '{"text":"One {input.party}","count":3}'),
            ("{previous.text}", "One {input.party}"),
            ("{{input.party}} {{{input.ok}}}", "{Müller & Söhne} {{true}}"),
        ],
    )
    def test_texts_are_put_in_as_they_are_and_all_else_as_compact_json(self, message: str, filled: str) -> None:
        assert fill(message) == filled

    @pytest.mark.parametrize(
        "message",
        [
            '{} {"a": {"b": []}}',
            "{input} {previous} {steps} {steps[1]",
            "{output.text} {item.x} {value.x} {inputs.party}",
            "{input.} {input.a b} {input.a + 1} {input['party']} {x.input.y}",
            "{input.party",
            "input.party}",
        ],
    )
    def test_all_other_braces_stay(self, message: str) -> None:
        assert fill(message) == message

    @pytest.mark.parametrize(
        ("message", "words"),
        [
            ("{input.party} {input.nmae}", "{input.nmae} leads to nothing: there is no “nmae”."),
            ("{input.lines[1]}", "there is no “1”."),
            ("{steps[2].output.text}", "there is no “2”."),
            ("{previous.text.size}", "there is no “size”."),
            ("{previous._secret}", "keys that begin with “_” never reach the model."),
        ],
    )
    def test_a_path_that_leads_to_nothing_is_told_with_the_step(self, message: str, words: str) -> None:
        with pytest.raises(ExpressionError) as caught:
            fill(message)
        assert str(caught.value).startswith("Step 2 “Step 2”, system_message: {") and words in str(caught.value)

    @pytest.mark.parametrize("message", ["{previous.text}", "{steps[1].output}", "{steps[1].output.text}"])
    def test_a_step_without_a_usable_output_has_nothing_to_put_in(self, message: str) -> None:
        with pytest.raises(ExpressionError, match="that step left no usable output"):
            fill(message, history=make_history(make_attempt(1, 1, "errored"), input=INPUT))


class TestRedaction:
    SECRET = {"name": "Ännchen Müller", "pin": 12, "codes": ["ab"]}

    @pytest.mark.parametrize("api", [Api.CHAT, Api.RESPONSES])
    async def test_what_is_put_in_is_sent_and_not_kept_however_short_it_is(self, api: Api) -> None:
        message = "Mind {input.customer.name}, PIN {input.customer.pin}, {input.customer} and {input.topic}."
        flow = make_flow(audited(1, system_message=message), redact=("/customer",))
        app, recorder = simulate(tool_1=[SHORT, LONG]), MemoryRecorder()
        history = make_history(input={"customer": self.SECRET, "topic": "tea"})
        end = await execute(flow, history=history, client=simulated_client(app, api=api), recorder=recorder)
        customer = json.dumps(self.SECRET, ensure_ascii=False, separators=(",", ":"))
        sent = f"Mind Ännchen Müller, PIN 12, {customer} and tea."
        bodies = [json.dumps(call.body, ensure_ascii=False).replace('\\"', '"') for call in app.calls]
        assert [sent in body for body in bodies] == [True, True]
        marked = json.dumps({"name": MARK, "pin": MARK, "codes": [MARK]}, separators=(",", ":"))
        begun = [one.begun.request for one in recorder.records if one.begun is not None]
        ended = [attempt.request for attempt in end.history.attempts(1)]
        assert len(begun) == len(ended) == 2
        for kept in map(json.dumps, (*begun, *ended)):
            assert f"Mind {MARK}, PIN {MARK}, {marked} and tea." in kept.replace('\\"', '"')
            assert "nchen" not in kept and "12" not in kept

    async def test_where_a_pattern_finds_the_name_of_a_key_the_whole_message_goes(self) -> None:
        key = "sk_abcdefghijklmnop"
        flow = make_flow(make_step(1, system_message=f"The PIN is {{input.{key}}}."), redact=(f"/{key}", "api_key"))
        end = await execute(flow, simulate(tool_1=[LONG]), make_history(input={key: 12}))
        (attempt,) = end.history.attempts(1)
        assert attempt.request is not None
        assert attempt.request["messages"][0]["content"] == MARK


def test_nothing_else_of_a_request_is_filled_in() -> None:
    step = make_step(description="{input.topic}", system_message="{input.topic}")
    request = build_request(make_flow(step), make_history(input={"topic": "{input.topic}"}), 1, {"a": "{input.topic}"})
    assert [message["content"] for message in request["messages"]] == ["{input.topic}", '{"a":"{input.topic}"}']
    assert request["tools"][0]["function"]["description"] == "{input.topic}"
