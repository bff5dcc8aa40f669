"""A flow as large as they come: 20 steps of 10 audits."""

from __future__ import annotations

from typing import Any

STEPS, AUDITS = 20, 10


def make_document() -> dict[str, Any]:
    """A flow of that size, with something in most fields."""
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "total": {"type": "number"}},
        "required": ["text", "total"],
        "additionalProperties": False,
    }
    steps = [
        {
            "name": f"Step number {number}",
            "tool_name": f"tool_{number}",
            "description": f"Says what comes of part {number}.",
            "system_message": "Read what you are given.\n\nThen write what it says, in two sentences.",
            "output_schema": schema,
            "include_results": [number - 1] if number > 1 else [],
            "audits": [
                {
                    "name": f"Audit number {audit}",
                    "rule": f"output.text != '{audit}'",
                    "message": f"'The text must not be {audit}.'",
                    "path": "'/text'",
                }
                for audit in range(1, AUDITS + 1)
            ],
        }
        for number in range(1, STEPS + 1)
    ]
    return {"name": "large", "title": "Large", "steps": steps}
