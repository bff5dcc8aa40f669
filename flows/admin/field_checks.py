"""What is to be said of one field of the editor: by the code that saving uses, so that both say the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError

from flows.engine.differences import LineKind, compare_texts
from flows.engine.errors import ExpressionError, Problem, SpecError
from flows.engine.expression_paths import find_field_warnings
from flows.engine.expressions import FIELD_VARIABLES, ITEM_VARIABLES, parse_expression
from flows.engine.json_values import dump_json, find_line, find_places, format_pointer, parse_pointer
from flows.engine.judging import PYTHON_BESIDE_FOR_EACH
from flows.engine.plugins import PREFIX, registry
from flows.engine.schemas import check_input_schema
from flows.engine.spec import MAX_SCHEMA_BYTES
from flows.engine.spec_check import check_expression
from flows.engine.strict_schema import check_strict, make_strict
from flows.engine.typed_output import schema_of_type
from flows.forms import JsonObjectField

SCHEMA_FIELDS = ("output_schema", "input_schema")

MOST_SHOWN = 20
"""Problems of one field that are told one by one."""

MAX_WRITTEN = 2 * MAX_SCHEMA_BYTES
"""Characters of a schema that was made strict, with line breaks and indents."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about a text, with the line and column (from 1) that it is about, or a JSON pointer into it."""

    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """What is wrong with a text, what is most likely not meant, and one line if it is right. All empty for no text."""

    problems: Sequence[Remark] = ()
    more: int = 0
    """Problems beyond those that are told."""
    warnings: Sequence[Remark] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """What an editor's page says of the output of a step, or of the input: the text of a schema, or a Python type."""

    text: str = ""
    type_name: str = ""

    def read(self) -> dict[str, Any] | None:
        """The schema, None if there is none that can be read."""
        known = registry.output_types.get(self.type_name)
        try:
            return schema_of_type(known.model) if known is not None else JsonObjectField().to_python(self.text)
        except (SpecError, ValidationError):
            return None


@dataclass(frozen=True, slots=True)
class StrictSchema:
    """A schema made strict: its text, and the changed lines. Or the names of properties that one must decide on."""

    text: str = ""
    changes: Sequence[str] = ()
    undecided: Sequence[str] = ()


# ---------------------------------------------------------------------------------------------------------------
# Schemas


def check_schema_text(field: str, text: str) -> Feedback:
    """Hold the text of a schema field against all that saving asks of it."""
    schema, feedback = _read_schema(text)
    if schema is None:
        return feedback
    problems = check_strict(schema) if field == "output_schema" else check_input_schema(schema)
    if problems:
        shown = problems[:MOST_SHOWN]
        return Feedback(_place_problems(text, shown), more=len(problems) - len(shown))
    properties = schema.get("properties")
    count = len(properties) if isinstance(properties, dict) else 0
    kind = "Valid JSON Schema, strict" if field == "output_schema" else "Valid JSON Schema"
    return Feedback(summary=f"{kind}: {count} {'property' if count == 1 else 'properties'}")


def make_strict_text(text: str, *, optional: str) -> tuple[StrictSchema | None, Feedback]:
    """Make the schema in a text strict; None if the text holds none. Beside it stands what is left to say.

    ``optional`` says what properties become that may be left out: ``null`` or ``given``. If it is empty and there are
    such properties, their names come back and the schema stays as it is.
    """
    schema, feedback = _read_schema(text)
    if schema is None:
        return None, feedback
    strict = make_strict(schema, optional_becomes_null=optional != "given")
    if not optional and strict != make_strict(schema, optional_becomes_null=False):
        return StrictSchema(undecided=_find_optional(schema)), Feedback()
    written = dump_json(strict, indent=2)
    # References that are written out can make it larger than a field may be.
    if dump_json(strict) == dump_json(schema) or len(written) > MAX_WRITTEN:
        return StrictSchema(text), check_schema_text("output_schema", text)
    return StrictSchema(written, _list_changed_lines(schema, strict)), check_schema_text("output_schema", written)


def _list_changed_lines(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    # Without commas: one that follows a line is no change of it.
    texts = (json.dumps(schema, indent=1, separators=("", ": "), ensure_ascii=False) for schema in (old, new))
    lines = (line for block in compare_texts(*texts).blocks for line in block.lines)
    return [f"{line.kind.value} `{line.text.strip()}`" for line in lines if line.kind is not LineKind.SAME]


def _read_schema(text: str) -> tuple[dict[str, Any] | None, Feedback]:
    try:
        return JsonObjectField().to_python(text), Feedback()
    except ValidationError as error:
        return None, Feedback([Remark(one.messages[0], **(one.params or {})) for one in error.error_list])


def _place_problems(text: str, problems: Sequence[Problem]) -> list[Remark]:
    ways = {problem.path: _list_ancestors(problem.path) for problem in problems}
    places = find_places(text, [pointer for way in ways.values() for pointer in way])
    remarks = []
    for problem in problems:
        place = next((places[pointer] for pointer in ways[problem.path] if pointer in places), (None, None))
        remarks.append(Remark(problem.message, problem.path, *place))
    return remarks


def _list_ancestors(pointer: str) -> list[str]:
    """A pointer, and those to what is around it, from the inside out: what a problem is about may be missing."""
    parts = parse_pointer(pointer)
    return [format_pointer(parts[:count]) for count in range(len(parts), -1, -1)]


def _find_optional(schema: Any) -> list[str]:
    """The names of properties that may be left out, each once."""
    names: dict[str, None] = {}
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        if not isinstance(node, dict):
            continue
        properties, required = node.get("properties"), node.get("required")
        if isinstance(properties, dict):
            kept = required if isinstance(required, list) else []
            names.update(dict.fromkeys(name for name in properties if name not in kept))
        stack += node.values()
    return list(names)


# ---------------------------------------------------------------------------------------------------------------
# Expressions


def check_expression_text(
    field: str, text: str, *, step: int, schemas: Mapping[int, KnownSchema], for_each: str = ""
) -> Feedback:
    """Check an expression, and hold the paths in it against the schemas of the page.

    ``step`` is the index of its step, from 1; ``schemas`` are by index, 0 for the input; ``for_each`` is that of its
    audit.
    """
    for_each = "" if field == "for_each" else for_each.strip()
    items = ITEM_VARIABLES if for_each else frozenset[str]()
    # Saving takes spaces away at both ends; those at the beginning stay here, or columns would be wrong.
    text = text.strip() if text.strip().startswith(PREFIX) else text.rstrip()
    try:
        if field == "rule" and items and text.startswith(PREFIX):
            raise ExpressionError(PYTHON_BESIDE_FOR_EACH)
        check_expression(field, text, registry, items)
    except ExpressionError as error:
        return Feedback([Remark(str(error), line=error.line, column=error.column)])
    if text.startswith(PREFIX):
        kind = "audit" if field == "rule" else "function"
        return Feedback(summary=f"Valid: the {kind} “{text.removeprefix(PREFIX)}” is registered")
    variables = parse_expression(text, variables=FIELD_VARIABLES[field] | items).variables
    summary = f"Valid: reads {', '.join(sorted(variables))}" if variables else "Valid: reads no variable"
    return Feedback(warnings=_find_warnings(field, text, step, schemas, for_each), summary=summary)


def _find_warnings(field: str, text: str, step: int, schemas: Mapping[int, KnownSchema], for_each: str) -> list[Remark]:
    known = {index: schema.read() for index, schema in schemas.items() if index <= step}
    remarks = []
    try:
        doubts = find_field_warnings(field, text, step=step, schemas=known, for_each=for_each)
    except ExpressionError:
        # The text itself was checked: it is for_each that can't be read, and its own field reports that.
        return []
    for doubt in doubts:
        line, column = find_line(text, doubt.offset)
        remarks.append(Remark(f"Line {line}, column {column}: {doubt.message}", line=line, column=column))
    return remarks[:MOST_SHOWN]
