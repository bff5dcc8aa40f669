"""Past attempts judged again by the step as it is typed, and what limits of a step would have saved."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from flows.admin.access import require_permission
from flows.admin.document_check import check_document, fetch_target
from flows.admin.flow_admin import FlowAdmin
from flows.admin.posted_json import PostedError, get_number, get_text, read_posted_json, refuse_unreadable
from flows.engine.errors import Problem
from flows.engine.history import Issue, Outcome
from flows.engine.judging import is_judged_in_python
from flows.engine.judging_process import BusyError
from flows.engine.plugins import registry
from flows.engine.spec import MAX_STEPS, FlowSpec, StepSpec
from flows.flow_file import MAX_FILE_BYTES
from flows.models import Flow, FlowVersion
from flows.portability import describe_place
from flows.publishing import complete_spec
from flows.throttle import limit_rate
from runs.backtests.savings import describe_savings, load_past_tries
from runs.formatting import format_plural
from runs.history.issues import name_issue
from runs.history.texts import SHORT_TEXT, cut_text
from runs.pages.attempts import quote_value
from runs.pages.badges import SEVERITIES, STATES
from runs.request_slots import release_slot
from runs.try_out.rejudging import (
    REDACTED,
    REMOVED,
    TOO_LARGE,
    Verdict,
    judge_again,
    load_past_attempts,
)

REQUESTS_PER_MINUTE = 240
"""Requests of one user: more than typing makes."""
SAVINGS_PER_MINUTE = 60
"""Requests of one user; the editor sends one for each step that it shows."""
MAX_ISSUES = 2
"""Issues of one attempt that are shown."""
MAX_NAMES = 3
"""Audits that one line names."""
MAX_UNFOLDED = 5
"""Attempts that would change and are not folded."""
BUSY = "Busy: other outputs are being judged."

_JUDGED_FIELDS = frozenset(
    {"audits", "output_schema", "output_type", "output_sanitizer", "pass_expression", "failure_reason_expression"}
)
"""What decides about an output; problems elsewhere keep no one from judging."""
_LEFT_OUT = {
    REMOVED: "removed by retention",
    REDACTED: "redacted",
    TOO_LARGE: "too large",
}


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The addresses of the panel and of the savings, below those of flows."""
    may_see, may_change = require_permission("runs.view_run"), require_permission("flows.change_flow")
    return [
        path(f"{name}/", flow_admin.admin_site.admin_view(may_change(may_see(view))), name=f"flows_flow_{name}")
        for name, view in (("judge", judge_view), ("savings", savings_view))
    ]


@require_POST
@limit_rate("flow-judge", most=REQUESTS_PER_MINUTE, seconds=60)
@refuse_unreadable
def judge_view(request: HttpRequest) -> HttpResponse:
    """The last attempts of a step, judged again by the step as it is typed.

    Posted is ``{"flow", "document", "step"}``, the step counted from 1; with ``"python": true`` plug-ins are called,
    too. The answer has the panel as ``html``, whether outputs ``is_judged``, how many ``passed``, ``failed`` and
    ``changed``, and the ``seconds`` that it took; 503 while too much is being judged.
    """
    began = time.monotonic()
    posted = read_posted_json(request, max_bytes=2 * MAX_FILE_BYTES)
    flow, document, _ = fetch_target(posted)
    index = get_number(posted, "step", most=MAX_STEPS)
    steps = document.get("steps")
    if not index or not isinstance(steps, list) or index > len(steps):
        raise PostedError("This step is no longer on the page.")
    spec, problems = read_step(document, index)
    verdicts: list[Verdict] = []
    panel: dict[str, Any]
    if spec is None or problems:
        first = f"{problems[0].message}" if problems else "The step can’t be read."
        place = describe_place(document, problems[0].path).partition(", ")[2] if problems else ""
        panel = {"problem": f"{place[:1].upper()}{place[1:]}: {first}" if place else first}
    elif flow is None:
        panel = {"headline": "No outputs to judge yet", "notes": ["A new flow has no runs."]}
    elif is_judged_in_python(spec.step(index), registry) and posted.get("python") is not True:
        # A button is needed.
        panel = {"asks_python": True}
    else:
        try:
            verdicts, obstacle, left_out = _judge(flow, spec, index, in_python=posted.get("python") is True)
        except BusyError:
            return JsonResponse({"error": BUSY}, status=503, headers={"Retry-After": "1"})
        panel = build_panel(spec.step(index), verdicts, obstacle, left_out)
    answer = {
        "html": render_to_string("admin/flows/flow/live/judged.html", {"panel": panel}, request),
        "is_judged": not panel.get("problem") or bool(verdicts),
        "passed": _count_passed(verdicts),
        "failed": len(verdicts) - _count_passed(verdicts),
        "changed": sum(one.would_change for one in verdicts),
        "seconds": round(time.monotonic() - began, 3),
    }
    return JsonResponse(answer)


@require_POST
@limit_rate("flow-savings", most=SAVINGS_PER_MINUTE, seconds=60)
@refuse_unreadable
def savings_view(request: HttpRequest) -> JsonResponse:
    """A sentence for each limit of a step; none for a step that the latest version doesn't have.

    Posted is ``{"flow", "step"}``, the step by its name.
    """
    posted = read_posted_json(request)
    flow_id, name = get_number(posted, "flow", most=2**31 - 1), get_text(posted, "step")
    version = FlowVersion.objects.filter(flow=flow_id).select_related("flow").first()
    spec = version.readable_spec if version else None
    step = next((step for step in spec.steps if step.name == name), None) if spec else None
    if version is None or step is None or step.is_local:
        return JsonResponse({})
    return JsonResponse(describe_savings(step, load_past_tries(version.flow, name)))


def read_step(document: dict[str, Any], index: int) -> tuple[FlowSpec | None, list[Problem]]:
    """A flow whose step ``index`` is that of the document, and what keeps its outputs from being judged.

    Of the other steps it has the names only: the document may have problems elsewhere.
    """
    steps = [
        step if position == index else {"name": step.get("name") if isinstance(step, dict) else "", "compute": "{}"}
        for position, step in enumerate(document["steps"], start=1)
    ]
    checked = check_document({"name": "judged", "steps": steps})
    own = f"/steps/{index - 1}"
    problems = [
        problem
        for problem in checked.problems
        if problem.path in ("", "/steps", own) or problem.path.removeprefix(f"{own}/").split("/")[0] in _JUDGED_FIELDS
    ]
    return (None if checked.spec is None else complete_spec(checked.spec)), problems


def _judge(flow: Flow, spec: FlowSpec, index: int, *, in_python: bool) -> tuple[list[Verdict], str, Counter[str]]:
    attempts, left_out = load_past_attempts(flow.pk, spec, index)
    if not attempts:
        return [], "", left_out
    is_in_python = in_python and is_judged_in_python(spec.step(index), registry)
    with release_slot():
        return *judge_again(spec.step(index), attempts, registry, in_python=is_in_python), left_out


def _count_passed(verdicts: Sequence[Verdict]) -> int:
    return sum(one.now.outcome is Outcome.PASSED for one in verdicts)


# ---------------------------------------------------------------------------------------------------------------
# What is shown


def build_panel(step: StepSpec, verdicts: Sequence[Verdict], obstacle: str, left_out: Counter[str]) -> dict[str, Any]:
    """What the panel shows of verdicts, and of the ``obstacle`` to others."""
    count, passed = len(verdicts), _count_passed(verdicts)
    lines = [_build_line(step, verdict) for verdict in verdicts]
    changed = [line for line in lines if line["would_change"]]
    notes = [f"{format_plural(number, 'output')} left out: {_LEFT_OUT[reason]}" for reason, number in left_out.items()]
    if not count:
        headline = "" if obstacle else "No outputs to judge yet"
        notes = notes or ([] if obstacle else ["No attempt of this step has ended with an output."])
    else:
        changes = f"{len(changed)} would change" if changed else "none would change"
        last = "the last output" if count == 1 else f"the last {count} outputs"
        headline = f"Judged again on {last}: {passed} pass, {count - passed} fail; {changes}"
    return {
        "headline": headline,
        # The oldest first.
        "squares": lines[::-1],
        "changed": changed[:MAX_UNFOLDED],
        "more_changed": changed[MAX_UNFOLDED:],
        "others": [line for line in lines if not line["would_change"]],
        "notes": notes,
        # Why nothing could be judged, or not all of it.
        "problem": obstacle,
    }


def _build_line(step: StepSpec, verdict: Verdict) -> dict[str, Any]:
    """One attempt: its outcome then and now, and what made the difference."""
    past, now = verdict.past, verdict.now
    words, issues = _find_cause(step, verdict) if verdict.would_change else ("", verdict.appeared or verdict.gone)
    new, gone = len(verdict.appeared), len(verdict.gone)
    return {
        "run": past.run,
        "number": past.number,
        "version": past.version,
        "url": reverse("runs:attempt", args=[past.run, past.step, past.number]),
        "then": STATES[past.outcome.value],
        "now": STATES[now.outcome.value],
        "would_change": verdict.would_change,
        "words": words,
        "issues": list_issue_lines(issues[:MAX_ISSUES], now.output),
        "more": max(len(issues) - MAX_ISSUES, 0),
        "found": _count_issues(now.issues),
        "difference": ", ".join(
            [*([format_plural(new, "new issue")] if new else []), *([f"{gone} gone"] if gone else [])]
        ),
    }


def _find_cause(step: StepSpec, verdict: Verdict) -> tuple[str, list[Issue]]:
    """The issues that make an attempt end otherwise, the most severe first, and what they are."""
    if verdict.now.outcome is not Outcome.PASSED:
        blocking = verdict.list_blocking(step)
        # New ones say more than those that were there and only blocked nothing.
        new = [issue for issue in blocking if issue in verdict.appeared]
        return "Now blocks", _sort(new or blocking)
    if verdict.gone:
        return "Gone", _sort(verdict.gone)
    return "No longer blocks", _sort(list(verdict.now.issues))


def _sort(issues: list[Issue]) -> list[Issue]:
    return sorted(issues, key=lambda issue: -issue.severity.weight)


def list_issue_lines(issues: Iterable[Issue], output: Any) -> list[dict[str, Any]]:
    """Issues with the values in ``output`` that they are about."""
    return [
        {
            "badge": SEVERITIES[issue.severity.value],
            "title": name_issue(issue),
            "message": str(cut_text(issue.description, SHORT_TEXT)),
            "path": "" if issue.path is None else str(cut_text(issue.path, SHORT_TEXT)),
            "value": quote_value(output, issue.path)[1],
        }
        for issue in issues
    ]


def _count_issues(issues: tuple[Issue, ...]) -> str:
    counts = Counter(map(name_issue, issues))
    parts = [f"{name} × {count}" if count > 1 else name for name, count in counts.items()]
    return ", ".join(parts[:MAX_NAMES]) + (f" and {len(parts) - MAX_NAMES} more" if len(parts) > MAX_NAMES else "")
