"""The net under a rewrite of the engine: what it does with thousands of random flows, as digests to compare.

    python -m tests.contract.engine_net record --count 10000 --seed 1 --out FILE
    python -m tests.contract.engine_net compare OLD NEW
    python -m tests.contract.engine_net show --case N --seed 1 [--kind KIND]

Record with the engine before and after, in a checkout each; ``show`` in both gives two texts to diff.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx2
from pydantic import BaseModel

# The adapter is the only part that names anything of the engine: these imports, and all down to the plug-ins.
from flows.engine.call_gate import Throttled
from flows.engine.errors import InputError, ModelError, ModelErrorCode, SpecError
from flows.engine.execution import Execution, Progress, Received, Start
from flows.engine.history import Attempt, History, Outcome
from flows.engine.openai_client import OpenAIClient
from flows.engine.planner import EndReason, EndStatus, Finish, Wait, next_action
from flows.engine.plugins import Registry
from flows.engine.providers import ModelReply, Provider, Providers
from flows.engine.redaction import Redactor
from flows.engine.result import RunResult
from flows.engine.running import check_input
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import check_spec, find_warnings, freeze_schemas, prepare_spec
from flows.engine.strict_schema import make_strict
from tests.contract.random_cases import make_case

# ---------------------------------------------------------------------------------------------------------------
# Adapter

logging.getLogger("flows").setLevel(logging.CRITICAL)


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
    """Plays all that a run meets: it answers as the case says and notes all that is asked."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = case
        self.clock = NetClock()
        self.calls: Counter[str] = Counter()
        self.requests: list[dict[str, Any]] = []
        self.progress: list[Any] = []
        self.records: list[Progress] = []
        self.begun: Start | None = None
        self.received: Received | None = None
        self.boundaries = self.vetoes = self.entries = 0
        self.crash_at: int | None = case["run"]["crash_at"]
        self.client = self.make_client(Provider(**case["provider"]))
        self.clients = {
            "local": self.make_client(Provider(name="local", base_url="http://127.0.0.1:9/v1", api_key="k" * 16)),
            "proxy": self.make_client(
                Provider(name="proxy", base_url="https://proxy.example/v1", api_key="p" * 16, headers={"X-Team": "net"})
            ),
        }

    def make_client(self, provider: Provider) -> Any:
        if self.case["level"] == "protocol":
            return NetClient(self, provider)
        # The one place where a client is made from parts: connections go to ``NetTransport``.
        client = OpenAIClient(api_key=None, http_client=httpx2.AsyncClient(transport=NetTransport(self)))
        client.provider = provider
        return client

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
        self.progress.append(["gate", request["model"]])
        closed = self.case["run"]["closed_gate"]
        return None if closed is not None and self.entries > closed else self

    async def enter(self, request: Mapping[str, Any]) -> Any:
        self.case["run"]["closed_gate"] = None
        self.progress.append(["wait at the gate"])
        if self.entries % 2:
            return self
        return Throttled(self.clock.now() + timedelta(seconds=10), "The net is closed.")

    def release(self, usage: Any) -> None:
        self.progress.append(["permit back", dump(usage)])

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
        self.progress.append(
            [
                ended and [ended.step, ended.number, ended.outcome],
                begun and [begun.step, begun.number, begun.started_at, begun.input, begun.plugins],
                begun and digest(begun.request),
                received and [received.start.step, received.start.number, received.reply.arguments],
                received and dump(received.reply.usage),
                progress.finish is not None,
            ]
        )

    # What models answer

    def answer(self, request: Mapping[str, Any], seconds: float, key: str) -> dict[str, Any]:
        """The next reply of the case to a request; TimeoutError if that takes longer than it may."""
        tool = (request.get("tools") or [{}])[0]
        name = tool.get("function", tool).get("name", "")
        replies = self.case["replies"].get(name) or [{"kind": "call", "arguments": "{}", "latency": 1, "usage": None}]
        reply = replies[self.calls[name] % len(replies)]
        self.calls[name] += 1
        self.requests.append({"request": json.loads(json.dumps(request)), "timeout": seconds, "key": key})
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
            reply = self.net.answer(request, timeout, idempotency_key)
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


class NetTransport(httpx2.AsyncBaseTransport):
    """The wire below the ``openai`` client."""

    def __init__(self, net: Net) -> None:
        self.net = net

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(await request.aread())
        seconds = request.extensions["timeout"]["read"]
        try:
            reply = self.net.answer(body, seconds, request.headers["idempotency-key"])
        except TimeoutError:
            raise httpx2.ReadTimeout("no answer") from None
        told = [str(request.url), request.headers.get("authorization"), request.headers.get("x-team")]
        self.net.requests[-1]["told"] = told
        match reply["kind"]:
            case "connection":
                raise httpx2.ConnectError("refused")
            case "unreadable":
                return httpx2.Response(200, html="<html><title>Welcome</title></html>")
            case "crash":
                raise httpx2.RemoteProtocolError("broken off")
            case "status":
                return build_refusal(reply)
        content = json.dumps(build_body(reply, body))
        return httpx2.Response(200, content=content, headers={"content-type": "application/json"})


def build_refusal(reply: Mapping[str, Any]) -> httpx2.Response:
    error = {"code": reply["code"], "message": reply["message"], "param": reply["param"]}
    headers = {}
    seconds, now = reply["retry_after"], datetime(2026, 11, 21, tzinfo=UTC)
    if seconds is not None and reply["retry_style"] == "seconds":
        headers["retry-after"] = str(seconds)
    elif seconds is not None and reply["retry_style"] == "ms":
        headers["retry-after-ms"] = str(int(seconds * 1000))
    elif seconds is not None:
        headers |= {"date": format_datetime(now, usegmt=True)}
        headers["retry-after"] = format_datetime(now + timedelta(seconds=int(seconds)), usegmt=True)
    return httpx2.Response(reply["status"], json={"error": error}, headers=headers)


def build_body(reply: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a successful response, by the API that the request is written for."""
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
    build = build_response if "input" in request else build_completion
    return {**named, **build(reply, calls), "usage": build_usage(reply["usage"], is_response="input" in request)}


def build_completion(reply: Mapping[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    reasons = {"truncated": "length", "content_filter": "content_filter", "text": "stop", "refusal": "stop"}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if reply["kind"] in ("text", "refusal"):
        message["content" if reply["kind"] == "text" else "refusal"] = reply["text"]
    if calls:
        message["tool_calls"] = [{"id": "c1", "type": "function", "function": call} for call in calls]
    return {"choices": [{"index": 0, "message": message, "finish_reason": reasons.get(reply["kind"], "tool_calls")}]}


def build_response(reply: Mapping[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    output: list[dict[str, Any]] = [{"type": "reasoning", "summary": []}]
    output += [{"type": "function_call", "call_id": "c1", **call} for call in calls]
    if reply["kind"] in ("text", "refusal"):
        kind = {"text": "output_text", "refusal": "refusal"}[reply["kind"]]
        field = {"text": "text", "refusal": "refusal"}[reply["kind"]]
        output.append({"type": "message", "content": [{"type": kind, field: reply["text"]}]})
    reasons = {"truncated": "max_output_tokens", "content_filter": "content_filter"}
    if reason := reasons.get(reply["kind"]):
        return {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": output}
    return {"status": "completed", "output": output}


def build_usage(usage: Any, *, is_response: bool) -> Any:
    if not isinstance(usage, dict) or not usage:
        return usage
    names = ("input", "output") if is_response else ("prompt", "completion")
    return {
        f"{names[0]}_tokens": usage["prompt"],
        f"{names[1]}_tokens": usage["completion"],
        "total_tokens": usage.get("total"),
        f"{names[0]}_tokens_details": {"cached_tokens": usage.get("cached")},
        f"{names[1]}_tokens_details": {"reasoning_tokens": usage.get("reasoning")},
    }


# ---------------------------------------------------------------------------------------------------------------
# One case: what is said of its document, and how it runs

ENGINE_CODES = ("audit_error", "more_issues")
WORDING = "wording"


async def observe(case: dict[str, Any]) -> dict[str, Any]:
    """Everything to compare of one case, by kind."""
    seen: dict[str, Any] = {}
    seen["make_strict"] = [make_strict(step.get("output_schema")) for step in list_steps(case)]
    try:
        spec = FlowSpec.from_document(case["spec"])
    except SpecError as error:
        return seen | {"parse": list_paths(error.problems), "problem_wording": list_texts(error.problems)}
    seen["spec"] = [spec.digest, spec.to_document()]
    net = Net(case)
    defaults = ModelSettings(**case["defaults"])
    frozen = freeze_schemas(spec, REGISTRY)
    problems = check_spec(frozen, REGISTRY, defaults=defaults, providers=net.providers)
    # The same without knowledge of providers, as where a flow is saved.
    offline = check_spec(frozen, REGISTRY)
    found = find_warnings(frozen, default_model=defaults.model, providers=net.providers)
    seen["problems"] = [list_paths(problems), list_paths(offline)]
    seen["warnings"] = sorted({problem.path for problem in found})
    seen["problem_wording"] = list_texts([*problems, *offline])
    seen["warning_wording"] = list_texts(found)
    if problems:
        return seen
    spec = prepare_spec(spec, registry=REGISTRY, defaults=defaults, providers=net.providers)
    seen["resolved"] = spec.to_document()
    try:
        given = check_input(case["input"], spec.input_schema)
    except InputError as error:
        return seen | {"input": list_paths(error.problems), "input_wording": list_texts(error.problems)}
    return seen | {"input": given} | await observe_run(spec, net, given)


async def observe_run(spec: FlowSpec, net: Net, given: Any) -> dict[str, Any]:
    run = net.case["run"]
    spec = spec.with_limits(token_budget=run["token_budget"])
    if run["retry_window"] is not None:
        spec = spec.with_retry_window(run["retry_window"])
    history = History.begin(given, run_id=f"net-{net.case['number']}")
    deadline = None if spec.time_limit is None else NOON + timedelta(seconds=spec.time_limit)
    ends: list[Any] = []
    finish: Finish | None = None
    while finish is None and len(net.records) <= MAX_RECORDS and len(ends) < 40:
        try:
            end = await build_execution(spec, net, deadline).execute(history, net.received)
        except CrashError:
            ends.append(["crash"])
            history = recover(net, given)
            continue
        finish, history = end.finish, end.history
        ends.append(["finish" if finish else "pause", end.resume_at, bool(end.waits_for)])
        if finish is None:
            if end.resume_at is not None:
                await net.clock.sleep_until(end.resume_at)
            net.received = None
    return build_record(spec, net, history, finish, ends)


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


def build_record(spec: FlowSpec, net: Net, history: History, finish: Finish | None, ends: list[Any]) -> dict[str, Any]:
    texts: list[str] = []
    attempts = [split_attempt(attempt, texts) for attempt in list(history)[1:]]
    engine_words = sorted({one_line(issue) for issue in list_engine_texts(history)}, key=len, reverse=True)
    bodies, prompts, words = [], [], []
    for sent in net.requests:
        body, messages = split_messages(sent["request"])
        timeout = round(sent["timeout"], 6)
        bodies.append([body, timeout, sent.get("told")])
        prompts.append([replace_all(message, engine_words) for message in messages])
        words.append([messages, sent["key"]])
    seen: dict[str, Any] = {
        "actions": [],
        "action_wording": [],
        "requests": bodies,
        "prompts": prompts,
        "prompt_wording": words,
        "attempts": attempts,
        "attempt_wording": texts,
        "progress": net.progress,
        "ends": ends,
    }
    # The history in memory holds the input as it is; what is planned follows from each of its prefixes.
    part = History.begin(history.initial_input, run_id=history.run_id)
    for attempt in [None, *list(history)[1:]]:
        part = part if attempt is None else part.append(attempt)
        action = next_action(spec, part)
        seen["actions"].append(describe_action(action))
        seen["action_wording"].append(getattr(action, "sentence", ""))
    if finish is not None:
        seen |= describe_result(spec, net, history, finish)
    return seen


def describe_action(action: Any) -> Any:
    if isinstance(action, Wait):
        return ["wait", action.until, describe_action(action.then)]
    if isinstance(action, Finish):
        return [action.status, action.reason, action.blocking]
    return [type(action).__name__.lower(), action.step, action.number]


def describe_result(spec: FlowSpec, net: Net, history: History, finish: Finish) -> dict[str, Any]:
    run = net.case["run"]
    result = RunResult.of(
        Redactor.of(spec.redact, history.initial_input).redact_history(history),
        finish,
        names=[step.name for step in spec.steps],
        include_all_attempts=run["all_attempts"],
        include_token_usage=run["track_usage"],
    )
    document = result.to_document()
    again = RunResult.from_document(json.loads(json.dumps(document))).to_document()
    for step in document["steps"]:
        step["attempts"] = [[attempt["number"], attempt["outcome"]] for attempt in step["attempts"]]
    sentence = document.pop("sentence")
    return {
        "result": [
            document,
            digest(again["blocking"]),
            result.passed,
            result.output,
            result.state,
            dump(result.usage),
            result.retries_used,
            [[found.step, found.attempt, found.issue.code] for found in result.final_issues()],
            [issue.code for step in result.steps for issue in step.issues],
        ],
        "result_wording": sentence,
    }


def split_attempt(attempt: Attempt, texts: list[str]) -> Any:
    """An attempt without the sentences that the engine writes; these are added to ``texts``."""
    document = attempt.model_dump(mode="json")
    document.pop("request")
    texts += [issue.pop("description") for issue in document["issues"] if is_engine_text(issue)]
    if document["error"]:
        texts.append(document["error"].pop("message"))
    if str(document["failure_reason"]).startswith("The failure_reason_expression"):
        texts.append(document.pop("failure_reason"))
    return document


def is_engine_text(issue: Mapping[str, Any]) -> bool:
    """Whether the engine wrote an issue's description, rather than the flow, a plug-in or the model."""
    own = not issue["audit"] or issue["code"] in ENGINE_CODES
    return own or str(issue["description"]).startswith(f"The audit “{issue['audit']}”")


def list_engine_texts(history: History) -> Iterator[str]:
    for attempt in history:
        for issue in attempt.issues:
            if is_engine_text(issue.model_dump(mode="json")):
                yield issue.description


def split_messages(request: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A request body without the texts of its messages, and these."""
    body = dict(request)
    if "input" in body:
        texts = [str(body.pop("instructions", "")), str(body.pop("input"))]
        return body, texts
    texts = [str(message["content"]) for message in body["messages"]]
    return {**body, "messages": [message["role"] for message in body["messages"]]}, texts


def replace_all(text: str, words: list[str]) -> str:
    for word in words:
        if word:
            text = text.replace(word, "«engine»")
    return text


def one_line(text: str) -> str:
    return " ".join(text.split())


def list_steps(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    steps = case["spec"]["steps"]
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def list_paths(problems: Any) -> list[str]:
    return sorted(problem.path for problem in problems)


def list_texts(problems: Any) -> list[str]:
    return sorted(str(problem) for problem in problems)


def dump(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def render(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=True, separators=(",", ":"))


def digest(value: Any) -> str:
    return hashlib.sha256(render(value).encode()).hexdigest()[:12]


# ---------------------------------------------------------------------------------------------------------------
# Commands


async def observe_safely(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return await observe(case)
    except Exception as error:  # noqa: BLE001  # what the engine raises by mistake is to be compared as well
        return {"raised": [type(error).__name__], "raised_wording": str(error)}


async def record(seed: int, count: int, out: Path) -> None:
    kinds: Counter[str] = Counter()
    with out.open("w") as file:
        for number in range(count):
            seen = await observe_safely(make_case(seed, number))
            kinds.update(list_features(seen))
            line = {"case": number, **{kind: digest(value) for kind, value in sorted(seen.items())}}
            file.write(f"{json.dumps(line)}\n")
    for kind, found in sorted(kinds.items()):
        sys.stdout.write(f"{found:7,} {kind}\n")


def list_features(seen: Mapping[str, Any]) -> set[str]:
    """What a case is an example of, so that it can be seen how wide the net is."""
    found = {f"kind {kind}" for kind, value in seen.items() if value}
    for attempt in seen.get("attempts", ()):
        found.add(f"outcome {attempt['outcome']}")
        found.update(f"code {issue['code']}" for issue in attempt["issues"] if not issue["audit"])
        found.update(f"code {issue['code']}" for issue in attempt["issues"] if issue["code"] in ENGINE_CODES)
        found.update(f"severity {issue['severity']}" for issue in attempt["issues"])
        found.update({f"error {attempt['error']['code']}"} if attempt["error"] else ())
    for action in seen.get("actions", ()):
        found.add(f"action {' '.join(str(part) for part in action[:2] if isinstance(part, str))}")
    found.update(f"end {end[0]}" for end in seen.get("ends", ()))
    return found


def compare(old: Path, new: Path) -> int:
    before, after = ({line["case"]: line for line in map(json.loads, path.open())} for path in (old, new))
    different: dict[str, list[int]] = {}
    for number in sorted(before.keys() | after.keys()):
        one, other = before.get(number, {}), after.get(number, {})
        for kind in sorted(one.keys() | other.keys()):
            if one.get(kind) != other.get(kind):
                different.setdefault(kind, []).append(number)
    for kind in sorted(different, key=lambda kind: (WORDING in kind, kind)):
        numbers = different[kind]
        sys.stdout.write(f"{kind}: {len(numbers):,} cases differ: {', '.join(map(str, numbers[:12]))}\n")
    substance = [kind for kind in different if WORDING not in kind]
    sys.stdout.write(f"{len(before):,} and {len(after):,} cases; kinds that differ in substance: {len(substance)}\n")
    return 1 if substance else 0


async def show(seed: int, number: int, kind: str | None) -> None:
    case = make_case(seed, number)
    text = {"case": case, **await observe_safely(make_case(seed, number))}
    chosen = {kind: text.get(kind)} if kind else text
    written = json.dumps(chosen, default=str, indent=1, ensure_ascii=False)
    sys.stdout.write(re.sub(r"[\ud800-\udfff]", "?", written) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording, comparing, showing = (commands.add_parser(name) for name in ("record", "compare", "show"))
    recording.add_argument("--count", type=int, default=10_000)
    recording.add_argument("--out", type=Path, required=True)
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    showing.add_argument("--case", type=int, required=True)
    showing.add_argument("--kind")
    for command in (recording, showing):
        command.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.command == "compare":
        return compare(given.old, given.new)
    if given.command == "record":
        asyncio.run(record(given.seed, given.count, given.out))
    else:
        asyncio.run(show(given.seed, given.case, given.kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
