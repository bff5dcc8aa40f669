"""The simulated model as an ASGI application."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from flows.engine.simulated_model.completion import RequestView, build_answer
from flows.engine.simulated_model.invention import invent_value
from flows.engine.simulated_model.script import NO_FAULTS, Fault, FaultKind, Faults, Latency, Script, draw_latency

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RESET_EXTENSION = "toolflow.reset"
"""The ASGI extension under which a server offers to break the connection."""

_PATHS = ("/v1/chat/completions", "/v1/responses")
_HTML = b"<!doctype html><html><head><title>Welcome</title></head><body><h1>It works</h1></body></html>"
_MAX_KEYS = 10_000
"""Idempotency keys that are remembered."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One request for a completion, in the order of arrival. ``status`` is 0 where the connection broke or hung."""

    number: int
    idempotency_key: str | None
    body: Any
    status: int
    fault: FaultKind | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response in the API's own shape."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    type: str = "invalid_request_error"

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body of the response."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class SimulatedModel:
    """An OpenAI-compatible server that invents what it answers.

    It serves ``POST /v1/chat/completions``, ``POST /v1/responses`` and ``GET /v1/models``.

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
        least, most = latency if isinstance(latency, tuple) else (latency, latency)
        if not (0 <= least <= most and math.isfinite(most)):
            raise ValueError(f"Latency must be seconds, 0 or more, the lower bound first; not {latency}.")
        self.script = script or Script({})
        self._faults = faults
        self._latency = latency
        self._seed = seed
        self._api_keys = api_keys
        self._sleep = sleep
        self._calls: deque[CallRecord] = deque(maxlen=keep_calls)
        self._times_seen: OrderedDict[str, int] = OrderedDict()
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
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        route = (scope["method"], scope["path"])
        refusal = self._check_key(headers)
        if route[0] == "POST" and route[1] in _PATHS:
            await self._serve_answer(scope, headers, content, receive, send, refusal)
        elif refusal is not None:
            await _send_json(send, refusal.status, refusal.body)
        elif route == ("GET", "/v1/models"):
            model = {"id": "simulated", "object": "model", "created": 0, "owned_by": "toolflow"}
            await _send_json(send, 200, {"object": "list", "data": [model]})
        else:
            refusal = Refusal(404, f"Invalid URL ({route[0]} {route[1]})", "unknown_url")
            await _send_json(send, refusal.status, refusal.body)

    async def _serve_answer(
        self,
        scope: _Scope,
        headers: Mapping[bytes, str],
        content: bytes,
        receive: _Receive,
        send: _Send,
        refusal: Refusal | None,
    ) -> None:
        key = headers.get(b"idempotency-key")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        refusal = refusal or _check_request(body)
        self.call_count += 1
        number = self.call_count
        request_id = (b"x-request-id", f"req-sim-{number}".encode())
        digest = hashlib.sha256(f"{self._seed}/".encode() + content).hexdigest()
        time = self._count(key or digest)
        view = RequestView(body, key)
        answer = refusal or self._find_answer(view, digest, time)
        if isinstance(answer, Refusal):
            self._calls.append(CallRecord(number, key, body, answer.status))
            await _send_json(send, answer.status, answer.body, request_id)
            return
        fault = self._faults.draw(key or digest, time) or (answer if isinstance(answer, Fault) else None)
        kind = None if fault is None else fault.kind
        self._calls.append(CallRecord(number, key, body, _STATUS_OF_FAULT.get(kind, 200), kind))
        if seconds := draw_latency(self._latency, self._seed, digest, time):
            await self._sleep(seconds)
        if fault is not None and fault.kind.is_transport:
            await _break(fault, scope, receive, send, request_id)
            return
        arguments = answer if isinstance(answer, Mapping) else _invent(view, digest)
        await _send_json(send, 200, build_answer(view, arguments, fault=kind, digest=digest), request_id)

    def _find_answer(self, view: RequestView, digest: str, time: int) -> Mapping[str, Any] | Fault | Refusal:
        """The arguments of the answer, scripted or invented, or what the script wants in their place."""
        if view.tool_name is None:
            return {}
        shown = view.attempts_shown
        hidden = time - 1 if view.attempt_number is None else view.attempt_number - 1 - shown
        reply = self.script.find_reply(view.tool_name, shown=shown, hidden=hidden)
        if callable(reply):
            try:
                reply = reply(view.body, view.input)
            except Exception as error:  # noqa: BLE001  # a broken script is a broken provider, no broken worker
                message = f"The scripted reply of the tool '{view.tool_name}' failed: {error!r}"
                return Refusal(500, message, type="server_error")
        return _invent(view, digest) if reply is None else reply

    def _count(self, key: str) -> int:
        """How often a call with this key came in, this time included."""
        time = self._times_seen.pop(key, 0) + 1
        self._times_seen[key] = time
        if len(self._times_seen) > _MAX_KEYS:
            self._times_seen.popitem(last=False)
        return time

    def _check_key(self, headers: Mapping[bytes, str]) -> Refusal | None:
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return Refusal(401, "You didn't provide an API key. Send it as a bearer token.")
        if key.startswith("wrong") or (self._api_keys is not None and key not in self._api_keys):
            return Refusal(401, f"Incorrect API key provided: {key[:5]}***.", "invalid_api_key")
        return None


def _invent(view: RequestView, digest: str) -> Mapping[str, Any]:
    if view.function is None:
        return {}
    invented = invent_value(view.function.get("parameters") or {"type": "object"}, seed=digest)
    return invented if isinstance(invented, dict) else {}


def _check_request(body: Any) -> Refusal | None:
    # Whether a model takes what is sent is for tests that know it by themselves.
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


async def _break(fault: Fault, scope: _Scope, receive: _Receive, send: _Send, request_id: tuple[bytes, bytes]) -> None:
    """Be the fault: no answer of the model comes."""
    if fault.kind is FaultKind.RATE_LIMITED:
        refusal = Refusal(429, "Rate limit reached. Please try again later.", "rate_limit_exceeded", type="requests")
        wait = (b"retry-after", f"{fault.retry_after:g}".encode())
        await _send_json(send, refusal.status, refusal.body, request_id, wait)
    elif fault.kind is FaultKind.SERVER_ERROR:
        refusal = Refusal(500, "The server had an error while processing your request.", type="server_error")
        await _send_json(send, refusal.status, refusal.body, request_id)
    elif fault.kind is FaultKind.HTML:
        await _send(send, 200, _HTML, b"text/html; charset=utf-8", request_id)
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


async def _send_json(send: _Send, status: int, body: Any, *headers: tuple[bytes, bytes]) -> None:
    await _send(send, status, json.dumps(body).encode(), b"application/json", *headers)


async def _send(send: _Send, status: int, content: bytes, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = str(len(content)).encode()
    headers = ((b"content-type", content_type), (b"content-length", length), *headers)
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": content})
