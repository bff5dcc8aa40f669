"""Making schemas without JSON Schema, and reading them as a table: what the editor's field of a schema asks for.

Nothing is stored here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST
from pydantic import BaseModel, ConfigDict, StrictBool

from flows.admin.access import require_permission
from flows.admin.posted_json import read_posted_json
from flows.engine.differences import LineKind, compare_texts
from flows.engine.errors import Problem, SpecError
from flows.engine.json_values import dump_json, parse_object
from flows.engine.plugins import registry
from flows.engine.schema_builder import MAX_FIELDS, build_schema_from_example, list_rows
from flows.engine.spec import validate_document
from flows.engine.strict_schema import find_optional, make_strict
from flows.engine.typed_output import schema_of_type
from flows.throttle import limit_rate

MAX_PROBLEMS = 10


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    view = require_permission("flows.change_flow")(limit_rate("schema", most=120, seconds=60)(answer_question))
    return [path("schema/", site.admin_view(view), name="flows_flow_schema")]


class Question(BaseModel):
    """What the editor asks: a schema from an example or a type, one as a table, or one made strict or well laid out."""

    model_config = ConfigDict(extra="forbid")

    make: Literal["example", "type", "table", "strict", "format"]
    field: Literal["input_schema", "output_schema"]
    text: str = ""
    """The example, the name of the type, or the schema to show as a table."""
    with_descriptions: StrictBool = False
    optional: Literal["", "null", "given"] = ""
    """What becomes of properties that may be left out when a schema is made strict."""


@require_POST
def answer_question(request: HttpRequest) -> HttpResponse:
    """Take a ``Question`` as JSON, and give what was asked for as JSON.

    The answer has ``schema`` (text) and ``notes``; or ``rows``, those of the table, and ``notes``; or the names of
    properties that are ``undecided``, for ``optional`` to say what becomes of them; or ``problems`` of what the editor
    wrote, each with a path and a message. A question that the editor never asks is answered with 400
    and ``error``, one sentence.
    """
    try:
        question = _read_question(request)
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=400)
    try:
        return JsonResponse(_answer(question))
    except SpecError as error:
        return JsonResponse({"problems": _list_problems(error.problems)})


def _read_question(request: HttpRequest) -> Question:
    """Raises ``ValueError`` with a sentence for what is none."""
    try:
        return validate_document(Question, read_posted_json(request))
    except SpecError as error:
        raise ValueError(f"The request can't be read. {error.problems[0]}") from None


def _answer(question: Question) -> dict[str, Any]:
    match question.make:
        case "example":
            built = build_schema_from_example(
                _parse(question.text),
                for_input=question.field == "input_schema",
                with_descriptions=question.with_descriptions,
            )
            return {"schema": dump_json(built.schema, indent=2), "notes": built.notes}
        case "type":
            return {"schema": dump_json(_find_schema(question.text), indent=2), "notes": []}
        case "table":
            rows = list_rows(_parse(question.text))
            notes = [f"The first {MAX_FIELDS} fields are shown."] if len(rows) == MAX_FIELDS else []
            return {"rows": [asdict(row) for row in rows], "notes": notes}
        case "format":
            return {"schema": dump_json(_parse(question.text), indent=2), "notes": []}
        case "strict":
            return _make_strict(_parse(question.text), question.optional)


def _make_strict(schema: dict[str, Any], optional: str) -> dict[str, Any]:
    strict = make_strict(schema, optional_becomes_null=optional != "given")
    if not optional and strict != make_strict(schema, optional_becomes_null=False):
        return {"undecided": find_optional(schema)}
    return {"schema": dump_json(strict, indent=2), "notes": _list_changed_lines(schema, strict)}


def _list_changed_lines(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    # Without commas: one that follows a line is not a change of it.
    texts = (json.dumps(schema, indent=1, separators=("", ": "), ensure_ascii=False) for schema in (old, new))
    lines = (line for block in compare_texts(*texts).blocks for line in block.lines)
    return [f"{line.kind.value} `{line.text.strip()}`" for line in lines if line.kind is not LineKind.SAME]


def _parse(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except ValueError as error:
        raise SpecError([Problem("", str(error))]) from None


def _find_schema(name: str) -> dict[str, Any]:
    known = registry.output_types.get(name)
    if known is None:
        raise SpecError([Problem("", f"No output type is registered as “{name}”.")])
    return schema_of_type(known.model)


def _list_problems(problems: Iterable[Problem]) -> list[dict[str, str]]:
    listed = [{"path": problem.path, "message": problem.message} for problem in problems]
    more = len(listed) - MAX_PROBLEMS
    return listed[:MAX_PROBLEMS] + ([{"path": "", "message": f"{more} more problems follow."}] if more > 0 else [])
