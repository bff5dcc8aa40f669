"""Expressions of tests, and what they are evaluated over."""

from __future__ import annotations

import asyncio
from typing import Any

from flows.engine.cel_evaluation import NEEDS_PROCESS, Scope
from flows.engine.expression_process import evaluate_in_process
from flows.engine.expressions import parse_expression

VARIABLES = frozenset({"output", "input", "steps", "item"})

OUTPUT: dict[str, Any] = {
    "title": "October",
    "count": 2,
    "net": 131.5,
    "note": None,
    "lines": [{"text": "Paper", "amount": 120.0}, {"text": "Freight", "amount": 11.5}],
    "colours": {"primary": "#1f4e5f", "accent": "copper", "border": "#1f4e5f"},
    "tags": ["b", "a", "b"],
    "empty": [],
}


def parse(text: str) -> Any:
    return parse_expression(text, variables=VARIABLES)


async def evaluate_expression(expression: Any, variables: dict[str, Any], **options: Any) -> Any:
    """The value, worked out here or in a process."""
    value = Scope(variables).evaluate(expression)
    return await evaluate_in_process(expression, variables, **options) if value is NEEDS_PROCESS else value


def evaluate(text: str, **variables: Any) -> Any:
    known = {"output": OUTPUT, "input": {"plan": "team"}, **variables}
    return asyncio.run(evaluate_expression(parse(text), known))
