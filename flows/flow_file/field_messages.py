"""What is wrong with a field, for people who write it by hand: quotes that are missing, names that are misspelt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from flows.engine.errors import Problem
from flows.engine.json_values import describe_type
from flows.engine.spec import MAX_STEPS, AuditSpec, FlowSpec, StepSpec
from flows.flow_file.scalars import resolve_plain
from flows.flow_file.yaml_reading import Path

_OWNERS: dict[type[BaseModel], str] = {FlowSpec: "a flow", StepSpec: "a step", AuditSpec: "an audit"}
_PATTERNS = {
    "name": "A flow's name has lower-case letters and digits, with a hyphen between words, such as “ticket-triage”.",
    "tool_name": "A tool's name has 1 to 64 letters, digits, “_” and “-”, such as “extract_invoice”.",
}
_YES_AND_NO = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_PLACE_IN_EXPRESSION = re.compile(r"Line (\d+), column (\d+): ")
_SHOWN = 60
_MISSING = object()


def explain_field(problem: Problem, path: Path, document: Any, words: Mapping[Path, str]) -> Problem:
    """A problem that keeps a field from being read, in words that fit a file; as it is where they do already.

    ``words`` are what stands in the file for values that are no text.
    """
    owner, rest = _find_owner(path)
    if not rest:
        got = describe_type(_follow(document, path))
        message = f"Here {_OWNERS[owner]} is expected, with fields such as “name: …”; got {got}."
    elif (name := str(rest[0])) in owner.model_fields:
        message = _explain_value(owner, name, problem, _follow(document, path), words.get(path, ""))
    else:
        message = f"{problem.message}{_suggest_field(name, owner)}"
    return Problem(problem.path, message)


def explain_expression(problem: Problem) -> Problem:
    """A problem whose text begins with a line of its own, told apart from the lines of the file."""
    return Problem(problem.path, _PLACE_IN_EXPRESSION.sub(r"In line \1, column \2 of this text: ", problem.message, 1))


def _find_owner(path: Path) -> tuple[type[BaseModel], Path]:
    match path:
        case ("steps", int(), "audits", int(), *rest):
            return AuditSpec, tuple(rest)
        case ("steps", int(), *rest):
            return StepSpec, tuple(rest)
    return FlowSpec, path


def _suggest_field(name: str, owner: type[BaseModel]) -> str:
    for other, words in _OWNERS.items():
        if other is not owner and name in other.model_fields:
            return f" It is a field of {words}."
    close = get_close_matches(name, owner.model_fields, n=1)
    return f" Did you mean “{close[0]}”?" if close else ""


def _explain_value(owner: type[BaseModel], name: str, problem: Problem, value: Any, word: str) -> str:
    field = owner.model_fields[name]
    types = _list_types(field.annotation)
    match value:
        case None if field.is_required():
            return f"“{name}” has no value here, and {_OWNERS[owner]} can't do without."
        case None:
            return f"“{name}” has no value here. Leave the field out, or give it one."
        case bool() | int() | float() if str in types:
            shown = (word or str(value))[:_SHOWN]
            return f'“{name}” must be text, and {shown} is {describe_type(value)}. Put it in quotes: "{shown}".'
        case str() if bool in types:
            hint = f" Write {_YES_AND_NO[value.lower()]}." if value.lower() in _YES_AND_NO else ""
            hint = " Take the quotes away." if value in {"true", "false"} else hint
            return f"“{name}” must be true or false, got the text “{value[:_SHOWN]}”.{hint}"
        case str() if int in types and _is_number(value):
            return f"“{name}” must be a number, got the text “{value[:_SHOWN]}”. Take the quotes away."
        case list() if name == "steps" and len(value) > MAX_STEPS:
            return f"A flow has at most {MAX_STEPS} steps, and this one has {len(value):,}."
        case str() if name in _PATTERNS and "pattern" in problem.message:
            return f"{_PATTERNS[name]} Got “{value[:_SHOWN]}”."
    return problem.message


def _is_number(text: str) -> bool:
    try:
        return isinstance(resolve_plain(text), int | float)
    except ValueError:
        return False


def _list_types(annotation: Any) -> set[Any]:
    """The plain types that an annotation allows."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _list_types(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return set().union(*map(_list_types, get_args(annotation)))
    return {origin or annotation}


def _follow(value: Any, path: Path) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return value
