"""Tries a step of a flow that is being edited: its request, its audits, and one call of the model.

The panel posts the whole page and what was chosen in the panel. The answer is HTML: the panel as a whole (``open``) or
those of its parts that change (``preview``, ``judge``, ``call``). Nothing of the page is stored.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from flows.admin.access import require_permission
from flows.admin.flow_admin import FlowAdmin
from flows.admin.throttle import limit_rate
from flows.engine.judgement import clean_output
from flows.models import Flow
from runs.admin.try_trial import Trial
from runs.admin.try_verdict import ShownVerdict, show_error, show_verdict
from runs.request_places import stepping_aside
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail
from runs.try_out.model_call import CallResult, NotSentError, call_model, find_timeout

PARTS = {
    "preview": ("problems", "found", "request", "stored", "call", "verdict"),
    "judge": ("problems", "found", "verdict"),
    "call": ("problems", "found", "stored", "pasted", "verdict"),
}
"""What is replaced after each action, by the name of its template and of its element."""


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""

    @require_POST
    @require_permission("flows.view_flow")
    @require_permission("flows.change_flow")
    @limit_rate("try", most=60, seconds=60)
    def try_step(request: HttpRequest) -> HttpResponseBase:
        return _try_step(request, flow_admin)

    return [path("try/", flow_admin.admin_site.admin_view(try_step), name="flows_flow_try")]


def _try_step(request: HttpRequest, flow_admin: FlowAdmin) -> HttpResponseBase:
    action = request.POST.get("try_action", "")
    if action not in {"open", *PARTS}:
        return _refuse(request, "This page asks for something that isn't known. Reload it and try again.", 400)
    number = request.POST.get("flow", "")
    flow = None
    if number:
        known = number.isascii() and number.isdigit() and len(number) < 19
        flow = Flow.objects.filter(pk=int(number)).first() if known else None
        if flow is None:
            return _refuse(request, "This flow is no longer there. Somebody deleted it meanwhile.", 404)
    # Reading the page writes into the flow that it is given.
    draft = flow_admin.read_posted(request, copy.copy(flow))
    index = draft.find_step(request.POST.get("try_step", ""))
    if index is None:
        return _refuse(request, "This step is no longer on the page. Close this, and try another one.", 404)
    trial = Trial(request, flow, draft, index)
    if action == "open":
        trial.begin()
        return _show_all(request, trial)
    if trial.spec is None:
        return _show_parts(request, trial, ("problems", "request", "verdict"), "The page has problems.")
    trial.find_basis(is_fresh=action == "preview")
    match action:
        case "preview":
            return _show_preview(request, trial)
        case "judge":
            return _judge(request, trial)
        case _:
            return _call_model(request, trial, flow_admin)


def _show_all(request: HttpRequest, trial: Trial) -> HttpResponse:
    context = {**_preview(trial), "announcement": ""}
    return render(request, "admin/flows/flow/try/panel.html", {"trial": trial, **context})


def _show_preview(request: HttpRequest, trial: Trial) -> HttpResponse:
    context = _preview(trial)
    said = "There is no request: see what is said about it." if trial.is_hindered else "The request is up to date."
    if trial.is_local and not trial.is_hindered:
        said = "The computed output is up to date."
    return _show_parts(request, trial, PARTS["preview"], said, **context)


def _preview(trial: Trial) -> dict[str, Any]:
    """What the step would begin with; of a local step also what becomes of the output that it computes."""
    trial.find_preview()
    found = trial.preview
    if found is None or found.output is None:
        return {}
    return {"verdict": show_verdict(trial, found.output, notes=found.notes, title="The computed output")}


def _judge(request: HttpRequest, trial: Trial) -> HttpResponse:
    output, title, problem = trial.find_judged()
    if output is None:
        return _show_parts(request, trial, PARTS["judge"], problem, verdict_problem=problem)
    verdict = show_verdict(trial, output, title=title, earlier=trial.judged_attempt)
    return _show_parts(request, trial, PARTS["judge"], verdict.sentence, verdict=verdict)


@limit_rate("try-call", most=10, seconds=60)
def _call_model(request: HttpRequest, trial: Trial, flow_admin: FlowAdmin) -> HttpResponse:
    if not request.user.has_perm("runs.add_run"):
        raise PermissionDenied("You may not call the model: your account lacks “runs.add_run”.")
    trial.find_preview()
    problem = trial.find_obstacle()
    preview = trial.preview
    if problem or preview is None or preview.request is None:
        problem = problem or "There is no request to send."
        return _show_parts(request, trial, PARTS["call"], problem, verdict_problem=problem)
    step = trial.step
    try:
        with stepping_aside():
            result = call_model(
                request=preview.request,
                step=step,
                flow_id=trial.flow.pk if trial.flow else None,
                timeout=find_timeout(step.time_limit),
            )
    except NotSentError as error:
        return _show_parts(request, trial, PARTS["call"], str(error), verdict_problem=str(error))
    flow_admin.log_change(request, trial.flow or Flow(title=trial.title), _describe_call(trial, result))
    _leave_trail(trial, result)
    verdict = _judge_reply(trial, result)
    return _show_parts(request, trial, PARTS["call"], verdict.sentence, verdict=verdict)


def _judge_reply(trial: Trial, result: CallResult) -> ShownVerdict:
    if result.reply is None:
        return show_error(trial, result)
    if result.reply.arguments is None:
        return show_verdict(trial, None, title="What the model answered", call=result)
    output, notes = clean_output(result.reply.arguments)
    # At hand for another look after the audits are changed, without paying again.
    trial.paste(output)
    return show_verdict(trial, output, notes=notes, title="What the model answered", call=result)


def _describe_call(trial: Trial, result: CallResult) -> str:
    if result.error is not None:
        words = f"no answer: {result.error.code}"
    elif not result.usage.reported:
        words = "tokens not reported"
    else:
        words = f"{result.usage.total:,} tokens"
    return f"Tried step {trial.index} with one model call ({words})."


def _leave_trail(trial: Trial, result: CallResult) -> None:
    brought: dict[str, Any]
    if result.error is not None:
        brought = {"error": result.error.code}
    else:
        brought = {"tokens": result.usage.total if result.usage.reported else None}
    leave_trail(
        action=TrailAction.STEP_TRIED,
        about=trial.flow,
        kind="flow",
        label=str(trial.flow or trial.title),
        details={"step": trial.index, **brought},
    )


def _show_parts(
    request: HttpRequest, trial: Trial, parts: Sequence[str], announcement: str, **context: Any
) -> HttpResponse:
    templates = [f"admin/flows/flow/try/{part}.html" for part in parts]
    context = {"trial": trial, "templates": templates, "announcement": announcement, **context}
    return render(request, "admin/flows/flow/try/parts.html", context)


def _refuse(request: HttpRequest, sentence: str, status: int) -> HttpResponse:
    return render(request, "admin/flows/flow/try/refused.html", {"sentence": sentence}, status=status)
