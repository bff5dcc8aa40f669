"""The values of a flow's fields in words: “none”, “that of the flow”, “90 s”, “on”."""

from __future__ import annotations

from typing import Any

from flows.engine.differences.schema_words import describe_schema
from flows.engine.differences.text_diff import reveal
from flows.engine.spec import DEFAULT_RETRY_WINDOW, ModelSettings
from flows.engine.spec_check import AUDIT_EXPRESSIONS, STEP_EXPRESSIONS

SCHEMA_FIELDS = frozenset({"input_schema", "output_schema"})
"""They hold a JSON Schema."""

PROSE_FIELDS = frozenset({"name", "title", "description", "system_message", "message_template"})
"""What people write in words: it is quoted."""

CODE_FIELDS = frozenset({"tool_name", "output_type", *STEP_EXPRESSIONS, *AUDIT_EXPRESSIONS})
"""What is set as code."""

LONG_FIELDS = SCHEMA_FIELDS | PROSE_FIELDS - {"name"} | {*STEP_EXPRESSIONS, *AUDIT_EXPRESSIONS}
"""What may be too long for a few words."""

LONGEST_WORDS = 60
"""Characters of a text that is shown within a line."""

_INHERITED = ModelSettings.model_fields.keys()


def needs_lines(value: Any) -> bool:
    """Whether a value is shown as lines of its own."""
    return isinstance(value, dict) or (isinstance(value, str) and (len(value) > LONGEST_WORDS or "\n" in value))


def describe_value(field: str, value: Any, *, is_step: bool = False) -> str:
    """A JSON value of a field, in words that need no knowledge of its default."""
    if value is None or value == "" or value == []:
        return _describe_nothing(field, is_step=is_step)
    match value:
        case bool():
            return "on" if value else "off"
        case dict():
            return describe_schema(value)
        case list():
            return ", ".join(str(item) for item in value)
        case int() if field in ("time_limit", "retry_window"):
            return f"{value:,} s"
        case int() if field == "token_budget":
            return f"{value:,} tokens"
        case int() | float() if field == "cost_budget":
            return f"{value:,.8f}".rstrip("0").rstrip(".") + " USD"
        case int() | float():
            return f"{value:,}" if isinstance(value, int) else f"{value:g}"
        case str():
            return f"“{reveal(value)}”" if field in PROSE_FIELDS else reveal(value)
    return str(value)


def _describe_nothing(field: str, *, is_step: bool) -> str:
    if field in _INHERITED:
        return "that of the flow" if is_step else "that of the installation"
    if field == "fail_at":
        return "its severity"
    if field == "retry_window":
        return f"{DEFAULT_RETRY_WINDOW} s"
    return "none"
