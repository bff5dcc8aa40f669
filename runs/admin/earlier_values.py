"""What the variables of expressions held in an earlier run: real values to write against."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.views.decorators.http import require_POST

from flows.admin.access import has_permission, require_permission
from flows.admin.feedback import VARIABLES
from flows.admin.flow_admin import FlowAdmin
from flows.admin.posted_json import PostedError, get_number, get_text, read_posted_json, refuse_unreadable
from flows.admin.throttle import limit_rate
from flows.engine.expressions import FIELD_VARIABLES
from flows.engine.json_values import clean_value
from flows.engine.spec import MAX_STEPS
from runs.admin.run_values import RunValues
from runs.admin.value_tree import build_tree
from runs.models import Run, Step
from runs.pages.badges import STATES

RUNS_OFFERED = 10
ASKED_A_MINUTE = 120
MOST_BYTES = 40_000
"""Of all values of one answer together, roughly."""

_MOST_ID = 2**63 - 1


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    view = require_permission("flows.view_flow")(values_view)
    return [path("values/", flow_admin.admin_site.admin_view(view), name="flows_flow_values")]


@require_POST
@limit_rate("flow-values", most=ASKED_A_MINUTE, seconds=60)
@refuse_unreadable
def values_view(request: HttpRequest) -> HttpResponse:
    """The latest runs of a flow, and what the variables of one field of one step held in one of them.

    Posted is ``{"flow", "step", "names", "field"}``: the key of the flow, the step's index from 1, the names of the
    page's steps in their order, and the field. ``run`` chooses a run; ``rule`` is the audit's rule, for ``item``;
    ``part`` asks for the element of ``steps`` with that index instead of the variables.
    """
    if not has_permission(request, "runs.view_run"):
        return JsonResponse({"note": "You may not see runs: your account lacks “runs.view_run”.", "runs": []})
    posted = read_posted_json(request)
    flow_id, step = get_number(posted, "flow", most=_MOST_ID), get_number(posted, "step", most=MAX_STEPS)
    names, field = _read_names(posted), get_text(posted, "field")
    if flow_id is None or not step or step > len(names) or field not in FIELD_VARIABLES:
        raise PostedError("“flow”, “step”, “names” or “field” is missing or none that there is.")
    part = get_number(posted, "part", most=step - 1)
    runs = list(Run.objects.filter(flow=flow_id).only("status", "created_at").order_by("-pk")[:RUNS_OFFERED])
    if not runs:
        return JsonResponse({"note": "No run of this flow yet: there are no values to show.", "runs": []})
    run = _choose_run(runs, get_number(posted, "run", most=_MOST_ID), names[step - 1])
    values = RunValues(run.pk, field=field, step=step, names=names, rule=get_text(posted, "rule"))
    if part is not None:
        tree = build_tree(values.read_step(part), most_bytes=MOST_BYTES, segment=f"[{part}]")
        return JsonResponse({"tree": tree})
    answer = {
        "note": "",
        "runs": [{"id": one.pk, "words": _describe_run(one)} for one in runs],
        "run": run.pk,
        "variables": _describe_values(values, [name for name in VARIABLES if name in FIELD_VARIABLES[field]]),
    }
    return JsonResponse(answer)


def _read_names(posted: dict[str, Any]) -> list[str]:
    names = posted.get("names")
    if not isinstance(names, list) or len(names) > MAX_STEPS or not all(isinstance(name, str) for name in names):
        raise PostedError(f"“names” must be a list of at most {MAX_STEPS} names of steps.")
    cleaned: list[str] = clean_value(names).value
    return cleaned


def _choose_run(runs: list[Run], wanted: int | None, step_name: str) -> Run:
    """The run that was asked for, else the latest one that came to the step, else the latest one."""
    if wanted is not None:
        chosen = next((run for run in runs if run.pk == wanted), None)
        if chosen is None:
            raise PostedError(f"Run {wanted} is not among the latest runs of this flow any more. Choose another one.")
        return chosen
    came = Step.objects.filter(run__in=[run.pk for run in runs], name=step_name[:100]).order_by("-run_id")
    latest = came.values_list("run_id", flat=True).first()
    return next((run for run in runs if run.pk == latest), runs[0])


def _describe_run(run: Run) -> str:
    return f"Run {run.pk}, {STATES[run.status].word.lower()}, {date_format(localtime(run.created_at), 'j F, H:i')}"


def _describe_values(values: RunValues, names: list[str]) -> list[dict[str, Any]]:
    described: list[dict[str, Any]] = []
    for name in names:
        if name == "steps":
            described.append({"name": name, "note": "", "tree": _outline_steps(values)})
            continue
        value, note = values.read(name)
        is_shown = value is not None or not note
        tree = build_tree(value, most_bytes=MOST_BYTES // 3, segment=name) if is_shown else None
        described.append({"name": name, "note": note, "tree": tree})
    return described


def _outline_steps(values: RunValues) -> dict[str, Any]:
    """The variable ``steps`` as a tree whose parts are asked for one by one: their outputs may be large."""
    parts = [
        {"segment": f"[{index}]", "preview": words, "part": index} for index, words in enumerate(values.list_steps())
    ]
    return {
        "segment": "steps",
        "preview": f"{len(parts)} element{'' if len(parts) == 1 else 's'}",
        "parts": parts,
    }
