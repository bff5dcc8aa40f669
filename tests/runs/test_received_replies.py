"""Replies that are stored and not judged yet: none is paid twice, whatever becomes of the worker or the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db.models.functions import Now

from flows.engine.execution import Progress, Received, Start
from flows.engine.history import Outcome
from flows.engine.plugins import PythonFunction, registry
from flows.engine.reply import ToolReply
from flows.engine.spec import AuditSpec, FlowSpec
from runs.models import EndReason, Run, RunStatus
from runs.queue import draining, force_quit
from runs.recorder import RunRecorder, end_held_run
from runs.stored_history import load_history, load_received_attempt
from runs.submission import submit_run
from runs.sweep import sweep
from tests.engine.builders import make_flow, make_step, make_usage
from tests.engine.model_server import ModelServer
from tests.runs.builders import claim_run, make_dead_owner, make_run, make_version
from tests.runs.executing import attempts_of, drain, script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]

NAMES = AuditSpec(name="No names", rule="python:no_names", message="'It says ' + output.text")
USAGE = make_usage(30, cost=Decimal("0.001"))


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    no_names = PythonFunction("no_names", lambda output: "Anna" not in output["text"])
    monkeypatch.setitem(registry.audits, "no_names", no_names)


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """What an audit waits for that is not done before the test is."""
    end = threading.Event()
    yield end
    end.set()


def make_spec(**fields: Any) -> FlowSpec:
    return make_flow(make_step(1, audits=[NAMES], max_retries=0), make_step(2), **fields)


def receive(run: Run, text: str = "Dear customer") -> Run:
    """The run as a worker has it that died in its audits, after the reply to its first call was stored."""
    held = claim_run(run, str(make_dead_owner()))
    recorder = RunRecorder(held, held.version.flow_spec, load_history(held))
    start = Start(1, 1, run.input, {"model": "gpt-4.1", "messages": []}, datetime.now(UTC))
    reply = ToolReply({"text": text}, None, (), USAGE, "gpt-4.1-2025-04-14", "response-1", "tool_calls")
    recorder.record(Progress(begun=start))
    recorder.record(Progress(received=Received(start, reply)))
    run.refresh_from_db()
    return held


def test_a_reply_is_judged_by_the_next_worker_and_not_asked_for_again(provider: ModelServer) -> None:
    run = make_run(make_version(make_spec()))
    receive(run)
    assert (run.total_tokens, run.cost) == (30, USAGE.cost), "its tokens count from the moment it is stored"
    assert sweep() == 1
    drain()
    run.refresh_from_db()
    first, second = attempts_of(run)
    reported = [(one.step.index, one.number, one.outcome) for one in (first, second)]
    assert (run.status, reported) == (RunStatus.SUCCEEDED, [(1, 1, "passed"), (2, 1, "passed")])
    assert (first.output, first.usage.total, first.response_id) == ({"text": "Dear customer"}, 30, "response-1")
    assert (first.received, run.total_tokens) == (None, 30 + second.usage.total)
    assert provider.app.call_count == 1


def test_it_is_judged_as_it_came_where_a_flow_redacts_and_nothing_of_it_stays(provider: ModelServer) -> None:
    run = submit_run(flow=make_version(make_spec(redact=("/name",))).flow, input={"name": "Anna Bach"})
    receive(run, "Dear Anna Bach")
    sweep()
    drain()
    run.refresh_from_db()
    (attempt,) = attempts_of(run)
    assert (run.status, attempt.outcome, attempt.output) == ("failed", "failed", {"text": "Dear [redacted]"})
    assert [issue.description for issue in attempt.issues.all()] == ["It says Dear [redacted]"]
    assert (attempt.received, provider.app.call_count) == (None, 0)


def test_a_worker_that_is_forced_to_stop_while_an_audit_is_at_work_leaves_its_reply_to_the_next(
    provider: ModelServer, monkeypatch: pytest.MonkeyPatch, stuck: threading.Event
) -> None:
    def stop_and_hang(output: Any) -> None:
        draining.set()
        force_quit.set()
        stuck.wait()

    judge = registry.audits["no_names"]
    monkeypatch.setitem(registry.audits, "no_names", PythonFunction("no_names", stop_and_hang))
    run = make_run(make_version(make_flow(make_step(1, audits=[NAMES]))), next_model="gpt-4.1")
    script(provider, tool_1=[{"text": "Dear customer"}])
    try:
        drain()
    finally:
        draining.clear()
        force_quit.clear()
    run.refresh_from_db()
    assert (run.status, run.next_model, attempts_of(run)[0].outcome) == (RunStatus.QUEUED, "", "")

    monkeypatch.setitem(registry.audits, "no_names", judge)
    drain()
    run.refresh_from_db()
    (attempt,) = attempts_of(run)
    assert (run.status, attempt.outcome, provider.app.call_count) == (RunStatus.SUCCEEDED, "passed", 1)
    assert run.total_tokens == attempt.usage.total > 0


def cancel_in_the_queue(held: Run) -> None:
    sweep()
    assert Run.objects.get(pk=held.pk).request_cancel()


def cancel_while_handed_back(held: Run) -> None:
    assert Run.objects.get(pk=held.pk).request_cancel()
    assert held.hand_back()


def let_time_pass_in_the_queue(held: Run) -> None:
    sweep()
    Run.objects.filter(pk=held.pk).update(deadline_at=Now())
    sweep()


def break_down(held: Run) -> None:
    end_held_run(held, RunStatus.ERRORED, EndReason.INTERNAL_ERROR, "It broke.", outcome=Outcome.INTERRUPTED)


@pytest.mark.parametrize(
    ("end", "reason", "outcome"),
    [
        (cancel_in_the_queue, EndReason.CANCELLED, "cancelled"),
        (cancel_while_handed_back, EndReason.CANCELLED, "cancelled"),
        (let_time_pass_in_the_queue, EndReason.DEADLINE_EXCEEDED, "interrupted"),
        (break_down, EndReason.INTERNAL_ERROR, "interrupted"),
    ],
)
def test_the_attempt_of_a_run_that_ends_before_it_is_judged_ends_with_the_tokens_that_it_used(
    end: Callable[[Run], None], reason: EndReason, outcome: str
) -> None:
    run = make_run(make_version(make_spec()))
    end(receive(run))
    run.refresh_from_db()
    (attempt,) = attempts_of(run)
    assert (run.end_reason, attempt.outcome, attempt.received, attempt.usage.total) == (reason, outcome, None, 30)
    assert (run.total_tokens, run.cost, run.retry_count) == (30, USAGE.cost, 0)
    assert load_received_attempt(run) is None
