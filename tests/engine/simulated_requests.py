"""Requests as the engine sends them, for tests of the simulated model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.engine.openai_client import simulated_client
from flows.engine.prompt import ATTEMPT_HEADING, CURRENT_STEP_HEADING
from flows.engine.reply import ToolReply, parse_reply
from flows.engine.simulated_model import SimulatedModel

INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "vendor_name": {"type": "string"},
        "contact_email": {"type": "string", "format": "email"},
        "due_date": {"type": "string", "format": "date"},
        "created_at": {"type": "string", "format": "date-time"},
        "record": {"type": "string", "format": "uuid"},
        "accent": {"type": "string", "pattern": "^#[0-9a-fA-F]{6}$"},
        "currency": {"type": "string", "enum": ["EUR", "USD"]},
        "kind": {"type": "string", "const": "invoice"},
        "discount": {"type": ["number", "null"], "minimum": 0, "maximum": 0.3},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "is_paid": {"type": "boolean"},
        "lines": {"type": "array", "minItems": 2, "maxItems": 4, "items": {"$ref": "#/$defs/Line"}},
    },
    "$defs": {
        "Line": {
            "type": "object",
            "properties": {
                "item": {"type": "string"},
                "quantity": {"type": "integer", "minimum": 1},
                "price": {"type": "number", "exclusiveMinimum": 0},
            },
            "required": ["item", "quantity", "price"],
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
INVOICE["required"] = list(INVOICE["properties"])

COLOR: dict[str, Any] = {
    "type": "object",
    "properties": {"color": {"type": "string"}},
    "required": ["color"],
    "additionalProperties": False,
}


def make_request(schema: Mapping[str, Any] = COLOR, *, system: str = "Choose well.", **changes: Any) -> dict[str, Any]:
    """A request for a forced call of the tool `make`; a change to None leaves the field out."""
    function = {"name": "make", "description": "Make it.", "strict": True, "parameters": schema}
    request = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": '{"brand":"Kestrel"}'}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "make"}},
        "parallel_tool_calls": False,
    }
    return {name: value for name, value in {**request, **changes}.items() if value is not None}


def show_attempts(*numbers: int, system: str = "Choose well.") -> str:
    """The system message of a retry that shows the attempts of these numbers."""
    attempts = [f"{ATTEMPT_HEADING.format(number=number)}\nOutput: {{}}\nIssues:\n- high: No." for number in numbers]
    return "\n\n".join([system, CURRENT_STEP_HEADING, *attempts])


async def ask(app: SimulatedModel, request: dict[str, Any], *, key: str = "run-1-1") -> ToolReply:
    """What the simulated model answers, in process."""
    reply = await simulated_client(app).complete(request, idempotency_key=key, timeout=10)
    return parse_reply(reply.body, tool_name="make")
