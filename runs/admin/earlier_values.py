"""What the variables of an expression held in an earlier run: real values to write against.

Values are shown as trees, each part with the path that an expression reads it by.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.views.decorators.http import require_POST

from flows.admin.access import has_permission, require_permission
from flows.admin.flow_admin import FlowAdmin
from flows.admin.language import VARIABLES
from flows.admin.posted_json import PostedError, get_number, get_text, read_posted_json, refuse_unreadable
from flows.engine.errors import ExpressionError
from flows.engine.evaluation import Evaluator, step_variables
from flows.engine.expressions import FIELD_VARIABLES
from flows.engine.history import History, find_final
from flows.engine.json_values import clean_value, dump_json, shorten
from flows.engine.plugins import PREFIX, registry
from flows.engine.spec import MAX_STEPS, FlowSpec, StepSpec
from flows.throttle import limit_rate
from runs.models import Run, Step
from runs.pages.badges import STATES
from runs.stored_history import load_history
from runs.try_out.rejudging import match_steps
from runs.try_out.trial import begin_time_budget, find_audited_output

MAX_RUNS_OFFERED = 10
MAX_REQUESTS_PER_MINUTE = 120
MAX_PARTS = 300
"""Nodes in the tree of one variable."""
MAX_STEP_PARTS = 100
"""Nodes in the tree of each step in ``steps``."""
MAX_ELEMENTS = 5
"""Elements of a list that are shown: the others are much like them."""
MAX_TEXT_LENGTH = 100
"""Characters of a value's preview, and of a key that is shown."""

_MAX_ID = 2**63 - 1
_NAME = re.compile(r"(?!(?:false|in|null|true)$)[A-Za-z_][A-Za-z0-9_]*")
_ITEM = "The element of the rule’s list that the issue is about; null if the rule gives false."


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The address of the values, below those of flows."""
    view = require_permission("flows.view_flow")(values_view)
    return [path("values/", flow_admin.admin_site.admin_view(view), name="flows_flow_values")]


@require_POST
@limit_rate("flow-values", most=MAX_REQUESTS_PER_MINUTE, seconds=60)
@refuse_unreadable
def values_view(request: HttpRequest) -> HttpResponse:
    """The latest runs of a flow, and what the variables of one field of one step held in one of them.

    Posted is ``{"flow", "step", "names", "field"}``: the key of the flow, the step's index from 1, the names of the
    page's steps in their order, and the field. ``run`` chooses a run; ``rule`` is the audit's rule, for ``item``.
    """
    if not has_permission(request, "runs.view_run"):
        return JsonResponse({"note": "You may not see runs: your account lacks “runs.view_run”.", "runs": []})
    posted = read_posted_json(request)
    flow_id, step = get_number(posted, "flow", most=_MAX_ID), get_number(posted, "step", most=MAX_STEPS)
    field, rule, wanted = get_text(posted, "field"), get_text(posted, "rule"), get_number(posted, "run", most=_MAX_ID)
    names = clean_value(posted.get("names")).value
    if not isinstance(names, list) or len(names) > MAX_STEPS or not all(isinstance(name, str) for name in names):
        raise PostedError(f"“names” must be a list of at most {MAX_STEPS} names of steps.")
    if flow_id is None or not step or step > len(names) or field not in FIELD_VARIABLES:
        raise PostedError("“flow”, “step”, “names” or “field” is missing or not valid.")
    newest = Run.objects.filter(flow=flow_id).order_by("-created_at", "-pk")
    runs = list(newest.only("status", "created_at")[:MAX_RUNS_OFFERED])
    if not runs:
        return JsonResponse({"note": "No runs of this flow yet, so no values to show.", "runs": []})
    run = _choose_run(runs, wanted, names[step - 1])
    offered = [{"id": one.pk, "words": _describe_run(one)} for one in runs]
    variables = list_variables(run, names, step, field, rule.strip())
    answer = {"note": "", "runs": offered, "run": run.pk, "variables": variables}
    return JsonResponse(answer, json_dumps_params={"ensure_ascii": False})


def _choose_run(runs: list[Run], wanted: int | None, step_name: str) -> Run:
    """The run that is wanted, if it is still among them, else the latest one that reached the step, else the latest."""
    steps = Step.objects.filter(run__in=[run.pk for run in runs], name=step_name[:100])
    reached = set(steps.values_list("run_id", flat=True))
    order = [*(run for run in runs if run.pk == wanted), *(run for run in runs if run.pk in reached), runs[0]]
    return order[0]


def _describe_run(run: Run) -> str:
    return f"Run {run.pk}, {STATES[run.status].word.lower()}, {date_format(localtime(run.created_at), 'j F, H:i')}"


def list_variables(run: Run, names: Sequence[str], step: int, field: str, rule: str) -> list[dict[str, Any]]:
    """The variables of ``field`` of a step, from 1, of an editor's page: each with its ``name``, ``note`` and ``tree``.

    ``names`` are those of the page's steps; ``rule`` is that of the audit, for ``item``. There is a note where there is
    no value, or where it is not quite what the variable held.
    """
    history = _load_history(run, names, step)
    # Of the flow as it is being written, variables have the names only.
    named = tuple(StepSpec.model_construct(name=name) for name in names)
    values = step_variables(FlowSpec.model_construct(name="values", steps=named), history, step)
    final = find_final(history.attempts(step))
    absent = "No usable output in this run." if final else f"Run {run.pk} did not reach this step."
    notes: dict[str, str] = {}
    values["output"] = final.usable_output if final else None
    if final is not None:
        values["issues"] = [issue.model_dump(mode="json") for issue in final.issues]
        values["value"] = find_audited_output(final) if field == "output_sanitizer" else final.input
        if field == "input_sanitizer":
            notes["value"] = "As the step used it: what a sanitizer was given is not kept."
    if "item" in FIELD_VARIABLES[field]:
        values["item"], notes["item"] = _find_item(values, rule)
    variables = []
    for name in (name for name in VARIABLES if name in FIELD_VARIABLES[field]):
        value = values.get(name)
        note = notes.get(name, absent if value is None else "")
        tree = None if value is None and note else build_tree(value, name)
        if name == "steps":
            tree = _build_steps_tree(values["steps"], history)
        variables.append({"name": name, "note": note, "tree": tree})
    return variables


def _load_history(run: Run, names: Sequence[str], step: int) -> History:
    """The run's attempts of the page's steps up to ``step``: they may have been moved or renamed since.

    Steps are found by their names; one that was renamed, by its position.
    """
    stored = load_history(run)
    places = match_steps(dict(Step.objects.filter(run=run).values_list("name", "index")), names)[:step]
    attempts = [stored.attempts(place) if place else () for place in places]
    return History(stored.run_id, (stored.attempts(0), *attempts))


def _find_item(values: dict[str, Any], rule: str) -> tuple[Any, str]:
    """The first element that the rule gives now for the output of then. Calls no plug-in."""
    if not rule or rule.startswith(PREFIX):
        return None, _ITEM
    try:
        found = asyncio.run(Evaluator(values, registry, begin_time_budget()).evaluate("rule", rule))
    except ExpressionError:
        return None, f"{_ITEM} The rule can’t be evaluated over this output."
    if isinstance(found, list) and found:
        return found[0], "The first of the rule’s list."
    return None, f"{_ITEM} Here the rule gives {'an empty list' if found == [] else 'no list'}."


def _build_steps_tree(steps: list[dict[str, Any]], history: History) -> dict[str, Any]:
    parts = []
    for index, step in enumerate(steps):
        final = find_final(history.attempts(index))
        words = f"“{step['name']}”, {final.outcome if final else 'not in this run'}" if index else "the input"
        parts.append({**build_tree(step, f"[{index}]", MAX_STEP_PARTS), "preview": words})
    return {"segment": "steps", "preview": _preview(parts), "parts": parts}


def build_tree(value: Any, segment: str, max_parts: int = MAX_PARTS) -> dict[str, Any]:
    """``value`` as nested parts: the ``segment`` that leads to each (``.total``, ``[0]``), a ``preview``, its parts.

    Upper levels come first, until there are ``max_parts``; ``more`` counts what is left out.
    """
    root: dict[str, Any] = {"segment": segment, "preview": _preview(value)}
    waiting = deque([(root, value)])
    while waiting:
        node, value = waiting.popleft()
        found = _list_parts(value)[:max_parts]
        max_parts -= len(found)
        parts = [{"segment": segment, "preview": _preview(part)} for segment, part in found]
        if parts:
            node["parts"] = parts
            waiting.extend(zip(parts, (part for _, part in found), strict=True))
        if isinstance(value, dict | list) and len(parts) < len(value):
            node["more"] = len(value) - len(parts)
    return root


def _list_parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [(f"[{index}]", item) for index, item in enumerate(value[:MAX_ELEMENTS])]
    if not isinstance(value, dict):
        return []
    return [
        (f".{key}" if _NAME.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]", part)
        for key, part in value.items()
        if len(key) <= MAX_TEXT_LENGTH
    ]


def _preview(value: Any) -> str:
    if isinstance(value, list):
        return "[]" if not value else f"{len(value):,} element{'' if len(value) == 1 else 's'}"
    if isinstance(value, dict):
        return shorten(f"{{{', '.join(islice(value, MAX_TEXT_LENGTH))}}}", MAX_TEXT_LENGTH)
    # A text of megabytes is not written out for its beginning.
    return shorten(dump_json(value[: MAX_TEXT_LENGTH + 1] if isinstance(value, str) else value), MAX_TEXT_LENGTH)
