"""The view behind the panel that tries a step in the flow editor.

The page posts the whole editor and the panel's own fields. The answer is HTML: the whole panel (``open``), or the parts
of it that change (``preview``, ``judge``, ``call``). Nothing of the page is stored.
"""

from __future__ import annotations

import copy
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from flows.admin.access import require_permission
from flows.admin.flow_admin import FlowAdmin
from flows.engine.history import Outcome
from flows.engine.judging import clean_output
from flows.engine.plugins import registry
from flows.models import Flow
from flows.throttle import limit_rate
from runs.request_places import stepping_aside
from runs.trail.actions import TrailAction
from runs.trail.entries import leave_trail
from runs.try_out.model_call import CallResult, NotSentError, call_model
from runs.try_out.panel import Panel
from runs.try_out.trial import Verdict

PARTS = {
    "refused": ("problems",),
    "unreadable": ("problems", "request", "verdict"),
    "preview": ("problems", "found", "request", "stored", "verdict"),
    "judge": ("problems", "found", "verdict"),
    "call": ("problems", "found", "stored", "pasted", "verdict"),
}
"""The templates of the elements that an answer replaces."""


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The address of the panel, below those of flows."""

    @require_POST
    @require_permission("flows.view_flow")
    @require_permission("flows.change_flow")
    @limit_rate("try", most=60, seconds=60)
    def try_step(request: HttpRequest) -> HttpResponseBase:
        return _try_step(request, flow_admin)

    return [path("try/", flow_admin.admin_site.admin_view(try_step), name="flows_flow_try")]


def _try_step(request: HttpRequest, flow_admin: FlowAdmin) -> HttpResponseBase:
    action = request.POST.get("try_action", "")
    if action not in {"open", "preview", "judge", "call"}:
        return _refuse(request, "Unknown action. Reload the page and try again.", 400)
    flow = None
    if number := request.POST.get("flow", ""):
        is_key = number.isascii() and number.isdigit() and len(number) < 19
        flow = Flow.objects.filter(pk=int(number)).first() if is_key else None
        if flow is None:
            return _refuse(request, "This flow was deleted.", 404)
    # Reading the page writes into the flow that it is given.
    draft = flow_admin.read_posted(request, copy.copy(flow))
    index = draft.find_step(request.POST.get("try_step", ""))
    if index is None:
        return _refuse(request, "This step is no longer on the page. Close this panel, and try another step.", 404)
    panel = Panel(request, flow, draft, index)
    if panel.spec is None and action != "open":
        return _show_parts(request, "unreadable", panel=panel, announcement="The page has problems.")
    if panel.spec is not None:
        if action == "open":
            panel.fill()
        panel.load_trial(is_new=action in {"open", "preview"})
    match action:
        case "judge":
            return _judge(request, panel)
        case "call":
            return _call_model(request, panel, flow_admin)
        case "preview":
            return _show_parts(request, "preview", panel=panel, **_preview(panel))
    return render(request, "admin/flows/flow/try/panel.html", {"panel": panel, **_preview(panel)})


def _preview(panel: Panel) -> dict[str, Any]:
    """The request; of a local step the verdict about the output that it computes."""
    preview = panel.preview
    if panel.trial is None or preview is None or preview.problem:
        return {"announcement": "There is no request. See the problem in the panel."}
    if preview.output is None:
        return {"announcement": "The request is up to date."}
    verdict = panel.trial.judge(preview.output, registry, notes=preview.notes)
    described = panel.describe_verdict("The computed output", verdict)
    return {**described, "announcement": "The computed output is up to date."}


def _judge(request: HttpRequest, panel: Panel) -> HttpResponse:
    try:
        output, title = panel.read_output()
    except ValueError as error:
        return _show_parts(request, "judge", panel=panel, verdict_problem=str(error), announcement=str(error))
    assert panel.trial is not None
    verdict = panel.trial.judge(output, registry)
    described = panel.describe_verdict(title, verdict, stored=panel.judged_attempt)
    return _show_parts(request, "judge", panel=panel, **described)


@limit_rate("try-call", most=10, seconds=60)
def _call_model(request: HttpRequest, panel: Panel, flow_admin: FlowAdmin) -> HttpResponse:
    if not panel.can_call:
        raise PermissionDenied("You may not call the model: your account lacks “runs.add_run”.")
    problem, result = panel.obstacle, None
    if not problem:
        assert panel.preview is not None and panel.preview.request is not None
        flow_id = panel.flow.pk if panel.flow else None
        try:
            with stepping_aside():
                result = call_model(request=panel.preview.request, step=panel.step, flow_id=flow_id)
        except NotSentError as error:
            problem = str(error)
    if result is None:
        return _show_parts(request, "call", panel=panel, verdict_problem=problem, announcement=problem)
    _log_call(request, panel, result, flow_admin)
    verdict = _judge_answer(panel, result)
    described = panel.describe_verdict("What the model answered", verdict, call=result)
    return _show_parts(request, "call", panel=panel, **described)


def _judge_answer(panel: Panel, result: CallResult) -> Verdict:
    trial, reply = panel.trial, result.reply
    assert trial is not None
    if reply is None:
        return Verdict(trial.build_attempt(Outcome.ERRORED, error=result.error))
    if reply.arguments is None:
        return Verdict(trial.build_attempt(Outcome.INVALID, issues=reply.issues, raw_output=reply.raw))
    output, notes = clean_output(reply.arguments)
    # It can be checked again after the audits are changed, without paying again.
    panel.paste(output)
    return trial.judge(output, registry, notes=notes)


def _log_call(request: HttpRequest, panel: Panel, result: CallResult, flow_admin: FlowAdmin) -> None:
    """Note the call in the flow's history and in the audit log."""
    title = (panel.spec.title if panel.spec else "") or "New flow"
    details: dict[str, Any]
    if result.error is not None:
        details, words = {"error": result.error.code}, f"no answer: {result.error.code}"
    elif result.usage.reported:
        details, words = {"tokens": result.usage.total}, f"{result.usage.total:,} tokens"
    else:
        details, words = {"tokens": None}, "tokens not reported"
    message = f"Tried step {panel.index} with one model call ({words})."
    flow_admin.log_change(request, panel.flow or Flow(title=title), message)
    leave_trail(
        action=TrailAction.STEP_TRIED,
        about=panel.flow,
        kind="flow",
        label=str(panel.flow or title),
        details={"step": panel.index, **details},
    )


def _show_parts(request: HttpRequest, answer: str, *, status: int = 200, **context: Any) -> HttpResponse:
    templates = [f"admin/flows/flow/try/{part}.html" for part in PARTS[answer]]
    return render(request, "admin/flows/flow/try/parts.html", {"templates": templates, **context}, status=status)


def _refuse(request: HttpRequest, sentence: str, status: int) -> HttpResponse:
    return _show_parts(request, "refused", status=status, refusal=sentence, announcement=sentence)
