"""What the editor tells while one types: checks of JSON, schemas and expressions, without storing anything."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.templatetags.static import static
from django.urls import URLPattern, path
from django.views.decorators.http import require_http_methods

from flows.admin.access import require_permission
from flows.admin.field_checks import (
    SCHEMA_FIELDS,
    Feedback,
    KnownSchema,
    check_expression_text,
    check_schema_text,
    make_strict_text,
)
from flows.admin.posted_json import PostedError, get_number, get_text, read_posted_json, refuse_unreadable
from flows.engine.expression_functions import FUNCTIONS
from flows.engine.expressions import FIELD_VARIABLES
from flows.engine.plugins import PREFIX, PythonFunction, registry
from flows.engine.spec import MAX_STEPS
from flows.throttle import limit_rate

CHECKS_A_MINUTE = 240
"""Of one user: more than anybody types."""

SCRIPTS = (
    "toolflow/js/json_text.js",
    "toolflow/admin/editor/field_text.js",
    "toolflow/admin/editor/schema_tools.js",
    "toolflow/admin/editor/value_tree.js",
    "toolflow/admin/editor/value_panel.js",
)
"""What the page loads once somebody writes a schema or an expression."""

_INDICES = frozenset(map(str, range(MAX_STEPS + 1)))

GIVES = {
    "input_expression": "a map: the input of this step",
    "compute": "a map: the output of this step",
    "input_sanitizer": "a map: the input that is used",
    "output_sanitizer": "a map: the output that is validated, audited and passed on",
    "for_each": "a list: the rule is asked of each item of it",
    "rule": "true or false, or a list with one element for each issue",
    "message": "text: what is wrong",
    "suggestions": "text, or a list of texts: how to fix it",
    "path": "text: a JSON pointer to the place in the output, such as '/total'",
    "pass_expression": "true or false: whether the output passes",
    "failure_reason_expression": "text: why the output did not pass",
}
"""What the expression of each field must give."""

VARIABLES = {
    "item": "the element of the rule’s list that the issue is about",
    "output": "the output of this step",
    "value": "what the sanitizer changes",
    "issues": "what the audits found in the output",
    "previous": "the output of the step before; in a local step the step’s input",
    "input": "the input of the run",
    "steps": "the input, steps[0], and the steps before this one",
}
"""What each variable of an expression is, in the order in which they are shown."""


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    guarded = require_permission("flows.change_flow")(feedback_view)
    return [path("feedback/", site.admin_view(guarded), name="flows_flow_feedback")]


@require_http_methods(["GET", "HEAD", "POST"])
@limit_rate("flow-feedback", most=CHECKS_A_MINUTE, seconds=60)
@refuse_unreadable
def feedback_view(request: HttpRequest) -> HttpResponse:
    """GET: the variables and functions of every field. POST: what is to be said of the text of one field.

    Posted is ``{"field", "text"}``; for expressions also ``step``, from 1, the audit's ``for_each``, and ``schemas`` by
    the index of the step, 0 for the input: ``{"1": {"text": …, "type": …}}``. With ``"action": "make_strict"`` a schema
    is made strict: ``optional`` is ``null`` or ``given`` and says what becomes of properties that may be left out.
    """
    if request.method != "POST":
        return JsonResponse(describe_fields())
    posted = read_posted_json(request)
    field, text, action = (get_text(posted, name) for name in ("field", "text", "action"))
    if field not in SCHEMA_FIELDS and field not in FIELD_VARIABLES:
        raise PostedError("“field” is not a field that can be checked.")
    if action not in ("", "make_strict"):
        raise PostedError("“action” must be “make_strict” or left out.")
    if action:
        return _answer_mending(posted, field, text)
    return JsonResponse(asdict(_check(posted, field, text)))


def describe_fields() -> dict[str, Any]:
    """What there is to write expressions with: what each field must give, its variables, and all functions."""
    return {
        "fields": {
            field: {"gives": GIVES[field], "variables": [name for name in VARIABLES if name in available]}
            for field, available in FIELD_VARIABLES.items()
        },
        "variables": VARIABLES,
        "functions": [{"usage": usage, "gives": gives} for usage, gives in FUNCTIONS.values()],
        "audits": _describe_plugins(registry.audits),
        "python_functions": _describe_plugins(registry.functions),
        "scripts": [static(script) for script in SCRIPTS],
    }


def _describe_plugins(functions: Mapping[str, PythonFunction]) -> list[dict[str, str]]:
    return [
        {"usage": f"{PREFIX}{name}", "gives": (inspect.getdoc(functions[name].function) or "").partition("\n")[0]}
        for name in sorted(functions)
    ]


def _check(posted: dict[str, Any], field: str, text: str) -> Feedback:
    if not text.strip():
        return Feedback()
    if field in SCHEMA_FIELDS:
        return check_schema_text(field, text)
    step = get_number(posted, "step", most=MAX_STEPS) or 1
    for_each = get_text(posted, "for_each")
    return check_expression_text(field, text, step=step, schemas=_read_schemas(posted), for_each=for_each)


def _read_schemas(posted: dict[str, Any]) -> dict[int, KnownSchema]:
    given = posted.get("schemas", {})
    if not isinstance(given, dict) or not all(
        key in _INDICES and isinstance(schema, dict) for key, schema in given.items()
    ):
        raise PostedError("“schemas” must be an object whose keys are the indices of steps.")
    return {int(key): KnownSchema(get_text(schema, "text"), get_text(schema, "type")) for key, schema in given.items()}


def _answer_mending(posted: dict[str, Any], field: str, text: str) -> HttpResponse:
    optional = get_text(posted, "optional")
    if field != "output_schema" or optional not in ("", "null", "given"):
        raise PostedError("Output schemas can be made strict, with “optional” as “null” or “given”.")
    if not text.strip():
        raise PostedError("No schema to make strict yet.")
    made, feedback = make_strict_text(text, optional=optional)
    return JsonResponse({"mending": asdict(made) if made else None, **asdict(feedback)})
