"""A provider that refuses what OpenAI refuses of each model, and keeps a ledger of what it was asked.

Its rules are written down apart from ``model_families``, so that the two can disagree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows.engine.simulated_model.invention import invent_value

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

ONLY_NONE = ("none",)
LOW_TO_HIGH = ("low", "medium", "high")
ANY = ("", "none", "minimal", *LOW_TO_HIGH, "xhigh", "max")


@dataclass(frozen=True)
class Rules:
    """What one generation accepts."""

    efforts: tuple[str, ...] = ()
    """Empty where the field is unknown."""
    default: str = "medium"
    """The effort where none is sent."""
    chat: tuple[str, ...] = ANY
    """With which efforts a forced function tool is accepted on chat completions, ``""`` for none sent."""
    temperature: tuple[str, ...] = ()
    """With which efforts it is accepted."""
    max_tokens: bool = False
    parallel: bool = True


GPT_5 = Rules(("minimal", *LOW_TO_HIGH))
GPT_5_5 = Rules((*ONLY_NONE, *LOW_TO_HIGH, "xhigh"), chat=ONLY_NONE, temperature=ONLY_NONE)
GPT_6 = Rules((*ONLY_NONE, *LOW_TO_HIGH, "xhigh", "max"), chat=ONLY_NONE)
RULES = {
    r"gpt-4": Rules(temperature=ANY, max_tokens=True),
    r"o\d": Rules(LOW_TO_HIGH, parallel=False),
    r"gpt-5-chat": replace(GPT_5, temperature=ANY),
    r"gpt-5(-|$)": GPT_5,
    r"gpt-5\.1(-|$)": Rules((*ONLY_NONE, *LOW_TO_HIGH), default="none", temperature=ONLY_NONE),
    r"gpt-5\.[24](-|$)": replace(GPT_5_5, default="none", chat=("",)),
    r"gpt-5\.[56](-|$)": GPT_5_5,
    r"gpt-6-(sol|luna)": GPT_6,
    r"gpt-6-astra|gpt-6\.1-": replace(GPT_6, efforts=GPT_6.efforts[1:], chat=()),
}
NEWER = Rules(ANY[1:], chat=(), temperature=ANY)
"""A model of OpenAI's own that these rules don't know."""
COMPATIBLE = Rules(ANY[1:], temperature=ANY, max_tokens=True)
"""A model of a compatible server."""


def find_rules(model: str, unknown: Rules) -> Rules:
    rules = next((rules for pattern, rules in RULES.items() if re.match(pattern, model)), unknown)
    if found := re.search(r"-(pro|codex)(-|$)", model):
        efforts = tuple(effort for effort in rules.efforts if (found[1], effort) != ("pro", "none"))
        return replace(rules, efforts=efforts, default="medium", chat=(), temperature=())
    return rules


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ToolName(_Part):
    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")


class Function(ToolName):
    description: str = ""
    parameters: dict[str, Any]
    strict: Literal[True]


class FlatTool(Function):
    type: Literal["function"]


class FlatChoice(ToolName):
    type: Literal["function"]


class NestedTool(_Part):
    type: Literal["function"]
    function: Function


class NestedChoice(_Part):
    type: Literal["function"]
    function: ToolName


class Message(_Part):
    role: Literal["system", "developer", "user", "assistant"]
    content: str


class Reasoning(_Part):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class RefusedError(Exception):
    """A request that gets 400."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.body = {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}


class _Body(_Part):
    """What both APIs know."""

    model: str = Field(min_length=1)
    parallel_tool_calls: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    service_tier: Literal["auto", "default", "flex", "priority"] = "auto"
    store: bool = True

    def check(self, rules: Rules, effort: str | None, param: str, function: Function, choice: ToolName) -> None:
        """Refuse what the model refuses on either API."""
        if effort is not None and effort not in rules.efforts:
            known = ", ".join(rules.efforts) or "none at all"
            message = f"Unsupported value: '{param}' does not support '{effort}' with this model, but {known}."
            raise RefusedError(param, message)
        unsupported = {
            "temperature": (effort or rules.default) not in rules.temperature,
            "parallel_tool_calls": not rules.parallel,
            "max_tokens": not rules.max_tokens,
        }
        for name, is_refused in unsupported.items():
            if is_refused and name in self.model_fields_set:
                raise RefusedError(name, f"Unsupported parameter: '{name}' is not supported with this model.")
        if choice.name != function.name:
            raise RefusedError("tool_choice", f"Tool choice '{choice.name}' not found in 'tools' parameter.")


class ChatBody(_Body):
    messages: list[Message] = Field(min_length=1)
    tools: list[NestedTool] = Field(min_length=1, max_length=1)
    tool_choice: NestedChoice
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: Effort | None = None

    def answer(self, rules: Rules) -> dict[str, Any]:
        """Make the call. Raises ``RefusedError``."""
        effort, function = self.reasoning_effort, self.tools[0].function
        if not rules.chat:
            raise RefusedError("model", "This model is only supported in v1/responses and not in v1/chat/completions.")
        self.check(rules, effort, "reasoning_effort", function, self.tool_choice.function)
        if (effort or "") not in rules.chat:
            raise RefusedError(
                "reasoning_effort",
                f"Function tools with reasoning_effort are not supported for {self.model} in /v1/chat/completions. "
                "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            )
        tool_call = {"id": "call_1", "type": "function", "function": _call(function)}
        message = {"role": "assistant", "content": None, "tool_calls": [tool_call]}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": _count_tokens("prompt", "completion"),
        }


class ResponsesBody(_Body):
    instructions: str | None = None
    input: str | list[Message] = Field(min_length=1)
    tools: list[FlatTool] = Field(min_length=1, max_length=1)
    tool_choice: FlatChoice
    max_output_tokens: int | None = Field(default=None, ge=1)
    reasoning: Reasoning = Reasoning()

    def answer(self, rules: Rules) -> dict[str, Any]:
        """Make the call. Raises ``RefusedError``."""
        self.check(rules, self.reasoning.effort, "reasoning.effort", self.tools[0], self.tool_choice)
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": self.model,
            "output": [
                {"id": "rs_1", "type": "reasoning", "summary": []},
                {"id": "fc_1", "type": "function_call", "call_id": "call_1", **_call(self.tools[0])},
            ],
            "parallel_tool_calls": False,
            "tool_choice": self.tool_choice.model_dump(),
            "tools": [self.tools[0].model_dump()],
            "usage": _count_tokens("input", "output"),
        }


def _call(function: Function) -> dict[str, str]:
    return {"name": function.name, "arguments": json.dumps(invent_value(function.parameters, seed=function.name))}


def _count_tokens(asked: str, answered: str) -> dict[str, Any]:
    return {
        f"{asked}_tokens": 120,
        f"{asked}_tokens_details": {"cached_tokens": 20},
        f"{answered}_tokens": 30,
        f"{answered}_tokens_details": {"reasoning_tokens": 10},
        "total_tokens": 150,
    }


BODIES: dict[str, type[ChatBody | ResponsesBody]] = {CHAT: ChatBody, RESPONSES: ResponsesBody}


class Served(NamedTuple):
    """One request; ``param`` is what was refused."""

    path: str
    body: Any
    status: int
    param: str | None


class RefusingProvider:
    """An ASGI application, for a ``ModelServer`` or in process."""

    def __init__(self, *, is_openai: bool = True) -> None:
        """A compatible server knows models of its own as well."""
        self.ledger: list[Served] = []
        self._unknown = NEWER if is_openai else COMPATIBLE

    def answer(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Give status and body of the answer, and enter the request in the ledger."""
        try:
            request = BODIES[path].model_validate(body)
            status, answer = 200, request.answer(find_rules(request.model, self._unknown))
        except ValidationError as error:
            first = error.errors()[0]
            param = ".".join(str(part) for part in first["loc"])
            status, answer = 400, RefusedError(param, f"Invalid value for '{param}': {first['msg']}.").body
        except RefusedError as error:
            status, answer = 400, error.body
        self.ledger.append(Served(path, body, status, None if status == 200 else answer["error"]["param"]))
        return status, answer

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve one request."""
        content, has_more = b"", True
        while has_more:
            message = await receive()
            content, has_more = content + message.get("body", b""), message.get("more_body", False)
        status, answer = self.answer(scope["path"], json.loads(content))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
