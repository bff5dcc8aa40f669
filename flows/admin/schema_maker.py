"""Making schemas without JSON Schema: what the editor's dialog asks for. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.views.decorators.http import require_http_methods
from pydantic import BaseModel, ConfigDict, StrictBool

from flows.admin.access import require_permission
from flows.admin.plugin_page import format_docstring
from flows.admin.posted_json import read_posted_json
from flows.admin.throttle import limit_rate
from flows.engine.errors import Problem, SpecError
from flows.engine.json_value import dump_json, parse_object
from flows.engine.output_schema import schema_of_type
from flows.engine.plugins import registry
from flows.engine.schema_making import make_schema_from_example
from flows.engine.schema_table import MAX_LEVELS, FieldType, SchemaTable, make_schema_from_fields
from flows.engine.schema_table_reading import read_table
from flows.engine.spec_check import parse_document

MOST_PROBLEMS = 10

TYPE_WORDS = {
    FieldType.TEXT: "Text",
    FieldType.INTEGER: "Whole number",
    FieldType.NUMBER: "Number",
    FieldType.BOOLEAN: "Yes or no",
    FieldType.CHOICE: "One of a list",
    FieldType.TEXTS: "List of texts",
    FieldType.INTEGERS: "List of whole numbers",
    FieldType.NUMBERS: "List of numbers",
    FieldType.OBJECTS: "List of objects",
    FieldType.OBJECT: "Object",
}


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    view = require_permission("flows.change_flow")(limit_rate("schema", most=120, seconds=60)(answer_question))
    return [path("schema/", site.admin_view(view), name="flows_flow_schema")]


class Question(BaseModel):
    """What the dialog asks: to make a schema from an example, a type or a table, or to show one as a table."""

    model_config = ConfigDict(extra="forbid")

    make: Literal["example", "type", "fields", "table"]
    field: Literal["input_schema", "output_schema"]
    text: str = ""
    """The example, the name of the type, or the schema to show as a table."""
    with_descriptions: StrictBool = False
    table: SchemaTable | None = None


@require_http_methods(["GET", "HEAD", "POST"])
def answer_question(request: HttpRequest) -> HttpResponse:
    """GET gives the dialog; POST takes a ``Question`` as JSON and gives what was asked for as JSON.

    The answer has ``schema`` (text) and ``notes``; or ``table``, or the ``refusal`` to show one; or ``problems`` of
    what the editor wrote, each with a path and a message. A question that the dialog never asks is answered with 400
    and ``error``, one sentence.
    """
    if request.method != "POST":
        return render(request, "admin/flows/flow/schema_maker.html", _describe_dialog())
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
        question = parse_document(Question, read_posted_json(request))
    except SpecError as error:
        raise ValueError(f"The request can't be read. {error.problems[0]}") from None
    if question.make == "fields" and question.table is None:
        raise ValueError("The request can't be read. “table” is missing.")
    return question


def _answer(question: Question) -> dict[str, Any]:
    for_input = question.field == "input_schema"
    match question.make:
        case "example":
            made = make_schema_from_example(
                _parse(question.text), for_input=for_input, with_descriptions=question.with_descriptions
            )
            return {"schema": dump_json(made.schema, indent=2), "notes": made.notes}
        case "type":
            return {"schema": dump_json(_find_schema(question.text), indent=2), "notes": []}
        case "table":
            return _show_table(question.text, for_input=for_input)
        case "fields":
            assert question.table is not None
            schema = make_schema_from_fields(question.table, for_input=for_input)
            return {"schema": dump_json(schema, indent=2), "notes": []}


def _show_table(text: str, *, for_input: bool) -> dict[str, Any]:
    if not text.strip():
        return {"table": SchemaTable(fields=()).model_dump(mode="json")}
    try:
        table = read_table(_parse(text), for_input=for_input)
    except SpecError as error:
        return {"refusal": str(error)}
    return {"table": table.model_dump(mode="json")}


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
    more = len(listed) - MOST_PROBLEMS
    return listed[:MOST_PROBLEMS] + ([{"path": "", "message": f"{more} more problems follow."}] if more > 0 else [])


def _describe_dialog() -> dict[str, Any]:
    types = [
        {
            "name": name,
            "description": format_docstring(known.model),
            "place": f"{known.model.__module__}.{known.model.__qualname__}",
        }
        for name, known in sorted(registry.output_types.items())
    ]
    return {"types": types, "field_types": TYPE_WORDS.items(), "max_levels": MAX_LEVELS}
