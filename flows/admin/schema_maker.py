"""Making schemas without JSON Schema, and reading them as a table: what the editor's dialog asks for.

Nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
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
from flows.engine.errors import Problem, SpecError
from flows.engine.json_values import dump_json, parse_object
from flows.engine.plugins import registry
from flows.engine.schema_builder import MAX_FIELDS, build_schema_from_example, list_rows
from flows.engine.spec import validate_document
from flows.engine.typed_output import schema_of_type
from flows.throttle import limit_rate

MOST_PROBLEMS = 10


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    view = require_permission("flows.change_flow")(limit_rate("schema", most=120, seconds=60)(answer_question))
    return [path("schema/", site.admin_view(view), name="flows_flow_schema")]


class Question(BaseModel):
    """What the dialog asks: to make a schema from an example or a type, or to show one as a table."""

    model_config = ConfigDict(extra="forbid")

    make: Literal["example", "type", "table"]
    field: Literal["input_schema", "output_schema"]
    text: str = ""
    """The example, the name of the type, or the schema to show as a table."""
    with_descriptions: StrictBool = False


@require_http_methods(["GET", "HEAD", "POST"])
def answer_question(request: HttpRequest) -> HttpResponse:
    """GET gives the dialog; POST takes a ``Question`` as JSON and gives what was asked for as JSON.

    The answer has ``schema`` (text) and ``notes``; or ``rows``, those of the table, and ``notes``; or ``problems`` of
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
    return {"types": types}
