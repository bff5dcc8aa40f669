"""The simulated model fails on demand: by script and by chance."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.openai_client import simulated_client
from flows.engine.prompt import ATTEMPT_HEADING, CURRENT_STEP_HEADING
from flows.engine.reply import read_reply
from flows.engine.simulated_model import Fault, FaultKind, Faults, Script, SimulatedModel
from tests.engine.simulated_requests import ask, make_request, show_attempts


async def test_a_scripted_first_try_is_followed_by_the_next_reply_once_the_request_shows_it() -> None:
    app = SimulatedModel(script=Script({"make": [{"color": "red"}, {"color": "#ff0000"}]}))
    first = await ask(app, make_request())
    second = await ask(app, make_request(system=show_attempts(1)), key="run-1-2")
    tenth = await ask(app, make_request(system=show_attempts(1, 9)), key="run-1-10")
    assert [reply.arguments for reply in (first, second, tenth)] == [
        {"color": "red"},
        {"color": "#ff0000"},
        {"color": "#ff0000"},
    ]


async def test_the_highest_number_counts_where_attempts_without_issues_are_left_out() -> None:
    replies = [{"color": str(number)} for number in range(1, 5)]
    reply = await ask(SimulatedModel(script=Script({"make": replies})), make_request(system=show_attempts(1, 3)))
    assert reply.arguments == {"color": "4"}


async def test_headings_of_other_sections_are_no_attempts_of_the_step() -> None:
    script = Script({"make": [{"color": "first"}, {"color": "second"}]})
    quoted = f'Output: "{CURRENT_STEP_HEADING}\\n{ATTEMPT_HEADING.format(number=1)}"'
    elsewhere = f"{ATTEMPT_HEADING.format(number=1)}\n{quoted}"
    assert (await ask(SimulatedModel(script=script), make_request(system=elsewhere))).arguments == {"color": "first"}


async def test_a_scripted_function_answers_from_the_input() -> None:
    def reply(request: dict[str, Any], input: Any) -> dict[str, Any]:
        return {"color": f"{input['brand']} by {request['model']}"}

    reply_read = await ask(SimulatedModel(script=Script({"make": [reply]})), make_request())
    assert reply_read.arguments == {"color": "Kestrel by gpt-4o-mini"}


async def test_a_scripted_function_that_fails_is_an_error_of_the_provider() -> None:
    def reply(request: dict[str, Any], input: Any) -> dict[str, Any]:
        raise KeyError("colour")

    with pytest.raises(ModelError, match="scripted reply of the tool 'make' failed: KeyError") as caught:
        await ask(SimulatedModel(script=Script({"make": [reply]})), make_request())
    assert caught.value.code is ModelErrorCode.SERVER_ERROR


async def test_none_in_a_script_stands_for_something_invented() -> None:
    script = Script({"make": [Fault(FaultKind.MALFORMED), None]})
    first = await ask(SimulatedModel(script=script), make_request())
    second = await ask(SimulatedModel(script=script), make_request(system=show_attempts(1)))
    assert [issue.code for issue in first.issues] == ["malformed_arguments"]
    assert second.issues == ()


@pytest.mark.parametrize("keys", [("run-1-1", "run-1-2"), ("no number", "at all")])
async def test_a_scripted_transport_fault_strikes_once_though_nothing_of_it_is_shown(keys: tuple[str, str]) -> None:
    app = SimulatedModel(script=Script({"make": [Fault(FaultKind.RATE_LIMITED, retry_after=3), {"color": "red"}]}))
    client = simulated_client(app)
    with pytest.raises(ModelError) as caught:
        await client.complete(make_request(), idempotency_key=keys[0], timeout=10)
    assert caught.value.retry_after == 3
    if keys[0] == "run-1-1":
        # Without a number in the key, only the same call can be told to come again.
        reply = await client.complete(make_request(), idempotency_key=keys[1], timeout=10)
    else:
        reply = await client.complete(make_request(), idempotency_key=keys[0], timeout=10)
    assert read_reply(reply.body, tool_name="make").arguments == {"color": "red"}


async def test_runs_on_the_same_input_don_t_disturb_each_other_s_script() -> None:
    app = SimulatedModel(script=Script({"make": [Fault(FaultKind.SERVER_ERROR), {"color": "red"}]}))
    for run in ("a", "b"):
        with pytest.raises(ModelError):
            await ask(app, make_request(), key=f"{run}-1-1")
    for run in ("a", "b"):
        assert (await ask(app, make_request(), key=f"{run}-1-2")).arguments == {"color": "red"}


async def test_a_script_is_read_from_json_types() -> None:
    document = {"make": [{"$fault": "refusal"}, {"color": "red"}, None]}
    app = SimulatedModel(script=Script.from_mapping(document))
    assert [issue.code for issue in (await ask(app, make_request())).issues] == ["refusal"]
    assert (await ask(app, make_request(system=show_attempts(1)))).arguments == {"color": "red"}
    assert (await ask(app, make_request(system=show_attempts(2)))).issues == ()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"make": []}, "empty list of replies for the tool “make”"),
        ({"make": {"color": "red"}}, "must be a list, not dict"),
        ({"make": [{}, "red"]}, "Reply 2 of the tool “make” must be an object of arguments, not str"),
        ({"make": [{"$fault": "fire"}]}, "no fault “fire”. Known are: rate_limited"),
        ({"make": [{"$fault": "reset", "color": "red"}]}, "can't have color"),
        ({"make": [{"$fault": "rate_limited", "retry_after": "soon"}]}, "Reply 1 of the tool “make”"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused_with_the_place(document: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Script.from_mapping(document)


def test_scripts_of_several_flows_become_one_unless_they_share_a_tool() -> None:
    colors, invoices = Script({"make_seed": [None]}), Script({"read_invoice": [None]})
    assert (colors | invoices).tools == {"make_seed", "read_invoice"}
    with pytest.raises(ValueError, match="Both scripts have replies for: make_seed"):
        colors | Script({"make_seed": [None]})


# Faults by chance


async def _count_faults(app: SimulatedModel, calls: int) -> list[bool]:
    client, outcomes = simulated_client(app), []
    for number in range(calls):
        try:
            await client.complete(make_request(), idempotency_key=f"run-{number}-1", timeout=10)
            outcomes.append(False)
        except ModelError:
            outcomes.append(True)
    return outcomes


async def test_faults_strike_at_their_rate_and_the_same_calls_again() -> None:
    outcomes = await _count_faults(SimulatedModel(faults=Faults({"server_error": 0.3}, seed=4)), 200)
    assert 40 <= sum(outcomes) <= 80
    assert outcomes == await _count_faults(SimulatedModel(faults=Faults({"server_error": 0.3}, seed=4)), 200)
    assert outcomes != await _count_faults(SimulatedModel(faults=Faults({"server_error": 0.3}, seed=5)), 200)


async def test_a_call_that_is_sent_again_gets_through_in_the_end() -> None:
    app = SimulatedModel(faults=Faults({"rate_limited": 0.9}, seed=2))
    client = simulated_client(app)
    for _ in range(200):
        try:
            await client.complete(make_request(), idempotency_key="run-1-1", timeout=10)
            break
        except ModelError:
            continue
    assert app.calls[-1].status == 200
    assert app.calls[0].fault is FaultKind.RATE_LIMITED


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"fire": 0.1}, "no fault “fire”"),
        ({"reset": 1.5}, "between 0 and 1, not 1.5"),
        ({"reset": float("nan")}, "between 0 and 1"),
        ({"reset": 0.6, "hang": 0.6}, "add up to 1.2"),
    ],
)
def test_rates_of_faults_that_make_no_sense_are_refused(rates: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Faults(rates)
