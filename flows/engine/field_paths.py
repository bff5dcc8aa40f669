"""The paths of an expression in one field of a flow, held against the schemas of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.engine.errors import Problem
from flows.engine.expression_paths import PathWarning, find_path_warnings
from flows.engine.expressions import FIELD_VARIABLES, parse_expression
from flows.engine.message_template import parse_template
from flows.engine.plugins import PREFIX

MOST_TOLD = 10
"""Paths of a flow that lead nowhere which are told one by one."""


def find_field_warnings(
    field: str, text: str, *, step: int, schemas: Mapping[int, Any], rule: str = ""
) -> list[PathWarning]:
    """What most likely leads nowhere in an expression or template of the step with the index ``step``, from 1.

    ``schemas`` are those of the outputs by index, 0 for the input; one that is not known is missing or None. ``rule``
    is that of the field's audit: it says what ``item`` is. Raises ``ExpressionError`` for a text that is no expression;
    one that names a Python function has no paths.
    """
    if field == "message_template":
        return [
            PathWarning(doubt.message, path.offset + doubt.offset)
            for path in parse_template(text).paths
            if path.text.isascii()  # expressions know no other names
            for doubt in _find_warnings(path.text, frozenset({path.variable}), step, schemas, rule)
        ]
    if text.startswith(PREFIX):
        return []
    variables = parse_expression(text, variables=FIELD_VARIABLES[field]).variables
    if field == "compute":
        # “previous” is what the step's input_expression and input_sanitizer made of the output before.
        variables -= {"previous"}
    return _find_warnings(text, variables, step, schemas, rule)


def _find_warnings(
    text: str, variables: frozenset[str], step: int, schemas: Mapping[int, Any], rule: str
) -> list[PathWarning]:
    if "item" not in variables or rule.startswith(PREFIX):
        rule = ""
    if rule:
        variables |= parse_expression(rule, variables=FIELD_VARIABLES["rule"]).variables
    sources = {"output": step, "previous": step - 1, "input": 0}
    known = {name: schemas.get(index) for name, index in sources.items() if name in variables}
    steps = [schemas.get(index) for index in range(step)] if "steps" in variables else None
    return find_path_warnings(text, schemas=known, steps=steps, rule=rule) if known or steps else []


def shorten(doubts: list[Problem]) -> list[Problem]:
    """The first of the doubts about the paths of a flow, and one that counts the others, if there are many."""
    more = len(doubts) - MOST_TOLD
    if more <= 0:
        return doubts
    paths = "path leads" if more == 1 else "paths lead"
    rest = f"{more} more {paths} nowhere in expressions of this flow; each field says so once you are in it."
    return [*doubts[:MOST_TOLD], Problem("/steps", rest)]
