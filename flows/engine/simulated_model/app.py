"""The simulated model as an ASGI application."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from flows.engine.simulated_model.completion import RequestView, build_answer, parse_request
from flows.engine.simulated_model.invention import invent_value
from flows.engine.simulated_model.script import (
    NO_FAULTS,
    TRANSPORT_FAULTS,
    Fault,
    FaultKind,
    Faults,
    Latency,
    Script,
    draw_latency,
)

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RESET_EXTENSION = "toolflow.reset"
"""The ASGI extension under which a server offers to break the connection."""

_PATHS = ("/v1/chat/completions", "/v1/responses")
_HTML = b"<!doctype html><html><head><title>Welcome</title></head><body><h1>It works</h1></body></html>"
_MAX_KEYS = 10_000
"""Idempotency keys whose calls are counted; then the count starts again."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One request for a completion, in the order of arrival. ``status`` is 0 where the connection broke or hung."""

    idempotency_key: str | None
    body: Any
    status: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response in the API's own shape."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None


class SimulatedModel:
    """An OpenAI-compatible server of ``POST /v1/chat/completions`` and ``/v1/responses`` that invents its answers.

    It answers with a tool call whose arguments fit the tool's schema, scripted or invented. The same request gets the
    same answer. Models are unknown whose names begin with ``no-such``.
    """

    def __init__(
        self,
        *,
        script: Script | None = None,
        faults: Faults = NO_FAULTS,
        latency: Latency = 0.0,
        seed: int = 0,
        api_keys: Collection[str] | None = None,
        keep_calls: int = 10_000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``api_keys`` says which keys are right; by default all but those that begin with ``wrong``.

        ``latency`` is in seconds. ``keep_calls`` bounds how many requests ``calls`` remembers; 0 remembers none.
        """
        self.script = script or Script({})
        self._faults = faults
        self._latency = latency
        self._seed = seed
        self._api_keys = api_keys
        self._sleep = sleep
        self._calls: deque[CallRecord] = deque(maxlen=keep_calls)
        self._times_seen: Counter[str] = Counter()
        self.call_count = 0
        """How many requests for a completion came in."""

    @property
    def calls(self) -> list[CallRecord]:
        """The requests for a completion that came in last, in order."""
        return list(self._calls)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one HTTP request."""
        if scope["type"] != "http":
            return
        content = await _read_body(receive)
        if scope["method"] != "POST" or scope["path"] not in _PATHS:
            await _send_refusal(send, Refusal(404, f"Invalid URL ({scope['method']} {scope['path']})", "unknown_url"))
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        key = headers.get(b"idempotency-key")
        body = _parse_body(content)
        digest = hashlib.sha256(f"{self._seed}/".encode() + content).hexdigest()
        time = self._count(key or digest)
        request_id = (b"x-request-id", f"req-sim-{self.call_count}".encode())

        async def reply(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append(request_id)
            await send(message)

        if refusal := self._check_key(headers.get(b"authorization", "")) or _check_request(body):
            await self._refuse(reply, key, body, refusal)
            return
        view = parse_request(body, key)
        answer = self._find_answer(view, digest, time)
        if isinstance(answer, Refusal):
            await self._refuse(reply, key, body, answer)
            return
        fault = self._faults.draw(key or digest, time) or (answer if isinstance(answer, Fault) else None)
        kind = None if fault is None else fault.kind
        self._calls.append(CallRecord(key, body, _STATUS_OF_FAULT.get(kind, 200)))
        await self._sleep(draw_latency(self._latency, self._seed, digest, time))
        if fault is not None and fault.kind in TRANSPORT_FAULTS:
            await _break(fault, scope, receive, reply)
            return
        arguments = answer if isinstance(answer, Mapping) else _invent(view, digest)
        await _send_json(reply, 200, build_answer(view, arguments, fault=kind, digest=digest))

    async def _refuse(self, send: _Send, key: str | None, body: Any, refusal: Refusal) -> None:
        self._calls.append(CallRecord(key, body, refusal.status))
        await _send_refusal(send, refusal)

    def _find_answer(self, view: RequestView, digest: str, time: int) -> Mapping[str, Any] | Fault | Refusal:
        """The arguments of the answer, scripted or invented, or what the script wants in their place."""
        if view.function is None:
            return {}
        shown, tool = view.attempts_shown, str(view.function["name"])
        hidden = time - 1 if view.attempt_number is None else view.attempt_number - 1 - shown
        reply = self.script.find_reply(tool, shown=shown, hidden=hidden, run=view.run)
        if callable(reply):
            try:
                reply = reply(view.body, view.input)
            except Exception as error:  # noqa: BLE001  # a broken script is a broken provider, no broken worker
                return Refusal(500, f"The scripted reply of the tool '{tool}' failed: {error!r}", "server_error")
        return _invent(view, digest) if reply is None else reply

    def _count(self, key: str) -> int:
        """How often a call with this key came in, this time included."""
        self.call_count += 1
        if len(self._times_seen) >= _MAX_KEYS:
            self._times_seen.clear()
        self._times_seen[key] += 1
        return self._times_seen[key]

    def _check_key(self, authorization: str) -> Refusal | None:
        key = authorization.removeprefix("Bearer ").strip()
        if not authorization.startswith("Bearer ") or not key:
            return Refusal(401, "You didn't provide an API key. Send it as a bearer token.")
        if key.startswith("wrong") or (self._api_keys is not None and key not in self._api_keys):
            return Refusal(401, f"Incorrect API key provided: {key[:5]}***.", "invalid_api_key")
        return None


def _invent(view: RequestView, digest: str) -> Mapping[str, Any]:
    schema = (view.function or {}).get("parameters") or {"type": "object"}
    invented = invent_value(schema, seed=digest)
    return invented if isinstance(invented, dict) else {}


def _parse_body(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _check_request(body: Any) -> Refusal | None:
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return Refusal(400, "The body must be a JSON object that names a model.", "invalid_value", "model")
    if body["model"].startswith("no-such"):
        message = f"The model `{body['model']}` does not exist or you do not have access to it."
        return Refusal(404, message, "model_not_found", "model")
    return None


# ---------------------------------------------------------------------------------------------------------------
# Transport

_STATUS_OF_FAULT: Mapping[FaultKind | None, int] = {
    FaultKind.RATE_LIMITED: 429,
    FaultKind.SERVER_ERROR: 500,
    FaultKind.RESET: 0,
    FaultKind.HANG: 0,
}


async def _break(fault: Fault, scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Be the fault: no answer of the model comes."""
    if fault.kind is FaultKind.RATE_LIMITED:
        wait = (b"retry-after", f"{fault.retry_after:g}".encode())
        message = "Rate limit reached. Please try again later."
        await _send_refusal(send, Refusal(429, message, "rate_limit_exceeded"), wait)
    elif fault.kind is FaultKind.SERVER_ERROR:
        await _send_refusal(send, Refusal(500, "The server had an error while processing your request."))
    elif fault.kind is FaultKind.HTML:
        await _send(send, 200, _HTML, b"text/html; charset=utf-8")
    elif fault.kind is FaultKind.HANG:
        await _wait_for_disconnect(receive)
    elif reset := scope.get("extensions", {}).get(RESET_EXTENSION):
        reset()
        await _wait_for_disconnect(receive)
    else:
        # In process there is no connection to break: the client gets the error that a broken one would give it.
        import httpx2  # only here: it takes long to load

        raise httpx2.ReadError("the simulated model broke the connection")


async def _wait_for_disconnect(receive: _Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(receive: _Receive) -> bytes:
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(chunks)


async def _send_refusal(send: _Send, refusal: Refusal, *headers: tuple[bytes, bytes]) -> None:
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    error = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}
    await _send_json(send, refusal.status, {"error": error}, *headers)


async def _send_json(send: _Send, status: int, body: Any, *headers: tuple[bytes, bytes]) -> None:
    await _send(send, status, json.dumps(body).encode(), b"application/json", *headers)


async def _send(send: _Send, status: int, content: bytes, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = str(len(content)).encode()
    headers = ((b"content-type", content_type), (b"content-length", length), *headers)
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": content})
