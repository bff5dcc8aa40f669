"""Random flows that ran to their end in memory, and changed definitions of them: what a backtest is held against.

Replies depend on nothing but the step and how often it was asked, so that a changed flow can be run for real.
"""

from __future__ import annotations

import random
import warnings
from datetime import timedelta
from typing import Any, NamedTuple

from flows.engine.errors import FlowWarning, InputError, SpecError
from flows.engine.history import Attempt, History
from flows.engine.planner import Finish
from flows.engine.redaction import Redactor
from flows.engine.schemas import parse_input
from flows.engine.spec import FailAt, FlowSpec, ModelSettings, OnExhausted, StepSpec
from flows.engine.spec_check import prepare_spec
from tests.contract.engine_net import MAX_RECORDS, NOON, REGISTRY, CrashError, Net, build_execution, recover
from tests.contract.random_cases import Document, make_case


class PastRun(NamedTuple):
    """A run that is over, as it is stored."""

    case: Document
    spec: FlowSpec
    history: History
    finish: Finish | None


async def make_past_run(seed: int, number: int, *, is_plain: bool = False) -> PastRun | None:
    """A run of a random flow; None where the flow or its input is refused.

    A plain one is neither interrupted nor redacted, and meets no mishaps of transport.
    """
    case = make_case(seed, number)
    if is_plain:
        calm = {"stop_after": None, "crash_at": None, "longest_wait": None, "veto_after": None, "closed_gate": None}
        case["run"] |= calm
        for replies in case["replies"].values():
            for reply in replies:
                reply["latency"] = 1
    defaults = ModelSettings(**case["defaults"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlowWarning)
        try:
            spec = FlowSpec.from_document(case["spec"])
            if is_plain:
                steps = tuple(step.model_copy(update={"time_limit": None}) for step in spec.steps)
                spec = spec.model_copy(update={"redact": (), "time_limit": None, "steps": steps})
            spec = prepare_spec(spec, registry=REGISTRY, defaults=defaults, providers=Net(case).providers)
            given = parse_input(case["input"], spec.input_schema)
        except (SpecError, InputError):
            return None
    spec = spec.with_limits(token_budget=case["run"]["token_budget"])
    if case["run"]["retry_window"] is not None:
        spec = spec.with_retry_window(case["run"]["retry_window"])
    return await run_case(case, spec, given)


async def run_case(case: Document, spec: FlowSpec, given: Any) -> PastRun:
    """Run a prepared flow as the case says, through crashes and pauses."""
    net = Net(case)
    history = History.begin(given, run_id=f"net-{case['number']}")
    deadline = None if spec.time_limit is None else NOON + timedelta(seconds=spec.time_limit)
    finish: Finish | None = None
    for _ in range(40):
        if len(net.records) > MAX_RECORDS:
            break
        try:
            end = await build_execution(spec, net, deadline).execute(history, net.received)
        except CrashError:
            history = recover(net, given)
            continue
        finish, history = end.finish, end.history
        if finish is not None:
            break
        if end.resume_at is not None:
            await net.clock.sleep_until(end.resume_at)
        net.received = None
    redacted = Redactor.of(spec.redact, given).redact_history(history)
    stored = [Attempt.model_validate_json(attempt.model_dump_json()) for attempt in redacted]
    return PastRun(case, spec, History.from_attempts(stored, run_id=history.run_id), finish)


def change_spec(spec: FlowSpec, rng: random.Random) -> FlowSpec:
    """A candidate: the flow with one to three of its decisions changed."""
    steps = list(spec.steps)
    for _ in range(rng.choice((1, 1, 2, 3))):
        index = rng.randrange(len(steps))
        steps[index] = _change_step(steps[index], rng)
    changes: dict[str, Any] = {"steps": tuple(steps)}
    if rng.random() < 0.1:
        changes["token_budget"] = rng.choice((None, 300, 1_000))
    return spec.model_copy(update=changes)


def _change_step(step: StepSpec, rng: random.Random) -> StepSpec:
    audits = list(step.audits)
    changes: dict[str, Any] = {}
    match rng.randrange(8):
        case 0 if audits:
            del audits[rng.randrange(len(audits))]
        case 1 if audits:
            place = rng.randrange(len(audits))
            audits[place] = audits[place].model_copy(update={"fail_at": rng.choice((FailAt.NEVER, FailAt.LOW, None))})
        case 2:
            changes = {"pass_expression": rng.choice((None, "size(issues) < 2", "true"))}
        case 3:
            changes = {"stop_on_failure": not step.stop_on_failure}
        case 4:
            changes = {"output_sanitizer": None}
        case 5 if not step.is_local:
            changes = {"stall_after": rng.choice((2, 3))}
        case 6 if not step.is_local:
            changes = {"on_exhausted": OnExhausted.ACCEPT_BEST}
        case _:
            changes = {"max_retries": rng.choice((0, 1, 2, 3))}
    return step.model_copy(update={"audits": tuple(audits), **changes})
