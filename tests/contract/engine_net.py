"""Random flows of ``random_cases`` run in memory: a model, a recorder, a gate and a clock that do as the case says."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

# The adapter is the only part that names anything of the engine: these imports, and all down to the plug-ins.
from flows.engine.call_gate import Throttled
from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.execution import Execution, Progress, Received, Start
from flows.engine.history import Attempt, History, Outcome
from flows.engine.planner import EndReason, EndStatus, Finish
from flows.engine.plugins import Registry
from flows.engine.providers import ModelReply, Provider, Providers
from flows.engine.spec import FlowSpec

# ---------------------------------------------------------------------------------------------------------------
# Adapter


def build_execution(spec: FlowSpec, net: Net, deadline: datetime | None) -> Execution:
    """The shell over the parts that this net plays itself."""
    run = net.case["run"]
    return Execution(
        spec=spec,
        client=net.client,
        clients=net.clients,
        registry=REGISTRY,
        recorder=net,
        clock=net.clock,
        gate=net,
        before_call=net.veto,
        should_stop=net.should_stop,
        deadline=deadline,
        max_wait=run["longest_wait"],
        track_usage=run["track_usage"],
    )


def call_transport_error(code: str, status: int | None = None, retry_after: float | None = None) -> ModelError:
    return ModelError(ModelErrorCode(code), f"The call failed ({code}).", status=status, retry_after=retry_after)


def end_interrupted(start: Start, now: datetime) -> Attempt:
    """The attempt that a worker left behind that died within it."""
    return Attempt(
        step=start.step,
        number=start.number,
        outcome=Outcome.INTERRUPTED,
        input=start.input,
        request=start.request,
        started_at=start.started_at,
        ended_at=now,
        plugins=start.plugins,
    )


class NetInvoice(BaseModel):
    """A registered output type with an audit of its own."""

    title: str
    total: float
    count: int

    def audit(self) -> Iterator[dict[str, Any]]:
        if self.total > 10:
            yield {"description": f"A total of {self.total:g} is much.", "severity": "medium", "path": "/total"}


def build_registry() -> Registry:
    registry = Registry()
    registry.output_type("net_invoice")(NetInvoice)
    for audit in (net_short, net_lines, net_raises, net_async, net_severe):
        registry.audit(audit.__name__)(audit)
    for function in (net_message, net_input, net_sanitize, net_passes, net_compute):
        registry.function(function.__name__)(function)
    return registry


# ---------------------------------------------------------------------------------------------------------------
# Plug-ins


def net_short(output: Any) -> Any:
    return len(output if isinstance(output, dict) else vars(output)) > 2


def net_lines(output: Any) -> Iterator[Any]:
    found = output if isinstance(output, dict) else output.model_dump()
    for index, line in enumerate(found.get("lines", ())):
        yield {
            "description": f"Line {index}: {sorted(line)}",
            "path": f"/lines/{index}",
            "severity": "low",
            "index": index,
        }


def net_raises(output: Any) -> Iterator[Any]:
    yield "Found before the fault."
    raise ValueError("no more")


async def net_async(output: Any, steps: Any) -> Any:
    await asyncio.sleep(0)
    return None if len(steps) > 1 else ["Only one step.", False, None]


def net_severe(**variables: Any) -> Any:
    return [{"description": ", ".join(sorted(variables)), "severity": "critical", "suggestions": "Look again."}]


def net_message(item: Any, output: Any) -> str:
    return f"About {item!r}"


def net_input(input: Any) -> Any:
    input["topic"] = f"{input['topic']}!"
    return input


def net_sanitize(value: Any) -> Any:
    return {name: entry.strip() if isinstance(entry, str) else entry for name, entry in value.items()}


def net_passes(issues: Any) -> bool:
    return len(issues) < 3


def net_compute(input: Any, previous: Any) -> Any:
    return {"topic": input["topic"], "previous": previous, "nul": "a\0b"}


REGISTRY = build_registry()

# ---------------------------------------------------------------------------------------------------------------
# The world of one run: clock, model, recorder, gate

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MAX_RECORDS = 150
ERROR_CODES = {429: "rate_limited", 400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found"}


class CrashError(Exception):
    """The worker dies here."""


class NetClock:
    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        return self.moment

    async def sleep_until(self, moment: datetime) -> None:
        self.moment = max(self.moment, moment)

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class Net:
    """Plays all that a run meets: it answers as the case says and keeps what is recorded."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = case
        self.clock = NetClock()
        self.calls: Counter[str] = Counter()
        self.records: list[Progress] = []
        self.begun: Start | None = None
        self.received: Received | None = None
        self.boundaries = self.vetoes = self.entries = 0
        self.crash_at: int | None = case["run"]["crash_at"]
        self.client = NetClient(self, Provider(**case["provider"]))
        urls = {"local": "http://127.0.0.1:9/v1", "proxy": "https://proxy.example/v1"}
        self.clients = {name: NetClient(self, Provider(name, url, "k" * 16)) for name, url in urls.items()}

    @property
    def providers(self) -> Providers:
        return Providers(self.client.provider, {name: client.provider for name, client in self.clients.items()})

    # What the shell is given

    def should_stop(self) -> bool:
        self.boundaries += 1
        stop_after: int | None = self.case["run"]["stop_after"]
        return self.boundaries == stop_after

    def veto(self) -> Finish | None:
        limit = self.case["run"]["veto_after"]
        self.vetoes += 1
        if limit is None or self.vetoes <= limit:
            return None
        return Finish(EndStatus.ERRORED, EndReason.BUDGET_EXCEEDED, "The net says no.")

    def try_enter(self, request: Mapping[str, Any]) -> Any:
        self.entries += 1
        closed = self.case["run"]["closed_gate"]
        return None if closed is not None and self.entries > closed else self

    async def enter(self, request: Mapping[str, Any]) -> Any:
        self.case["run"]["closed_gate"] = None
        if self.entries % 2:
            return self
        return Throttled(self.clock.now() + timedelta(seconds=10), "The net is closed.")

    def release(self, usage: Any) -> None:
        """Nothing is counted here."""

    async def record(self, progress: Progress) -> None:
        is_crash = self.crash_at is not None and len(self.records) + 1 >= self.crash_at
        if not is_crash or self.case["run"]["crash_is_stored"]:
            self.keep(progress)
        if is_crash or len(self.records) > MAX_RECORDS:
            self.crash_at = None
            raise CrashError

    def keep(self, progress: Progress) -> None:
        self.records.append(progress)
        ended, begun, received = progress.ended, progress.begun, progress.received
        if ended is not None:
            self.begun = self.received = None
        if begun is not None:
            self.begun = begun
        if received is not None:
            self.received = received

    # What models answer

    def answer(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The next reply of the case to a request; TimeoutError if that takes longer than it may."""
        tool = (request.get("tools") or [{}])[0]
        name = tool.get("function", tool).get("name", "")
        replies = self.case["replies"].get(name) or [{"kind": "call", "arguments": "{}", "latency": 1, "usage": None}]
        reply = replies[self.calls[name] % len(replies)]
        self.calls[name] += 1
        if reply["latency"] > seconds or reply["kind"] == "timeout":
            self.clock.advance(min(seconds, reply["latency"] if reply["kind"] == "timeout" else seconds))
            raise TimeoutError
        self.clock.advance(reply["latency"])
        return dict(reply)


class NetClient:
    """A model client by the public protocol."""

    def __init__(self, net: Net, provider: Provider) -> None:
        self.net = net
        self.provider = provider

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        try:
            reply = self.net.answer(request, timeout)
        except TimeoutError:
            raise call_transport_error("timeout") from None
        match reply["kind"]:
            case "connection":
                raise ConnectionError("broken off")
            case "unreadable":
                raise call_transport_error("unreadable_response", 200)
            case "crash":
                raise RuntimeError("a fault of the client")
            case "status":
                code = ERROR_CODES.get(reply["status"], "server_error")
                raise call_transport_error(code, reply["status"], reply["retry_after"])
        return ModelReply(json.loads(json.dumps(build_body(reply, request))), "req-1")

    async def close(self) -> None:
        """Nothing is held."""


def build_body(reply: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a successful response of chat completions."""
    if reply["kind"] == "body":
        return dict(reply["body"])
    tool = request["tools"][0]
    name = tool.get("function", tool)["name"]
    arguments = reply.get("arguments")
    called = {"wrong_tool": ["another_tool"], "several": [name] * reply.get("count", 0), "call": [name]}
    calls = [{"name": one, "arguments": arguments} for one in called.get(reply["kind"], [])]
    if reply["kind"] == "truncated":
        calls = [{"name": name, "arguments": arguments}]
    named = {"id": "resp-1", "model": reply["model"] or request["model"], "service_tier": reply["tier"]}
    return {**named, **build_completion(reply, calls), "usage": build_usage(reply["usage"])}


def build_completion(reply: Mapping[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    reasons = {"truncated": "length", "content_filter": "content_filter", "text": "stop", "refusal": "stop"}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if reply["kind"] in ("text", "refusal"):
        message["content" if reply["kind"] == "text" else "refusal"] = reply["text"]
    if calls:
        message["tool_calls"] = [{"id": "c1", "type": "function", "function": call} for call in calls]
    return {"choices": [{"index": 0, "message": message, "finish_reason": reasons.get(reply["kind"], "tool_calls")}]}


def build_usage(usage: Any) -> Any:
    if not isinstance(usage, dict) or not usage:
        return usage
    return {
        "prompt_tokens": usage["prompt"],
        "completion_tokens": usage["completion"],
        "total_tokens": usage.get("total"),
        "prompt_tokens_details": {"cached_tokens": usage.get("cached")},
        "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning")},
    }


# ---------------------------------------------------------------------------------------------------------------
# What is stored


def recover(net: Net, given: Any) -> History:
    """The history as it is stored after a crash: what had begun is interrupted, unless its reply was received."""
    ended = [progress.ended for progress in net.records if progress.ended is not None]
    stored = [Attempt.model_validate_json(attempt.model_dump_json()) for attempt in ended]
    if net.begun is not None and net.received is None:
        left = end_interrupted(net.begun, net.clock.now())
        net.begun = None
        stored.append(left)
        net.keep(Progress(ended=left))
    run_id = f"net-{net.case['number']}"
    history = History.begin(given, run_id=run_id)
    for attempt in stored:
        history = history.append(attempt)
    return history
