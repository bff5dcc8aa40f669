"""Refuses what the real API would refuse, with errors that read alike, so that mistakes show before money is spent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.model_families import ForcedTools, ModelFamily, ReasoningEffort, find_family
from flows.engine.model_request import find_effort
from flows.engine.providers import Api

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_ARGUMENTS = frozenset(
    {
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
    }
)
_CHAT_ARGUMENTS = _ARGUMENTS | frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "n",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "verbosity",
    }
)
_RESPONSES_ARGUMENTS = _ARGUMENTS | frozenset(
    {
        "background",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "previous_response_id",
        "reasoning",
        "text",
        "truncation",
    }
)
_FORBIDDEN_KEYWORDS = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "patternProperties")
_DEEPEST_SCHEMA = 50


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


def does_reason(model: str, effort: ReasoningEffort | None) -> bool:
    """Whether the model thinks before it answers."""
    return (effort or find_family(model).default_effort) not in ("", ReasoningEffort.NONE)


def check_request(body: Any, api: Api) -> Refusal | None:
    """What the API would object to in the parsed request ``body``, None where it wouldn't."""
    if not isinstance(body, dict):
        return Refusal(400, "We could not parse the JSON body of your request: it must be a JSON object.")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        return Refusal(400, "you must provide a model parameter", param="model")
    known = _RESPONSES_ARGUMENTS if api is Api.RESPONSES else _CHAT_ARGUMENTS
    if unknown := sorted(body.keys() - known):
        return Refusal(400, f"Unrecognized request argument supplied: {unknown[0]}", param=unknown[0])
    if body.get("stream"):
        return _unsupported("stream", "The simulated model does not stream: leave out 'stream'.", "unsupported_value")
    check_messages = _check_input if api is Api.RESPONSES else _check_messages
    return _check_settings(body, find_family(model), api) or check_messages(body) or _check_tools(body, api)


def _check_settings(body: Mapping[str, Any], family: ModelFamily, api: Api) -> Refusal | None:
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        limit = body.get(name)
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            return Refusal(400, f"Invalid '{name}': expected an integer of 1 or more, got {limit!r}.", param=name)
    if body.get("max_tokens") is not None and family.max_tokens_field != "max_tokens":
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return _unsupported("max_tokens", message, "unsupported_parameter")
    if "parallel_tool_calls" in body and not family.takes_parallel_tool_calls:
        message = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
        return _unsupported("parallel_tool_calls", message, "unsupported_parameter")
    return _check_effort(body, family, api) or _check_temperature(body, family)


def _check_effort(body: Mapping[str, Any], family: ModelFamily, api: Api) -> Refusal | None:
    effort = find_effort(body)
    param = "reasoning.effort" if api is Api.RESPONSES else "reasoning_effort"
    if effort is not None and effort not in family.efforts:
        message = f"Unsupported value: '{param}' does not support '{effort}' with this model."
        return _unsupported(param, message, "unsupported_value")
    if api is Api.RESPONSES or not body.get("tools"):
        return None
    is_taken = {
        ForcedTools.ALWAYS: True,
        ForcedTools.WITHOUT_EFFORT: effort is None,
        ForcedTools.WITH_EFFORT_NONE: effort == ReasoningEffort.NONE,
        ForcedTools.NEVER: False,
    }
    if is_taken[family.chat_tools]:
        return None
    message = (
        f"Function tools with reasoning_effort are not supported for {body['model']} in /v1/chat/completions. "
        "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
    )
    return Refusal(400, message, param="reasoning_effort")


def _check_temperature(body: Mapping[str, Any], family: ModelFamily) -> Refusal | None:
    temperature = body.get("temperature")
    if temperature is None:
        return None
    if not _is_number(temperature) or not 0 <= temperature <= 2:
        return Refusal(
            400, f"Invalid 'temperature': expected a number from 0 to 2, got {temperature!r}.", param="temperature"
        )
    effort = find_effort(body)
    if temperature != 1 and not family.takes_temperature(None if effort is None else ReasoningEffort(effort)):
        message = (
            f"Unsupported value: 'temperature' does not support {temperature} with this model. "
            "Only the default (1) value is supported."
        )
        return _unsupported("temperature", message, "unsupported_value")
    return None


def _check_input(body: Mapping[str, Any]) -> Refusal | None:
    for name in ("input", "instructions"):
        if not isinstance(body.get(name, "" if name == "instructions" else None), str):
            return Refusal(400, f"Invalid '{name}': expected a string.", param=name)
    return None


def _check_messages(body: Mapping[str, Any]) -> Refusal | None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return Refusal(400, "Invalid 'messages': expected an array with at least one message.", param="messages")
    for position, message in enumerate(messages):
        param = f"messages[{position}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return Refusal(400, f"Invalid '{param}.role': expected one of {', '.join(_ROLES)}.", param=param)
        if message["role"] != "assistant" and not isinstance(message.get("content"), str | list):
            return Refusal(400, f"Invalid '{param}.content': expected a string or an array of parts.", param=param)
    return None


def _check_tools(body: Mapping[str, Any], api: Api) -> Refusal | None:
    tools = body.get("tools")
    choice = body.get("tool_choice")
    if tools is None:
        if choice is None:
            return None
        return Refusal(400, "'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
    if not isinstance(tools, list) or not tools:
        return Refusal(400, "Invalid 'tools': expected an array with at least one tool.", param="tools")
    names = []
    for position, tool in enumerate(tools):
        param = f"tools[{position}]" if api is Api.RESPONSES else f"tools[{position}].function"
        function = _find_function(tool, api)
        if not isinstance(function, dict):
            return Refusal(400, f"Missing required parameter: '{param}'.", "missing_required_parameter", param)
        name = function.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            message = f"Invalid '{param}.name': string does not match pattern '^[a-zA-Z0-9_-]{{1,64}}$'."
            return Refusal(400, message, "invalid_value", f"{param}.name")
        names.append(name)
        if function.get("strict") and (fault := next(_find_strict_faults(function.get("parameters")), None)):
            message = f"Invalid schema for function '{name}': {fault}"
            return Refusal(400, message, "invalid_function_parameters", f"{param}.parameters")
    return _check_choice(choice, names, api)


def _find_function(tool: Any, api: Api) -> Any:
    """The function of a tool, or of a choice of one; None where there is none in the place that the API wants."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return None
    return tool if api is Api.RESPONSES else tool.get("function")


def _check_choice(choice: Any, names: list[str], api: Api) -> Refusal | None:
    if choice in (None, "none", "auto", "required"):
        return None
    function = _find_function(choice, api)
    if not isinstance(function, dict):
        return Refusal(400, f"Invalid value for 'tool_choice': {choice!r}.", "invalid_value", "tool_choice")
    if function.get("name") not in names:
        message = f"Invalid value for 'tool_choice': '{function.get('name')}' is not one of the tools in 'tools'."
        return Refusal(400, message, "invalid_value", "tool_choice")
    return None


def _find_strict_faults(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        found = schema.get("type") if isinstance(schema, dict) else None
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'."
        return
    if "anyOf" in schema:
        yield "schema must have type 'object' and not have 'anyOf' at the top level."
    yield from _walk_strict(schema, ())


def _walk_strict(schema: Any, context: tuple[str, ...]) -> Iterator[str]:
    if len(context) > _DEEPEST_SCHEMA:
        yield f"In context={context[:4]}, the schema is nested too deeply."
        return
    if not isinstance(schema, dict):
        yield f"In context={context}, {schema!r} is not of type 'object', 'boolean'."
        return
    for keyword in _FORBIDDEN_KEYWORDS:
        if keyword in schema:
            yield f"In context={context}, '{keyword}' is not permitted."
    kind = schema.get("type")
    if kind == "object" or "properties" in schema or (isinstance(kind, list) and "object" in kind):
        yield from _check_object(schema, context)
    if kind == "array" or "items" in schema:
        if "items" in schema:
            yield from _walk_strict(schema["items"], (*context, "items"))
        else:
            yield f"In context={context}, array schema missing items."
    options = schema.get("anyOf", [])
    for position, option in enumerate(options if isinstance(options, list) else []):
        yield from _walk_strict(option, (*context, "anyOf", str(position)))
    for keyword in ("$defs", "definitions"):
        definitions = schema.get(keyword, {})
        for name, definition in definitions.items() if isinstance(definitions, dict) else ():
            yield from _walk_strict(definition, (*context, keyword, name))


def _check_object(schema: Mapping[str, Any], context: tuple[str, ...]) -> Iterator[str]:
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"In context={context}, 'properties' is not of type 'object'."
        return
    if schema.get("additionalProperties") is not False:
        yield f"In context={context}, 'additionalProperties' is required to be supplied and to be false."
    required = schema.get("required", [])
    for name, part in properties.items():
        if not isinstance(required, list) or name not in required:
            yield (
                f"In context={context}, 'required' is required to be supplied and to be an array including every key "
                f"in properties. Missing '{name}'."
            )
        yield from _walk_strict(part, (*context, "properties", name))


def _unsupported(param: str, message: str, code: str) -> Refusal:
    return Refusal(400, message, code, param)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
